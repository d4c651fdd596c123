"""Writes an operation in a library's own words: lines that are run exactly as they are printed.

A library's ``emit`` gives the lines of a spec; the worker compiles and runs these very lines,
bug reports print them. Python 3.6 runs this file.
"""

import functools
import hashlib
import linecache
import math
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import numpy as np

from probe.case import floats
from probe.case.geometry import BY_SIZE
from probe.case.operation import OPERATIONS, operand_names, operation_of_spec, windows_of_spec
from probe.targets.backends.contract import (
    Backend,
    Operator,
    OutOfMemory,
    Unavailable,
    Unsupported,
    declined,
    pool_kind,
)

Lines = Tuple[str, ...]

# What general errors of libraries say where they could not allocate.
SHORTAGES = (
    *("can't allocate memory", "Failed to allocate memory", "Insufficient memory"),
    *("bad_alloc", "RESOURCE_EXHAUSTED"),
)


class Source(NamedTuple):
    """Lines of an operation. Stages share their names; each runs as often as it is said here.

    ``make``      once, before there are operands: a function that is traced, a layer
    ``enter``     for each input: from the NumPy array ``x`` (batch, *spatial, channels) to the
                  library's value ``x``
    ``load``      for each set of operands: from the NumPy arrays ``w`` and ``b`` to the
                  library's; these names may not be assigned to in ``run``
    ``run``       from the value ``x`` to the value ``y``; this alone is timed
    ``leave``     an expression of ``y``: the NumPy array (batch, *spatial, filters)
    ``standard``  modules that the lines need beside NumPy and the library: ``math``
    ``held``      names of texts and bytes that stand for a model in a format of its own; ``hold``
                  makes them of the operands, ``{name: array}``, before ``load``

    bfloat16 enters and leaves as float32, whose values it holds exactly.
    """

    run: Lines
    leave: str = "y"
    enter: Lines = ()
    load: Lines = ()
    make: Lines = ()
    standard: Lines = ()
    held: Lines = ()
    hold: Optional[Callable] = None


class Writing(Backend):
    """A library described by what its users write: it emits lines, which run as they are printed.

    ``title``           its name as users write it
    ``version_text``    the expression of its version in a script
    ``standard``        modules of Python's own, or statements that import of them, which that needs
    ``imports``         import statements, after NumPy's
    ``modules``         distributions that a script needs beside NumPy
    ``operations``      the ops of specs that it has, ``dtypes`` their formats,
    ``undilated``       kinds of pools that it has without dilation alone
    ``holds_weights``   whether ``load`` puts operands into what ``make`` made, such as layers
    ``refusals``        exceptions by which it refuses an operator, and
    ``exhausted``       by which it says that memory is short: set when it is started
    """

    title = ""
    version_text = ""
    standard: Lines = ()
    imports: Lines = ()
    modules: Lines = ()
    operations: Lines = tuple(OPERATIONS)
    dtypes: Lines = tuple(floats.FORMATS)
    undilated: Lines = ()
    constant_weights = False
    holds_weights = False
    refusals: Tuple[Any, ...] = ()
    exhausted: Tuple[Any, ...] = (MemoryError,)

    def described(self, switches, device, version):
        """Itself, ready to emit for these switches, a device and a release; imports nothing."""
        self.switches, self.device, self.version = dict(switches), device, version
        return self

    def opened(self, switches, device, version):
        """The same in the process where the lines run: imports, and what applies the switches."""
        self.described(switches, device, version)
        self.namespace: Dict[str, Any] = {"np": np}
        exec("\n".join(self.imports + self.setup()), self.namespace)

    def facts(self, **more):
        """What every library publishes of itself once it is opened; ``threads``: the switch's."""
        threads = int(self.switches["threads"]) if "threads" in self.switches else None
        facts = {"library": self.name, "library_version": self.version, "threads": threads}
        return dict(facts, numpy_version=np.__version__, devices=[self.device], **more)

    def setup(self):
        """Lines that apply the switches which are not variables, before anything is computed."""
        return ()

    def emit(self, layer, shapes):
        """The Source of a spec for inputs of these Shapes. Raises Unsupported, with the reason.

        It may read ``switches``, ``device`` and ``version``, and imports no library.
        """
        raise Unsupported("%s has no lines for it" % self.name)

    def check(self, layer):
        """Raises Unsupported for what the library has at no size, as soon as it is asked for."""
        for name, had in (("op", self.operations), ("dtype", self.dtypes)):
            if layer[name] not in had:
                lacking = self.title, ", ".join(had)
                raise Unsupported("%s=%s: %s has %s" % ((name, layer[name]) + lacking))
        if pool_kind(layer) in self.undilated and set(layer["dilation"]) != {1}:
            raise Unsupported("dilation: %s's pooling has none" % self.title)

    def shown(self, layer, shapes):
        """The lines from ``x`` to ``y`` for a reader, without what only compiles or waits."""
        return self.emit(layer, shapes).run

    def watched(self, spec, shapes, **names):
        """Runs an operation once, of zeros, with other things under names that its lines use.

        ``shapes``: of x and w as containers.
        """
        dtype = floats.container_of_format(spec["dtype"])
        zeros = {name: np.zeros(shape, dtype) for name, shape in shapes.items()}
        zeros["b"] = np.zeros(spec["filters"], dtype)
        namespace, self.namespace = self.namespace, dict(self.namespace, **names)
        try:
            operator = self.operator(spec).at(shapes["x"])
            operator.bind({name: zeros[name] for name in operator.names})(
                operator.input(zeros["x"])
            )
        finally:
            self.namespace = namespace

    def operator(self, spec):
        return EmittedOperator(self, spec)

    def release(self):
        """(major, minor) of the version; later than any where none is given."""
        return major_minor(self.version or "999")

    def said(self, error):
        """What an error of the library says, in one line of at most 300 characters."""
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

    def guarded(self, call):
        """``call`` with the library's refusals as Unsupported, a shortage as OutOfMemory."""
        refusals, exhausted = self.refusals, self.exhausted

        def guarded(*arguments):
            try:
                return call(*arguments)
            except exhausted as error:
                raise OutOfMemory(self.said(error)) from None
            except Exception as error:  # sorted by kind below, and raised on
                refused = isinstance(error, refusals)
                if refused and any(text in str(error) for text in SHORTAGES):
                    raise OutOfMemory(self.said(error)) from None
                if not refused and not declined(error):
                    raise
                raise Unsupported("%s refuses: %s" % (self.title, self.said(error))) from None

        return guarded


def refuse_gpu_keys(keys, switches, device, gpu):
    """Raises Unavailable where a switch of GPUs' kernels is set for a CPU. ``gpu``: a device."""
    for key in keys:
        if key in switches and device == "cpu":
            raise Unavailable(f"{key} is a switch of the GPU's kernels: use @{gpu}, or no {key}")


def major_minor(version):
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2]]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


# Matrix products and sums, whose arrays are handed over as users of the libraries write them:
#
# ``matmul``  x (length, in_channels) @ w (in_channels, filters); with a batch of more than one,
#             x is a stack of matrices that share w
# ``dot``     the same, with one row or one column as a vector: dot product, matrix times vector
# ``dense``   x (batch, in_channels) @ w (in_channels, filters), as layers do it
# ``sum``     x (batch, length, in_channels) over its last axis; the weights, all 1, go nowhere
#
# Of every other operator the functions below give the names as they are.
PRODUCT_OPS = ("matmul", "dot", "sum", "dense")


def left_expression(spec, shapes):
    """The expression of x (batch, length, in_channels) as it is written in the call."""
    if spec["op"] not in ("matmul", "dot") or shapes.stacked:
        return "x"
    return "x[0, 0]" if spec["op"] == "dot" and shapes.shape[1] == 1 else "x[0]"


def right_expression(spec, w):
    """The expression of w (1, in_channels, filters), of the name given, in the call."""
    if spec["op"] not in ("matmul", "dot"):
        return w
    return w + ("[0, :, 0]" if spec["op"] == "dot" and spec["filters"] == 1 else "[0]")


def is_vector(array):
    """Whether an expression of these functions is a vector, which can't be turned."""
    return "," in array


def result_expression(spec, y, shapes):
    """The expression of the result as (batch, length, filters); of ``dense`` (batch, filters)."""
    if spec["op"] == "sum":
        return y + "[..., None]"
    if spec["op"] not in ("matmul", "dot") or shapes.stacked:
        return y
    return "%s.reshape(1, -1, %d)" % (y, spec["filters"])


class InputShape:
    """Sizes of an operation's input, told on demand.

    ``size_read`` is then true: the lines hold for inputs of this shape alone. Lines that ask for
    nothing but padding that no size decides hold for inputs of every size.
    """

    def __init__(self, layer, shape):
        self.layer, self._shape, self.size_read = layer, tuple(shape), False
        self.rank, self.stacked = len(shape) - 2, shape[0] > 1

    @property
    def shape(self):
        """The input's: (batch, *spatial, channels)."""
        self.size_read = True
        return self._shape

    @property
    def around(self):
        """Zeros before and after each axis: a list of pairs."""
        if self.layer["padding"] in BY_SIZE and set(self.layer["stride"]) != {1}:
            self.size_read = True
        return windows_of_spec(self.layer).pads(self._shape[1:-1])

    @property
    def spatial(self):
        return self.shape[1:-1]


def straight(backend, layer, shapes):
    """The Source of a library whose operations are calls, a line or a few for each.

    ``backend`` has ``enter(layer, shapes)``, lines; ``operand(layer, name)``, lines that assign to
    ``w`` or ``b`` what the library's call takes; ``lines(layer, operands, shapes)``, lines from the
    name ``x``, which they may assign to, to the name ``y``, with the expressions of operands by
    name; and ``leave(layer, shapes)``.
    """
    names = operand_names(layer)
    return Source(
        run=tuple(backend.lines(layer, {name: name for name in names}, shapes)),
        leave=backend.leave(layer, shapes),
        enter=tuple(backend.enter(layer, shapes)),
        load=tuple(line for name in names for line in backend.operand(layer, name)),
    )


def channels_first_weights(layer):
    """The expression of w (*kernel, channels/groups, filters) as (filters, channels/groups,
    *kernel); of a transposed convolution as (channels, filters/groups, *kernel)."""
    if not operation_of_spec(layer).transposed:
        return "np.moveaxis(w, (-1, -2), (0, 1))"
    w, groups, (channels, filters, *kernel) = "w", layer["groups"], weight_sizes(layer)
    if groups == 1:
        return "np.moveaxis(w, (-2, -1), (0, 1))"
    apart = (*kernel, channels // groups, groups, filters)
    w = "np.moveaxis(w.reshape(%s), (-2, -3, -1), (0, 1, 2))" % (apart,)
    return "%s.reshape(%s)" % (w, (channels, filters, *kernel))


def weight_sizes(layer):
    """The sizes of a layer's weights where channels come first."""
    filters, channels = layer["filters"], layer["in_channels"]
    if layer["op"] == "dense":
        return [filters, channels]
    if layer["op"] in PRODUCT_OPS:
        return [channels] + [filters] * (layer["op"] != "dot" or filters > 1)
    if operation_of_spec(layer).transposed:
        return [channels, filters // layer["groups"], *layer["kernel"]]
    return [filters, channels // layer["groups"], *layer["kernel"]]


class CompiledSource(Operator):
    """A Source as functions: ``input``, ``bind``, ``output``, see ``contract.Operator``."""

    def __init__(self, backend, spec, source):
        Operator.__init__(self, spec)
        self.source, self.backend = source, backend
        self.constant_weights = backend.constant_weights
        self.dtype, self.names = spec["dtype"], operand_names(spec)
        stages = backend.guarded(compiled_stages)(source, self.names, backend.namespace)
        self._enter, self._load, self._leave = stages

    def input(self, x):
        return self._enter(_entering(x, self.dtype))

    def bind(self, operands):
        wanted = [np.ascontiguousarray(operands[name]) for name in self.names]
        arrays, source = [_entering(array, self.dtype) for array in wanted], self.source
        if source.hold is not None:
            held = source.hold(dict(zip(self.names, arrays)))
            arrays += [held[name] for name in source.held]
        load = self.backend.guarded(self._load)
        run = self.backend.guarded(load(*arrays))
        if not self.backend.holds_weights:
            return run
        self.loaded = run

        def reloaded(*values):
            if self.loaded is not run:  # other operands came meanwhile
                load(*arrays)
                self.loaded = run
            return run(*values)

        return reloaded

    def output(self, y):
        y = np.ascontiguousarray(self._leave(y))
        return floats.round_float32_to(y, self.dtype) if self.dtype == "bfloat16" else y


def _entering(array, dtype):
    return floats.widen(array, dtype).astype(np.float32) if dtype == "bfloat16" else array


class EmittedOperator(Operator):
    """A spec on a library that emits its lines: ``at`` gives them for inputs of one shape."""

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        backend.check(spec)
        self.backend, self.constant_weights = backend, backend.constant_weights
        # lines that hold for inputs of every size, by what lines may differ in
        self.for_every_size = {}
        self.by_shape = functools.lru_cache(64)(self._for_shape)
        self.by_source = functools.lru_cache(16)(functools.partial(CompiledSource, backend, spec))

    def at(self, shape):
        """The CompiledSource for inputs (batch, *spatial, channels) of this shape.
        Raises Unsupported."""
        return self.for_every_size.get(_shape_class(shape)) or self.by_shape(tuple(shape))

    def _for_shape(self, shape):
        shapes = InputShape(self.spec, shape)
        source = self.backend.emit(self.spec, shapes)
        compiled = self.by_source(source)
        # nothing was asked of the size, so these lines hold for all of them
        if not shapes.size_read:
            self.for_every_size[_shape_class(shape)] = compiled
        return compiled


def _shape_class(shape):
    """What ``InputShape`` tells unasked: the number of axes, and whether x is a stack."""
    return len(shape), shape[0] > 1


def compiled_stages(source, names, namespace):
    """The functions ``enter(x)``, ``load(*operands)``, which gives ``run(x)``, and ``leave(y)``."""
    run = _function_lines("run", ["x"], source.run, "y")
    parameters = ", ".join([*names, *source.held])
    lines = list(source.make)
    lines += _function_lines("enter", ["x"], source.enter, "x")
    lines += _function_lines("load", [parameters], source.load + tuple(run), "run")
    lines += _function_lines("leave", ["y"], (), source.leave)
    text = "\n".join(["import %s" % name for name in source.standard] + lines) + "\n"
    functions: Dict[str, Callable] = dict(namespace)
    exec(_compiled_text(text), functions)
    return functions["enter"], functions["load"], functions["leave"]


# lines of many shapes are the same text
@functools.lru_cache(256)
def _compiled_text(text):
    """Lines compiled, under a name by which tracebacks find them."""
    # tracebacks and inspect find the lines of compiled text in linecache, by this name
    name = "<probe %s>" % hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    return compile(text, name, "exec")


def _function_lines(name, parameters, lines, result):
    head = "def %s(%s):" % (name, ", ".join(parameters))
    return [head, *indented(lines), "    return " + result]


def defined(name, parameters, lines):
    """The lines of a function that returns what its last line assigns to ``y``."""
    *body, last = lines
    head = "def %s(%s):" % (name, ", ".join(parameters))
    return (head, *indented(body + [last.replace("y = ", "return ", 1)]), "")


def indented(lines):
    return tuple("    " + line for line in lines)


def assignment(name, expression):
    """The line that assigns to a name; none where it would assign the name to itself."""
    return [] if expression == name else ["%s = %s" % (name, expression)]


def keywords(words):
    return ", ".join("%s=%s" % pair for pair in words.items())


def one_or_all(entries):
    """``2`` where all axes have the same, else ``(1, 2)``."""
    return str(entries[0]) if len(set(entries)) == 1 else str(tuple(entries))


def number_text(value):
    """A number in Python's words, infinity too."""
    return 'float("%s")' % value if math.isinf(value) else str(value)


class Text(str):
    """An expression in a library's code, of which ``composed_pool`` makes quotients."""

    def __truediv__(self, other):
        return Text("%s / %s" % (self, other))
