"""JAX, watched as it runs eagerly: each primitive behind its execution, programs as one and inside.

A trace in the place of JAX's own runs the same compiled kernels and sees concrete values, so code
that depends on them works too. A function under ``jax.jit`` is one program. It is looked into,
equation by equation, if that gives the bits that the program gives; its results are always the
program's own. Programs that compute one thing, as most of ``jax.numpy`` are, are that operation.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from math import prod
from string import ascii_lowercase
from typing import Any

import jax
import numpy as np

from probe.case.errors import InputError
from probe.order import semantics as s
from probe.order.semantics import Call, Each, Meaning, Passes, Unknown
from probe.record import jax_programs as programs
from probe.record.contract import CONSTANT, INPUT, WEIGHT, Operation, Seen, Visit
from probe.record.recording import array_digest

try:
    from jax._src import array, core, source_info_util

    Base: Any = core.EvalTrace
    ARRAY = array.ArrayImpl
except (ImportError, AttributeError):  # another release
    Base = None


class JaxRecorder:
    """A function of no arguments that computes with JAX; arrays that it closes over are its inputs.

    ``decisions``: how each program of a run, in order, is looked into: "equations", by the values
    that it also returns (``OpenedProgram``), or "" for not at all.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        if Base is None or not hasattr(core, "set_current_trace"):
            why = "its operations can't be recorded with this release"
            raise InputError("jax", jax.__version__, why, "install jax 0.5 or newer")
        self.function = function
        threads = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC")
        device = jax.devices()[0]
        where = "" if device.platform == "cpu" else f"@{device.platform}:{device.id}"
        self.target = f"jax{where}{f',threads={threads}' if threads else ''}"
        self.named = dict(_closed_over(function))
        self.decisions: dict[int, Any] = {}
        self.programs: dict[str, None] = {}

    @property
    def note(self) -> str:
        """Which programs can't be looked into."""
        if not self.programs:
            return ""
        names = ", ".join(self.programs)
        return f"compiled as one operation: {names}; looking inside would change the bits it gives"

    def plain(self) -> list[np.ndarray]:
        return [_jax_bits(leaf) for leaf in _array_leaves(self.function())]

    def record(self, visit: Visit) -> list[Seen]:
        trace = _Trace(self, visit)
        with core.set_current_trace(trace):
            result = self.function()
        return [trace.values.seen(leaf) for leaf in _array_leaves(result)]


def _array_leaves(returned: Any) -> list[Any]:
    """What a function returned, but for texts."""
    leaves = jax.tree_util.tree_leaves(returned)
    return [leaf for leaf in leaves if not isinstance(leaf, str | bytes)]


def _jax_bits(value: Any) -> np.ndarray:
    """An array's bits as a container array; a number of Python's in the format that JAX
    gives it."""
    array = value if _is_array(value) else np.asarray(value, core.typeof(value).dtype)
    return programs.bits_in(array)


def _is_array(value: Any) -> bool:
    return type(value) is ARRAY or isinstance(value, jax.Array)


def _closed_over(function: Any, depth: int = 2) -> Iterator[tuple[int, tuple[str, str]]]:
    """(id, (role, name)) of the arrays that a function closes over.

    Those in a dictionary or another structure are taken for weights. What is taken wrongly is
    compared all the same: the role only says what is kept while comparing.
    """
    held = dict[str, Any]()
    if isinstance(function, functools.partial):
        held = {"function": function.func, **function.keywords}
        held |= {f"argument{n}": value for n, value in enumerate(function.args)}
    elif inspect.isfunction(function):
        try:
            closed = inspect.getclosurevars(function)
        except ValueError:  # a variable of its own isn't assigned yet
            return
        kinds = jax.Array | np.ndarray | dict
        held = {name: each for name, each in closed.globals.items() if isinstance(each, kinds)}
        held |= closed.nonlocals
        held |= zip(function.__code__.co_varnames, function.__defaults__ or (), strict=False)
    for name, value in held.items():
        if depth and callable(value) and hasattr(value, "__code__"):
            yield from _closed_over(value, depth - 1)
            continue
        try:
            flat, _ = jax.tree_util.tree_flatten_with_path(value)
        except Exception:  # a structure of the user's that can't be taken apart: inputs
            continue
        for path, leaf in flat:
            if isinstance(leaf, jax.Array | np.ndarray):
                weight = path and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
                label = name + jax.tree_util.keystr(path)
                yield id(leaf), (WEIGHT if weight else INPUT, label)


class _RunValues:
    """Which values of a run are the same; it keeps none."""

    def __init__(self, named: dict[int, tuple[str, str]]) -> None:
        self.named = named
        self.live: dict[int, tuple[Any, int]] = {}
        self.count = 0

    def key(self, value: Any) -> Hashable:
        """The same for the same value; numbers and NumPy's arrays by their content."""
        if not _is_array(value):
            array = _jax_bits(value)
            return ("content", array.dtype.str, array.shape, array_digest(array))
        met = self.live.get(id(value))
        if met is None or met[0]() is not value:
            self.count += 1
            self.live[id(value)] = met = weakref.ref(value), self.count
        return met[1]

    def either(self, args: Sequence[Any]) -> bool:
        """Whether any of two factors could be the weight: nothing has named or computed the
        first, as where ``vmap`` puts the input second. Both are inputs then, if they are small."""
        first, *further = args
        unknown = id(first) not in self.named and id(first) not in self.live
        return unknown and bool(further) and prod(np.shape(further[0])) <= SMALL

    def seen(self, value: Any, weight: bool = False) -> Seen:
        """The value as the contract has it; ``weight``: one where nothing else is known."""
        role, name = self.named.get(id(value), (INPUT, ""))
        if weight and role == INPUT and id(value) not in self.live:
            role = WEIGHT
        if not _is_array(value) and np.ndim(value) == 0:
            role = CONSTANT
        shape, dtype = programs.aval_of(core.typeof(value))
        # NumPy has no such numbers: their bits are compared, as bytes
        if dtype.startswith(("float8_", "float6_", "float4_")):
            dtype = "uint8"
        return Seen(self.key(value), shape, dtype, lambda: _jax_bits(value), role, name)


class _Trace(Base):  # type: ignore[misc]
    """Runs primitives as JAX does, and reports each."""

    def __init__(self, recorder: JaxRecorder, visit: Visit) -> None:
        super().__init__()
        self.recorder, self.visit = recorder, visit
        self.values = _RunValues(recorder.named)
        self.calls = 0
        self.depth, self.products = 0, set[Hashable]()

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        result = core.eval_trace.process_primitive(primitive, args, params)
        gives = list(result) if primitive.multiple_results else [result]
        if programs.inner(primitive, params) is not None or primitive.name in programs.LOOPS:
            self._program(primitive, list(args), params, gives)
        else:
            ins, outs = ([*map(core.typeof, values)] for values in (args, gives))
            call = programs.PrimitiveCall(primitive, params, ins)
            self._visit(call, self._reads(primitive, args), gives, meaning(call.table_call(outs)))
        return result

    def stage_value(self, val: Any) -> Any:
        """A value as an array; nothing is computed."""
        return core.eval_trace.stage_value(val)

    # the function itself runs: its derivative is not needed here

    def process_custom_jvp_call(self, primitive: Any, fun: Any, *more: Any, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*more[1])

    def process_custom_vjp_call(self, primitive: Any, fun: Any, *more: Any, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*more[2])

    def _reads(self, primitive: Any, args: Sequence[Any]) -> list[Seen]:
        """What a primitive reads, the second of a product's factors as its weights."""
        weighs = primitive.name in WEIGHING and not self.values.either(args)
        return [self.values.seen(value, weighs and n == 1) for n, value in enumerate(args)]

    def _program(self, primitive: Any, args: list[Any], params: Any, gives: list[Any]) -> None:
        """Reports what is inside a program if it can be looked into, then the program."""
        within, behind = programs.inner(primitive, params), programs.constants(params)
        call = programs.PrimitiveCall(primitive, params, [*map(core.typeof, args)])
        equation = None if within is None else single_equation(programs.flat_of(within))
        reads = self._reads(primitive if equation is None else equation.native, [*args, *behind])
        if equation is not None and not behind:
            means = program_meaning(within, equation)
            self._visit(call, reads, gives, means, equation.op, words=equation.words)
            return
        name = f"{primitive.name} {params['name']}" if "name" in params else primitive.name
        number, self.calls = self.calls, self.calls + 1
        decisions, last = self.recorder.decisions, None
        if number not in decisions:
            decisions[number] = self._decision(primitive, args, params, gives)
            self.recorder.programs |= {} if decisions[number] else {name: None}
        decision = decisions[number]
        self.depth += 1
        if decision == "equations":
            with core.set_current_trace(self):
                last = programs.unrolled(primitive, params, args)
        elif isinstance(decision, programs.OpenedProgram):
            last = self._inside(decision, args)
        self.depth -= 1
        self.products = self.products if self.depth else set()
        if last is None:
            self._visit(call, reads, gives, Unknown(AS_ONE), name)
            return
        reads += [self.values.seen(value) for value in last]
        passed = tuple(range(len(reads) - len(last), len(reads)))
        self._visit(call, reads, gives, Passes(passed), name)

    def _inside(self, opened: programs.OpenedProgram, args: list[Any]) -> list[Any]:
        """Reports the equations of a compiled program from the values that it also returns."""
        values = opened.values(args)
        for equation in opened.program.equations:
            gives = [values[n] for n in equation.gives]
            reads = [self.values.seen(opened.read(each, values)) for each in equation.slots]
            if equation.op in programs.LOOPS:
                reads += [self.values.seen(each) for each in programs.constants(equation.words)]
                means: Meaning = Unknown(LOOP)
            else:
                means = meaning(equation.called())
            path = "/".join(filter(None, (self._path(), equation.path)))
            call = programs.PrimitiveCall(equation.native, equation.words, equation.ins)
            self._visit(call, reads, gives, means, path=path)
        return opened.results(values)

    @staticmethod
    def _decision(primitive: Any, args: Any, params: Any, gives: list[Any]) -> Any:
        """How a program is looked into, as of ``JaxRecorder.decisions``: so that it gives its
        bits."""
        if _gives_bits(lambda: programs.unrolled(primitive, params, args), gives):
            return "equations"
        if (within := programs.inner(primitive, params)) is not None:
            opened = programs.OpenedProgram(programs.flat_of(within))
            if _gives_bits(lambda: opened.results(opened.values(args)), gives):
                return opened
        return ""

    @staticmethod
    def _path() -> str:
        return str(source_info_util.current_name_stack())

    def _visit(
        self,
        call: programs.PrimitiveCall,
        reads: list[Seen],
        gives: list[Any],
        means: Meaning,
        op: str = "",
        path: str = "",
        words: Any = None,
    ) -> None:
        """Reports a call. ``op``, ``path`` and ``words``: where they are not the primitive's name,
        the trace's place and the call's parameters."""
        results = [self.values.seen(value) for value in gives]
        means = self._contracted(means, reads, results) if self.depth else means
        attributes = programs.params_of(call.params if words is None else words)
        ends = op or call.primitive.name, path or self._path(), reads, results
        self.visit(Operation(*ends, means, attributes, call, call.lines(), IMPORTS))

    def _contracted(self, means: Meaning, reads: list[Seen], results: list[Seen]) -> Meaning:
        """What an operation computes that a compiled program has inside: LLVM may fuse a product
        and the addition behind it (XLA's CPU compiler sets ``FPOpFusion::Fast``), so that this sum
        isn't rounded as IEEE 754 has it, though these numbers may not show it."""
        word = getattr(means, "word", "")
        product = any(value.key in self.products for value in reads)
        if isinstance(means, Each) and word in ("add", "subtract") and product:
            return replace(means, approximate=True)
        if word in ("multiply", "square") or (product and (moves(means) or word == "negative")):
            self.products.update(value.key for value in results)
        return means


SEVERAL = "it computes several things in one"
AS_ONE = "a compiled program that gives other bits where its equations run one by one"
LOOP = "a loop inside of a compiled program"

# Elements up to which either of two factors may be the weight.
SMALL = 1 << 20

# Operations whose second input is taken for weights where no operation gave it.
WEIGHING = ("dot_general", "conv_general_dilated")

IMPORTS = ("import jax", "import jax.numpy as jnp", "from jax import lax")


def _gives_bits(run: Callable[[], list[Any] | None], gives: list[Any]) -> bool:
    """Whether another way to compute a program's results gives its bits."""
    try:
        results = run()
    except Exception:  # whatever a program's equations can't do apart
        return False
    return results is not None and all(
        array_digest(_jax_bits(result)) == array_digest(_jax_bits(given))
        for result, given in zip(results, gives, strict=True)
    )


# What watches a function of this library, see ``probe.record.subject``.
RECORDER = JaxRecorder


# what primitives compute

# What each primitive computes.
TABLE = s.OperationTable()

SAME = "copy stop_gradient sharding_constraint name reshard pvary random_wrap random_unwrap "
SAME += "random_clone optimization_barrier device_put"
REDUCES = s.word_list("reduce_sum:sum reduce_prod:prod")


# sums and windows


@TABLE.row("dot_general")
def _dot_general(c: Call) -> s.Meaning:
    sums, batch = c["dimension_numbers"]
    letters = iter(ascii_lowercase)
    texts: tuple[dict[int, str], dict[int, str]] = {}, {}
    for pairs in (batch, sums):
        for left, right in zip(*pairs, strict=True):
            texts[0][left] = texts[1][right] = next(letters)
    out = [texts[0][axis] for axis in batch[0]]
    for slot, text in enumerate(texts):
        free = [axis for axis in range(c.rank(slot)) if axis not in text]
        text.update(zip(free, letters, strict=False))
        out += [text[axis] for axis in free]
    left_text, right_text = ("".join(text[axis] for axis in sorted(text)) for text in texts)
    return s.Contracts(f"{left_text},{right_text}->{''.join(out)}")


@TABLE.row("conv_general_dilated")
def _lax_conv(c: Call) -> s.Meaning:
    lhs, weights, out = (tuple(axes) for axes in c["dimension_numbers"])
    apart, stride, dilation = (
        tuple(c[name]) for name in ("lhs_dilation", "window_strides", "rhs_dilation")
    )
    transposed = set(apart) != {1}
    if lhs != out or c["batch_group_count"] > 1 or (transposed and set(stride) != {1}):
        return s.Unknown("a gradient's convolution, or one in another layout")
    kernel = tuple(c.shape(1)[axis] for axis in weights[2:])
    padding = tuple((int(low), int(high)) for low, high in c["padding"])
    if transposed:  # taps in the opposite order
        ends = zip(kernel, dilation, padding, strict=True)
        padding = tuple(((size - 1) * step - low,) * 2 for size, step, (low, _) in ends)
        stride = apart
    return s.Windows(
        out[2:],
        out[1],
        kernel,
        stride,
        dilation,
        padding,
        kind="transposed" if transposed else "convolution",
        groups=c["feature_group_count"],
        weights=(*weights[2:], weights[1], weights[0]),
        flipped=transposed,
    )


def _lax_pool(kind: str) -> s.Row:
    def row(c: Call) -> s.Meaning:
        names = "window_dimensions", "window_strides", "padding"
        ends = zip(*(c[name] for name in names), c.shape(), c.gives[0], strict=True)
        frames = [(size, step, *pads, a - b) for size, step, pads, a, b in ends]
        slid = [axis for axis, frame in enumerate(frames) if frame != (1, 1, 0, 0, 0)]
        still = [axis for axis in range(c.rank()) if axis not in slid]
        if set(c["base_dilation"]) - {1} or not still:
            return s.Unknown("its window slides between elements, or over all axes")
        kernel, stride, dilation, padding = (
            tuple(c[name][axis] for axis in slid)
            for name in ("window_dimensions", "window_strides", "window_dilation", "padding")
        )
        padding = tuple((int(low), int(high)) for low, high in padding)
        frame = tuple(slid), still[-1], kernel, stride, dilation, padding
        return s.Windows(*frame, kind=kind, reads=(0,))

    return row


TABLE |= {
    **s.rows_for(
        "threefry2x32 clz mulhi reduce_precision eq_to le_to lt_to", lambda c: s.function(c.op)
    ),
    "max": lambda c: s.function("maximum"),
    "min": lambda c: s.function("minimum"),
    **s.rows_for(
        SAME, lambda c: s.Same() if len(c.gives) == 1 else s.Passes(tuple(range(c.count)))
    ),
    # XLA multiplies by the reciprocal where it knows the divisor
    "div": lambda c: s.function("divide") if "int" in c.dtype() else s.approximate("divide"),
    "bitcast_convert_type": lambda c: s.bitcast(c.dtype(), c.dtypes[0], c.shape() == c.gives[0]),
    "integer_pow": lambda c: s.power(c["y"]),
    "convert_element_type": lambda c: s.cast(c.dtype(), c.dtypes[0]),
    **s.rows_for(REDUCES, lambda c, word: s.reduced(word, c["axes"])),
    "reduce_window_sum": _lax_pool("sum"),
    "reduce_window_max": _lax_pool("max"),
    **s.rows_for("scatter reduce_window_min", lambda c: s.Moves()),
    "reshape": lambda c: s.Unknown("reshape") if c.get("dimensions") else s.Reshapes(),
    "squeeze": lambda c: s.Reshapes(),
    "transpose": lambda c: s.transpose(c["permutation"]),
}


def meaning(c: Call) -> s.Meaning:
    """What a primitive computes; ``Unknown`` where no row of the table says it."""
    return s.by_table(TABLE, c)


# programs


def moves(means: s.Meaning) -> bool:
    """Whether elements are only moved, or converted to another format."""
    if isinstance(means, s.Steps):
        return all(moves(step.meaning) for step in means.steps)
    each = isinstance(means, s.Each) and means.word != "cast"
    return means.exact and not each and not isinstance(means, s.Unknown)


def single_equation(program: programs.FlatProgram) -> programs.Equation | None:
    """The one equation of a program that computes; where all move, one that chooses or counts
    elements, such as a maximum, or the last. None for several, and for a sum that others bring into
    place: a program that has to be looked into."""
    computing = [eqn for eqn in program.equations if not moves(meaning(eqn.called()))]
    if len(computing) > 1 or any(eqn.op in programs.LOOPS for eqn in computing):
        return None
    if any(meaning(eqn.called()).sums for eqn in computing) and not program.direct:
        return None
    choosing = (eqn for eqn in program.equations if eqn.op.startswith(("reduce_", "arg", "top_k")))
    computing = computing or [*choosing][:1] or program.equations[-1:]
    return computing[0] if computing else None


def program_meaning(within: Any, eqn: programs.Equation) -> s.Meaning:
    """What a program computes by its only equation that computes: itself, or one of elements and
    numbers that are spread."""
    program, means = programs.flat_of(within), meaning(eqn.called())
    if program.direct:
        return means
    last = program.equations[-1] is eqn and list(eqn.gives) == program.outputs
    spread = all(each is eqn or each.op == "broadcast_in_dim" for each in program.equations)
    shapes = {aval.shape for aval in program.ins} <= {(), eqn.outs[0].shape}
    plain = isinstance(means, s.Each) and not program.consts
    return means if plain and last and spread and shapes else s.Unknown(SEVERAL)
