"""What is run: a function, a model in memory, a file or ``module:function``; and its recorder.

The library is found by what a function returns, or by a file's ending. No library is imported that
the function or the file does not need.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from probe.case.arguments import not_waiting
from probe.case.errors import Foreign, InputError, ProbeError, TargetError, foreign, one_of
from probe.record import RECORDERS
from probe.record.contract import Input, Opened, Recorder, Seen, Visit
from probe.record.inputs import arrays_restored, by_name
from probe.record.store import DEEPEST, array_digest
from probe.targets import backends
from probe.targets.progress import without_stderr

# The library that runs files of each ending; a folder with ``saved_model.pb`` is TensorFlow's.
FILES = {
    ".onnx": "onnxruntime",
    ".tflite": "litert",
    **dict.fromkeys((".keras", ".h5", ".hdf5"), "tensorflow"),
    **dict.fromkeys((".pt2", ".pt", ".pth"), "torch"),
    **dict.fromkeys((".caffemodel", ".prototxt"), "opencv"),
}

# Files of other libraries that a library reads too.
ALSO = {"opencv": (".onnx",)}

ENDINGS = f"{', '.join(FILES)}, a SavedModel folder, or module:function"

# What to do about a function that has no inputs yet.
OR_SHAPE = "--shape 8x64 (generated float32 numbers)"

# Packages that recorders import beside their library, by the name under which pip has them.
OTHERS = ("onnx",)

# The library of a value by the package of its type.
PACKAGES = {"torch": "torch", "tensorflow": "tensorflow", "jax": "jax", "jaxlib": "jax"}

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")


def is_function(text: object) -> bool:
    """Returns whether a text is ``module:function``."""
    return isinstance(text, str) and bool(_FUNCTION.fullmatch(text)) and not Path(text).exists()


def model_name(model: Any) -> str:
    """Returns what a model is called: its file, ``module:function``, or its class."""
    if is_function(model):
        return str(model)
    return Path(model).name if isinstance(model, str | Path) else type(model).__name__


def open_model(
    model: Any,
    trust: bool = False,
    switches: Mapping[str, str] | None = None,
    library: str | None = None,
) -> Opened:
    """Returns what a user gave as something with inputs and recorders.

    ``model``: a file, ``module:function``, a function, or a model of PyTorch or Keras.
    ``switches``: of the target, for libraries that set them with the model. ``library``: of the
    target, where it isn't the one that a file's ending names. Errors: InputError.
    """
    name = str(model) if is_function(model) else ""
    if name:
        module, _, inside = name.partition(":")
        if "" not in sys.path and (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)  # as Python itself finds modules of the current folder
        try:
            model = reduce(getattr, inside.split("."), import_module(module))
        except ProbeError:
            raise
        except (Exception, SystemExit) as error:  # whatever a user's module raises
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            todo = "write module:function as Python imports it"
            missing = isinstance(error, ModuleNotFoundError) and error.name
            if missing and missing not in (module, module.partition(".")[0]):
                todo = f"install what it imports: pip install {missing}"
            raise InputError("model", name, why, todo) from None
    if isinstance(model, str | Path):
        path = Path(model)
        library = library if library and runs(library, path) else library_of(path)
        open_file = getattr(recorders(library), "opened", None)
        if open_file is None:
            why = f"no recorder of {library} reads model files"
            raise InputError("model", path, why, "write module:function, a function that runs it")
        if not switches:
            return ModelFile(open_file(path, trust), path.name)
        if "switches" not in inspect.signature(open_file).parameters:
            why = f"models of {library} are run with its defaults"
            raise InputError("target", library, why, "leave the switches out")
        return ModelFile(open_file(path, trust, switches=dict(switches)), path.name)
    if hasattr(model, "plain") and hasattr(model, "record"):
        own: Any = SimpleNamespace(inputs=(), recorder=lambda _: model)  # it is a recorder already
        return own  # type: ignore[no-any-return]
    if not callable(model):
        why = f"{type(model).__name__} is neither a model nor a function nor a file"
        raise InputError("model", type(model).__name__, why, f"give a file ({ENDINGS})")
    if isinstance(model, type):  # calling it makes a model, and runs none
        todo = f"make a model of it, model = {model.__name__}(...), and give that"
        raise InputError("model", model.__name__, "it is a class, not a model", todo)
    return FunctionSubject(model, name)


def runs(library: str, path: Path) -> bool:
    """Returns whether a library reads and runs a model's file. Raises InputError."""
    own = library_of(path)
    also = path.suffix.lower() in ALSO.get(library, ())
    return RECORDERS.get(library) == RECORDERS[own] or also


def library_of(path: Path) -> str:
    """Returns the library that runs a file, by its ending. Raises InputError."""
    for part in (path, *path.glob("variables/*")):
        not_waiting("model", part)
    if (path / "saved_model.pb").exists():
        return "tensorflow"
    if not path.exists():
        raise InputError("model", path, "there is no such file", f"give a file ({ENDINGS})")
    if path.suffix.lower() not in FILES:
        why, todo = "the file has no extension", f"give a file ({ENDINGS})"
        if path.is_dir():
            why = "the folder has no saved_model.pb, so it is not a SavedModel"
        elif path.suffix == ".py":
            why = "a Python file may define several models"
            todo = f"name one as Python imports it: {path.stem}:NAME"
        elif path.suffix:
            why = f"unsupported file type {path.suffix}"
        raise InputError("model", path, why, todo)
    return FILES[path.suffix.lower()]


def recorders(library: str) -> Any:
    """Returns the module that watches a library. Raises InputError."""
    if library not in RECORDERS:
        raise InputError("library", library, "it can't be recorded", one_of(library, RECORDERS))
    try:
        if library != "tensorflow" or library in sys.modules:
            return import_module(RECORDERS[library])
        with without_stderr():
            return import_module(RECORDERS[library])
    except ModuleNotFoundError as error:
        why = f"{error.name} is not installed" if error.name else "it is not installed"
        backend = backends.get(library)
        package = error.name if error.name in OTHERS else backend.installs
        todo = f"run pip install {package or backend.distributions[0]}"
        raise InputError("library", library, why, todo) from None


class FunctionSubject:
    """A function or a model in memory, which is called with the inputs' arrays in order.

    Models of PyTorch get tensors, everything else NumPy's arrays. ``name``: ``module:function``,
    if it is known by that. ``inputs``: of a Keras model its own, else empty: not known.
    """

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        self.function, self.name, self.inputs = function, name, tuple[Input, ...]()
        self.recorded = dict[Any, Recorder]()  # by the shapes of inputs
        kinds = type(function).__mro__
        self.torch = any((kind.__module__, kind.__name__) == TORCH for kind in kinds)
        if any(kind.__module__.startswith("keras.") for kind in kinds):
            self.inputs = tuple(
                Input(str(tensor.name), tuple(tensor.shape), str(tensor.dtype).rpartition(".")[2])
                for tensor in getattr(function, "inputs", None) or []
            )

    def repeated(self, arrays: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of a call at shapes that were recorded before: its library is known,
        and a call to find it is saved."""
        return self.recorder(arrays, self.recorded.get(_shapes(arrays)))

    def recorder(self, arrays: Mapping[str, np.ndarray], like: Recorder | None = None) -> Recorder:
        """Returns a recorder of one call, with arrays by the names of its parameters, else in their
        order. InputError: it needs inputs that are not given, or takes fewer."""
        given, said, names = dict(arrays), "", [each.name for each in parameters(self.function)]
        if not self.inputs and len(given) <= len(names):
            given, said = by_name(names, given)
        require_arguments(self.function, [*given.values()], self._keywords(given))
        arguments = self._arguments(given)
        function = self.of_arrays(given)

        # a function may change its inputs (``x.mul_(2)``), and its next run starts from these again
        changed = [a.numpy() for a in arguments] if self.torch else arguments
        changed = [a for a in changed if isinstance(a, np.ndarray) and a.flags.writeable]
        before = [np.array(array) for array in changed]

        # as a module is used: PyTorch runs other kernels of attention and LSTM for training
        without_gradients = import_module("torch").no_grad if self.torch else nullcontext

        def call() -> Any:
            for array, held in zip(changed, before, strict=True):
                np.copyto(array, held)
            try:
                with without_gradients():
                    return foreign(function, *arguments)
            except Foreign as raised:  # of a function by name: what it was called with, too
                error = raised.__cause__
                assert error is not None
                if not self.name or not arguments:
                    raise error from error.__cause__
                called = ", ".join(
                    f"{type(a).__name__} {str(a.dtype).rpartition('.')[2]} {list(a.shape)}"
                    for a in self.values(given).values()
                )
                todo = "check shape and dtype of --inputs, or --shape" + TENSORS * (not self.torch)
                why = f"{_error_text(error)} (called with {called}; {todo})"
                raise TargetError(self.name, "error", why) from None

        recorder = function_recorder(call, self.name, (function, arguments), like)
        self.recorded[_shapes(arrays)] = recorder
        guard: Any = Guarded(recorder, self.name, said) if self.name or said else recorder
        return guard  # type: ignore[no-any-return]

    def of_arrays(self, arrays: Collection[str]) -> Callable[..., Any]:
        """Returns what takes arrays of these names in order: one behind an argument that is left
        out has to be called by its name."""
        names = self._keywords(arrays)
        if not names:
            return self.function
        return lambda *values: self.function(**dict(zip(names, values, strict=True)))

    def _keywords(self, arrays: Collection[str]) -> list[str]:
        """Names by which it has to be called; none: by place."""
        names = [each.name for each in parameters(self.function)]
        in_place = self.inputs or [*arrays] == names[: len(arrays)]
        return [] if in_place or not {*arrays} <= {*names} else [*arrays]

    def values(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The arrays as what the function is called with: tensors of a module of PyTorch."""
        if not self.torch:
            return dict(arrays)
        torch, tensors = import_module("torch"), dict[str, Any]()
        for name, array in arrays.items():
            try:
                tensors[name] = torch.from_numpy(np.array(array))
            except TypeError:
                why = f"PyTorch has no tensors of {array.dtype}"
                raise InputError("inputs", name, why, "give numbers, such as float32") from None
        return tensors

    def _arguments(self, arrays: Mapping[str, np.ndarray]) -> list[Any]:
        if len(self.inputs) > 1:  # a second argument of a Keras model says whether it trains
            return [{name.partition(":")[0]: array for name, array in arrays.items()}]
        return [*self.values(arrays).values()]


def _shapes(arrays: Mapping[str, np.ndarray]) -> Any:
    return tuple((array.shape, str(array.dtype)) for array in arrays.values())


TORCH = ("torch.nn.modules.module", "Module")
TENSORS = "; a function of tensors begins with x = torch.from_numpy(x), or name the module"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function, of a module of PyTorch its forward's; None where it has none, as
    compiled code."""
    if any((kind.__module__, kind.__name__) == TORCH for kind in type(function).__mro__):
        function = function.forward  # type: ignore[attr-defined]
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a function can be called with by place. None where it takes any number of them."""
    signature = signature_of(function)
    every = [] if signature is None else [*signature.parameters.values()]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    several = any(each.kind is each.VAR_POSITIONAL for each in every)
    return [] if several else [each for each in every if each.kind in kinds]


def require_arguments(
    function: Callable[..., Any], arrays: Sequence[Any], names: Sequence[str] = ()
) -> None:
    """InputError where a function does not take these arrays, by their ``names`` if it has to be
    called by these."""
    signature = signature_of(function)
    try:
        if signature is not None and names:
            signature.bind(**dict(zip(names, arrays, strict=True)))
        elif signature is not None:
            signature.bind(*arrays)
    except TypeError as error:
        assert signature is not None
        takes = ", ".join(signature.parameters) or "none"
        why = f"it takes {takes}, and {len(arrays)} are given: {error}"
        todo = f"give an array for each of its arguments: --inputs FILE.npz, or {OR_SHAPE}; a list "
        todo += "is several inputs, an array is one"
        raise InputError(
            "inputs", ", ".join(names) or f"{len(arrays)} of them", why, todo
        ) from None


# Recorders whose nodes a repetition takes: of two sides.
SIDES = 2


class ModelFile:
    """A model file; what its library raises on the first call is one line."""

    def __init__(self, inner: Opened, name: str) -> None:
        self.inner, self.name = inner, name
        self.inputs = tuple(  # exporters write -1 and 0 too for sizes that they leave open
            replace(spec, shape=tuple(n if n and n > 0 else None for n in spec.shape))
            for spec in inner.inputs
        )

        self.recorded = dict[Any, Any]()  # the last ones, by the shapes of inputs

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Any:
        recorder = guarded(lambda: self.inner.recorder(arrays), self.name)
        self.recorded[_shapes(arrays)] = recorder
        if len(self.recorded) > SIDES:
            del self.recorded[next(iter(self.recorded))]
        return Guarded(recorder)

    def repeated(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """As of ``FunctionSubject``; a library whose nodes can't be taken is recorded anew."""
        before = self.recorded.get(_shapes(arrays))
        if getattr(before, "graph", None) is None:
            return self.recorder(arrays)
        recorder = guarded(lambda: self.inner.recorder(arrays), self.name)
        recorder.take_nodes(before)
        return Guarded(recorder)


class Guarded:
    """A recorder whose own failure is one line. Errors: TargetError, kind ``error``.

    ``name``: what fails then; the recorder's target if not given. ``said``: a further note.
    """

    def __init__(self, recorder: Recorder, name: str = "", said: str = "") -> None:
        self.inner, self.name, self.said = recorder, name, said

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def note(self) -> str:
        """As of ``Recorder``; some know it after the first run."""
        return "; ".join(filter(None, (self.said, self.inner.note)))

    def plain(self) -> list[np.ndarray]:
        outputs: list[np.ndarray] = guarded(self.inner.plain, self.name or self.target)
        return outputs

    def record(self, visit: Visit) -> list[Seen]:
        """As of ``Recorder``. What fails unwatched too is no mistake of ours."""
        try:
            return self.inner.record(visit)
        except Exception:  # raised on, if it runs unwatched
            self.plain()
            raise
        except SystemExit:
            self.plain()
            raise RuntimeError("it ends Python while it is recorded") from None


def guarded(call: Callable[[], Any], target: str) -> Any:
    """Calls a user's function. TargetError, kind ``error``, for whatever it raises."""
    try:
        return call()
    except (ProbeError, KeyboardInterrupt, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(target, "error", _error_text(error)) from None


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def function_recorder(
    function: Callable[[], Any],
    name: str = "",
    bare: tuple[Callable[..., Any], Sequence[Any]] | None = None,
    like: Recorder | None = None,
) -> Recorder:
    """Returns a recorder of a function of no arguments, by the library of what it returns.

    Costs one call. ``name``: of a function that is asked for by name; then what it raises becomes a
    TargetError. ``bare``: the same as a function of arrays, and these; so that plain NumPy can be
    watched. ``like``: a recorder of the same function with other numbers, which saves the call.
    Errors: InputError where it returns nothing that a library can be told from.
    """
    if like is not None:
        again: Any = getattr(like, "again", type(like))
        return again(bare) if type(like).__module__ == NUMPY else again(function)  # type: ignore[no-any-return]
    if hasattr(function, "plain") and hasattr(function, "record"):
        return function  # type: ignore[return-value]
    if not callable(function):
        raise InputError("function", type(function).__name__, "it can't be called", NO_ARGUMENTS)
    if missing := [each.name for each in parameters(function) if each.default is each.empty]:
        why = f"it takes {', '.join(missing)}"
        name = getattr(function, "__name__", type(function).__name__)
        raise InputError("function", name, why, NO_ARGUMENTS)
    with arrays_restored(bare[1] if bare is not None else ()):
        returned = guarded(function, name) if name else function()
    values = list(nested_leaves(returned))
    if (library := library_of_values(values)) != "":
        module = recorders(library)
        recorder = module.RECORDER(function)
        recorder.built = True  # by this call, which TensorFlow's has to have had
        # the bits of this call, which watched need not make again
        plain = module.RECORDER(lambda: returned).plain()
        recorder.already = [array_digest(array) for array in plain]
        recorder.first, recorder.beside = plain, beside_arrays(returned)
        return recorder  # type: ignore[no-any-return]
    if any(isinstance(value, np.ndarray | np.generic) for value in values):
        if bare is not None and bare[1] and not library_of_values(bare[1]):
            recorder = import_module(NUMPY).ArrayRecorder(bare[0], *bare[1])
            arrays = [value for value in values if not isinstance(value, Text)]
            recorder.already = [array_digest(np.asarray(value)) for value in arrays]
            recorder.beside = beside_arrays(returned)
            return recorder  # type: ignore[no-any-return]
        why = "it returns NumPy arrays, from which the library that computed them can't be seen"
        todo = (
            "return the library's own arrays (without .numpy()), give the model file, or, if it is "
            "NumPy itself, take the arrays as arguments: inputs=(x,)"
        )
        raise InputError("function", "ndarray", why, todo)
    types = ", ".join(dict.fromkeys(type(value).__name__ for value in values)) or "nothing"
    raise Unseen("function", types, "it returns no array of a library", f"return one: {KNOWN}")


def run_unwatched(recorder: Any) -> list[np.ndarray]:
    """Runs a recorder's program unwatched, unless making the recorder has just done so."""
    first = getattr(recorder, "inner", recorder).__dict__.pop("first", None)
    outputs: list[np.ndarray] = recorder.plain() if first is None else first
    return outputs


def library_of_values(values: Any) -> str:
    """Returns the library with a recorder of functions that gave values; empty: none is known."""
    kinds = (kind for value in nested_leaves(values) for kind in type(value).__mro__)
    packages = (kind.__module__.partition(".")[0] for kind in kinds)
    return next((PACKAGES[package] for package in packages if package in PACKAGES), "")


class Unseen(InputError):
    """A function of arrays whose operations can't be watched: another library's, such as pandas."""


# Watches plain NumPy, which no type of what is returned shows.
NUMPY = "probe.record.ndarray"
NO_ARGUMENTS = "give a function of no arguments: lambda: model(x)"
KNOWN = "of PyTorch, TensorFlow, Keras or JAX"


# What a function returns that is no array, and has nothing to be recorded of.
Text = str | bytes | None

# Names of the arrays of nested dictionaries, and texts by where they stand.
Beside = tuple[tuple[str, ...], dict[str, str]]


def beside_arrays(returned: Any) -> Beside:
    """Returns what bits of arrays don't say: their names, and texts."""
    names, texts = list[str](), dict[str, str]()
    for place, named, value in _nested(returned):
        if isinstance(value, str | bytes):
            texts[place] = repr(value)
        elif named and value is not None:
            names.append(place)
    return tuple(names), texts


def beside_apart(left: Any, right: Any) -> str:
    """Returns what two runs return beside their arrays that differs, in words; empty if nothing
    does, or nothing is known of it."""
    first, second = (getattr(side, "beside", None) for side in (left, right))
    if first is None or second is None:
        return ""
    (names, texts), (others, more) = first, second
    if names and others and names != others:
        both = ", ".join(names), ", ".join(others)
        return "the outputs are {} on the left and {} on the right".format(*both)
    for place in [*texts, *more]:
        if texts.get(place) != more.get(place):
            said = (texts.get(place, "nothing"), more.get(place, "nothing"))
            return "beside the arrays it returns {} on the left and {} on the right".format(*said)
    return ""


def nested_leaves(value: Any) -> Iterator[Any]:
    """Yields what stands in nested tuples, lists and dictionaries, these by name, as two runs may
    put the same names in another order. InputError: one holds itself."""
    return (leaf for _, _, leaf in _nested(value))


def _nested(
    value: Any, path: str = "", named: bool = False, depth: int = 0
) -> Iterator[tuple[str, bool, Any]]:
    """Yields where each leaf stands, whether a dictionary names it, and the leaf."""
    if isinstance(value, Mapping):
        parts = [(f"{path}.{n}".strip("."), True, value[n]) for n in sorted(value, key=str)]
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        parts = [(f"{path}[{n}]", False, part) for n, part in enumerate(value)]
    else:
        yield path, named, value
        return
    if depth > DEEPEST:
        why = f"it is nested more than {DEEPEST} deep, or holds itself"
        raise InputError("value", type(value).__name__, why, "give lists of arrays")
    for place, inside, part in parts:
        yield from _nested(part, place, inside, depth + 1)
