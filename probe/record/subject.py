"""What is run: a function, a model in memory, a file or ``module:function``; its recorder; and the
same behind a state, which an output leaves and an input takes.

The library is found by what a function returns, or by a file's ending. No library is imported that
the function or the file does not need.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from probe.case.arguments import not_waiting
from probe.case.errors import Foreign, InputError, ProbeError, TargetError, foreign, one_of
from probe.record import RECORDERS
from probe.record.contract import Input, Opened, OpenedFile, Recorder, Seen, Visit
from probe.record.inputs import arrays_restored, by_name
from probe.record.store import DEEPEST, array_digest
from probe.targets import backends
from probe.targets.progress import without_stderr

Arrays = Mapping[str, np.ndarray]

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
    """Whether a text is ``module:function``, and no file."""
    return isinstance(text, str) and bool(_FUNCTION.fullmatch(text)) and not Path(text).exists()


def model_name(model: Any) -> str:
    """What a model is called: its file, ``module:function``, or its class."""
    if is_function(model):
        return str(model)
    return Path(model).name if isinstance(model, str | Path) else type(model).__name__


def open_model(
    model: Any,
    trust: bool = False,
    switches: Mapping[str, str] | None = None,
    library: str | None = None,
) -> Opened:
    """What a user gave, as something with inputs and recorders.

    ``model``: a file, ``module:function``, a function, or a model of PyTorch or Keras.
    ``switches``: of the target, for libraries that set them with the model. ``library``: of the
    target, where it isn't the one that a file's ending names. Errors: InputError.
    """
    name = str(model) if is_function(model) else ""
    if name:
        module, _, inside = name.partition(":")
        if "" not in sys.path and (folder := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, folder)  # as Python itself finds modules of the current folder
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
        return OpenedFile((), lambda _: model)  # it is a recorder already
    if not callable(model):
        why = f"{type(model).__name__} is neither a model nor a function nor a file"
        raise InputError("model", type(model).__name__, why, f"give a file ({ENDINGS})")
    if isinstance(model, type):  # calling it makes a model, and runs none
        todo = f"make a model of it, model = {model.__name__}(...), and give that"
        raise InputError("model", model.__name__, "it is a class, not a model", todo)
    return FunctionSubject(model, name)


def runs(library: str, path: Path) -> bool:
    """Whether a library reads and runs a model's file. Raises InputError."""
    also = path.suffix.lower() in ALSO.get(library, ())
    return RECORDERS.get(library) == RECORDERS[library_of(path)] or also


def library_of(path: Path) -> str:
    """The library that runs a file, by its ending. Raises InputError."""
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
    """The module that watches a library. InputError: there is none, or it isn't installed."""
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
        self.torch = _is_torch_module(function)
        if any(kind.__module__.startswith("keras.") for kind in type(function).__mro__):
            self.inputs = tuple(
                Input(str(tensor.name), tuple(tensor.shape), str(tensor.dtype).rpartition(".")[2])
                for tensor in getattr(function, "inputs", None) or []
            )

    def repeated(self, arrays: Arrays) -> Recorder:
        """A recorder of a call at shapes that were recorded before: its library is known, and a
        call to find it is saved."""
        return self.recorder(arrays, self.recorded.get(_shapes(arrays)))

    def recorder(self, arrays: Arrays, like: Recorder | None = None) -> Recorder:
        """A recorder of one call, with arrays by the names of its parameters, else in their order.
        InputError: it needs inputs that are not given, or takes fewer."""
        named, said = dict(arrays), ""
        names = [each.name for each in parameters(self.function)]
        if not self.inputs and len(named) <= len(names):
            named, said = by_name(names, named)
        require_arguments(self.function, [*named.values()], self._keywords(named))
        arguments = [*self.values(named).values()]
        if len(self.inputs) > 1:  # a second argument of a Keras model says whether it trains
            arguments = [{name.partition(":")[0]: array for name, array in named.items()}]
        function = self.of_arrays(named)

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
                raise self.failure(_error_text(error), self.values(named)) from None

        recorder = function_recorder(call, self.name, (function, arguments), like)
        self.recorded[_shapes(arrays)] = recorder
        guard: Any = Guarded(recorder, self.name, said) if self.name or said else recorder
        return guard  # type: ignore[no-any-return]

    def failure(self, raised: str, values: Mapping[str, Any]) -> TargetError:
        """What it raised, and what it was called with: tensors it may have waited for."""
        called = ", ".join(
            f"{type(a).__name__} {str(a.dtype).rpartition('.')[2]} {list(a.shape)}"
            for a in values.values()
        )
        todo = "check shape and dtype of --inputs, or --shape"
        todo += "" if self.torch else TENSORS
        why = f"{raised} (called with {called}; {todo})"
        return TargetError(self.name or "function", "error", why)

    def of_arrays(self, arrays: Collection[str]) -> Callable[..., Any]:
        """What takes arrays of these names in order: an array behind an argument that is left out
        has to be given by its name."""
        names = self._keywords(arrays)
        if not names:
            return self.function
        return lambda *values: self.function(**dict(zip(names, values, strict=True)))

    def _keywords(self, arrays: Collection[str]) -> list[str]:
        """Names by which it has to be called; none: by place."""
        names = [each.name for each in parameters(self.function)]
        in_place = self.inputs or [*arrays] == names[: len(arrays)]
        return [] if in_place or not {*arrays} <= {*names} else [*arrays]

    def values(self, arrays: Arrays) -> dict[str, Any]:
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


def _shapes(arrays: Arrays) -> Any:
    return tuple((array.shape, str(array.dtype)) for array in arrays.values())


def _is_torch_module(model: Any) -> bool:
    """Whether it is a module of PyTorch, which needn't be imported to know."""
    names = ((kind.__module__, kind.__name__) for kind in type(model).__mro__)
    return ("torch.nn.modules.module", "Module") in names


TENSORS = "; a function of tensors begins with x = torch.from_numpy(x), or name the module"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function, of a module of PyTorch its forward's; None where it has none, as
    compiled code."""
    if _is_torch_module(function):
        function = function.forward  # type: ignore[attr-defined]
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a function can be called with by place. None where it takes any number of them."""
    signature = signature_of(function)
    if signature is None:
        return []
    parameters = signature.parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return []
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in parameters if each.kind in by_place]


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
        named = ", ".join(names) or f"{len(arrays)} of them"
        raise InputError("inputs", named, why, todo) from None


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

    def recorder(self, arrays: Arrays) -> Any:
        recorder = guarded(lambda: self.inner.recorder(arrays), self.name)
        self.recorded[_shapes(arrays)] = recorder
        if len(self.recorded) > SIDES:
            del self.recorded[next(iter(self.recorded))]
        return Guarded(recorder)

    def repeated(self, arrays: Arrays) -> Any:
        """As of ``FunctionSubject``; a library whose nodes can't be taken is recorded anew."""
        before = self.recorded.get(_shapes(arrays))
        repeated = self.recorder(arrays)
        _take_over(repeated.inner, before)
        return repeated


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
    """A recorder of a function of no arguments, by the library of what it returns.

    Costs one call. ``name``: of a function that is asked for by name; then what it raises becomes a
    TargetError. ``bare``: the same as a function of arrays, and these; so that plain NumPy can be
    watched. ``like``: a recorder of the same function with other numbers, which saves the call.
    Errors: InputError where it returns nothing that a library can be told from.
    """
    if like is not None:
        kind: Any = type(like)
        if bare is not None and kind.__module__ == NUMPY:
            return _take_over(kind(bare[0], *bare[1]), like)
        return _take_over(kind(function), like)
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
        recorder.plain_digests = [array_digest(array) for array in plain]
        recorder.first, recorder.beside = plain, beside_arrays(returned)
        return recorder  # type: ignore[no-any-return]
    if any(isinstance(value, np.ndarray | np.generic) for value in values):
        if bare is not None and bare[1] and not library_of_values(bare[1]):
            recorder = import_module(NUMPY).ArrayRecorder(bare[0], *bare[1])
            arrays = [value for value in values if not isinstance(value, Text)]
            recorder.plain_digests = [array_digest(np.asarray(value)) for value in arrays]
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


def _take_over(recorder: Any, before: Recorder | None) -> Recorder:
    """A recorder with what an earlier one of the same, at the same shapes, has found out."""
    if hasattr(before, "take_over"):
        recorder.take_over(before)
    return recorder  # type: ignore[no-any-return]


def run_unwatched(recorder: Any) -> list[np.ndarray]:
    """Runs a recorder's program unwatched, unless making the recorder has just done so."""
    first = getattr(recorder, "inner", recorder).__dict__.pop("first", None)
    outputs: list[np.ndarray] = recorder.plain() if first is None else first
    return outputs


def library_of_values(values: Any) -> str:
    """The library with a recorder of functions that gave values; empty: none is known."""
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
    """What bits of arrays don't say: their names, and texts."""
    names, texts = list[str](), dict[str, str]()
    for place, named, value in _nested(returned):
        if isinstance(value, str | bytes):
            texts[place] = repr(value)
        elif named and value is not None:
            names.append(place)
    return tuple(names), texts


def beside_apart(left: Any, right: Any) -> str:
    """What two runs return beside their arrays that differs, in words; empty if nothing does, or
    nothing is known of it."""
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
    """What stands in nested tuples, lists and dictionaries, these by name, as two runs may put the
    same names in another order. InputError: one holds itself."""
    return (leaf for _, _, leaf in _nested(value))


def _nested(
    value: Any, path: str = "", named: bool = False, depth: int = 0
) -> Iterator[tuple[str, bool, Any]]:
    """Where each leaf stands, whether a dictionary names it, and the leaf."""
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


# behind a state

STATEFUL = "give a function f(x, state=None) that returns (y, state), or its first state by name"


class Stepped:
    """A model as its pieces call it. ``states``: inputs that take what an output, by its number,
    left; none: it is called without a state."""

    def __init__(self, subject: Opened, states: Mapping[str, Any]) -> None:
        self.subject, self.states = subject, states

    def shown(self, outputs: Sequence[Any]) -> list[Any]:
        """The outputs of a run but for the states."""
        return [output for n, output in enumerate(outputs) if n not in self.states.values()]

    def recorder(self, arrays: Arrays, state: Any = None) -> Recorder:
        """A recorder of one piece behind a state, states being outputs too."""
        repeated = getattr(self.subject, "repeated", self.subject.recorder)
        return repeated({**arrays, **(state or {})})  # type: ignore[no-any-return]

    def advance(self, arrays: Arrays, state: Any) -> tuple[list[np.ndarray], Any]:
        """One piece unwatched: its outputs, and the state that it leaves."""
        outputs = run_unwatched(self.recorder(arrays, state))
        return self.shown(outputs), {name: outputs[n] for name, n in self.states.items()}

    def run(self, arrays: Arrays) -> list[np.ndarray]:
        """The outputs of a piece that stands first."""
        return self.advance(arrays, None)[0]


class SteppedFunction(Stepped):
    """The same of a function: its states stay the objects that it returned, of any kind and
    format, and are copied for each call, which may write into them. ``states``: by the place or
    name of what is returned."""

    subject: FunctionSubject
    last: Any = None

    def shown(self, outputs: Sequence[Any]) -> list[Any]:
        return [*outputs]

    def _called(self, arrays: Arrays, state: Any) -> Callable[[], Any]:
        """What calls it, gives its outputs but for states, and keeps these."""
        subject, states = self.subject, self.states
        values = _values(subject, arrays)
        without_gradients = import_module("torch").no_grad if subject.torch else nullcontext

        def call() -> Any:
            with without_gradients():
                returned = subject.function(**copied_state({**values, **(state or {})}))
            self.last = {name: returned[at] for name, at in states.items()}
            if isinstance(returned, Mapping):
                return {n: value for n, value in returned.items() if n not in states.values()}
            return [value for n, value in enumerate(returned) if n not in states.values()]

        return call

    def recorder(self, arrays: Arrays, state: Any = None) -> Recorder:
        recorder = function_recorder(self._called(arrays, state), self.subject.name)
        return Guarded(recorder, self.subject.name)  # type: ignore[return-value]

    def advance(self, arrays: Arrays, state: Any) -> tuple[list[np.ndarray], Any]:
        outputs = run_unwatched(self.recorder(arrays, state))
        return outputs, self.last


def copied_state(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of inputs and states, of any kind, that a call may write into.

    PyTorch refuses to copy a tensor that an operation gave while gradients were on: its numbers are
    copied. InputError: another object in it can't be copied.
    """
    numbers = dict[int, Any]()
    for part in _parts(state, set()):
        if getattr(part, "grad_fn", None) is not None and not part.is_leaf:
            numbers[id(part)] = copy.deepcopy(part.data)
    try:
        return copy.deepcopy(state, numbers)
    except Exception as error:  # whatever an object of the user's raises
        why = f"it can't be copied ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
        raise InputError("state", ", ".join(state), why, "return a state of arrays") from None


def _parts(value: Any, met: set[int]) -> Iterator[Any]:
    """A value and what stands in it: in containers, and in attributes of objects."""
    if id(value) in met or isinstance(value, type | ModuleType | np.ndarray | str | bytes):
        return
    met.add(id(value))
    yield value
    inside = [*value.values()] if isinstance(value, Mapping) else []
    inside += [*value] if isinstance(value, list | tuple | set | deque) else []
    inside += [*getattr(value, "__dict__", {}).values()]
    for part in inside:
        yield from _parts(part, met)


def stepped(
    subject: Opened, arrays: Arrays, along: Sequence[Mapping[str, int]], text: str
) -> Stepped:
    """A model as the pieces of a schedule, ``text``, call it; empty: they have no state.
    InputError: nothing that it leaves is what it takes."""
    if not text:
        return Stepped(subject, {})
    cut = {name for each in along for name in each}
    # a model of Keras in memory takes its inputs together, as a file does
    if isinstance(subject, FunctionSubject) and not subject.inputs:
        values, names = _values(subject, arrays), _names(subject)
        with import_module("torch").no_grad() if subject.torch else nullcontext():
            call = lambda: subject.function(**copied_state(values))  # noqa: E731
            try:
                returned = guarded(call, subject.name)
            except TargetError as raised:
                raise subject.failure(raised.why, values) from None
        states = dict[str, Any]()
        takes = [name for name in names if name not in values or name in arrays.keys() - cut]
        if isinstance(returned, Mapping):  # as transformers' models return it
            states = {name: name for name in takes if name in returned}
        else:
            count = len(returned) - 1 if isinstance(returned, tuple | list) else 0
            if 0 < count <= len(takes):
                states = dict(zip(takes, range(1, count + 1), strict=False))
        leaves = nested_leaves(returned)
        if states and not all(isinstance(leaf, np.ndarray) for leaf in leaves):
            return SteppedFunction(subject, states)
        if states:  # NumPy's functions are watched through the arrays that they are given
            return Stepped(subject, states)
    outputs = run_unwatched(subject.recorder(arrays))
    # the first output is what is compared: a state of its shape would be taken for it
    free, found = list(range(1, len(outputs))), dict[str, int]()
    for name in (name for name in arrays if name not in cut):
        like = [n for n in free if _alike(arrays[name], outputs[n])]
        if like:
            found[name] = like[0]
            free.remove(like[0])
    if not found:
        why = f"none of its outputs ({len(outputs)}) is what an input of it takes"
        raise InputError("at", text, why, f"{STATEFUL}; or chunks:C without a state")
    return Stepped(subject, found)


def _names(subject: FunctionSubject) -> list[str]:
    return [each.name for each in parameters(subject.function)]


def _values(subject: FunctionSubject, arrays: Arrays) -> dict[str, Any]:
    """What it is called with, by the names of its parameters."""
    names = _names(subject)
    return subject.values(by_name(names, arrays)[0] if len(arrays) <= len(names) else arrays)


def _alike(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype
