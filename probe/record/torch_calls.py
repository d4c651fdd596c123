"""PyTorch's tensors and calls of ATen. Of a tensor: its bits as a container array, how it lies in
memory. Of a call: what its schema says, what runs it alone, how a user writes it, what it computes.

Written with PyTorch 2.13: what it has no public interface for is used here and in ``torch``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tag
from torch.utils._pytree import tree_leaves, tree_map

from probe.case import layout
from probe.case.errors import InputError
from probe.case.layout import BOUNDARY
from probe.order import semantics as s
from probe.order.semantics import Call, Operand
from probe.record.contract import Lines

# bits

NUMBERS = "return tensors of a device that computes, such as the CPU"
# Types of numbers that NumPy has not: their bits are compared, as bytes.
BYTES = {
    kind
    for name, kind in vars(torch).items()
    if ("float8" in name or "float4" in name) and isinstance(kind, torch.dtype)
}


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether a tensor is memory with strides: not sparse, nested or MKL-DNN's."""
    return tensor.layout is torch.strided and not tensor.is_nested


def array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's bits as a container array: a view of its memory where there can be one."""
    plain = tensor.detach()
    if plain.is_nested:
        plain = torch.nested.to_padded_tensor(plain, 0.0)
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    if plain.is_meta:
        raise InputError("function", "a meta tensor", "it has a shape and no numbers", NUMBERS)
    if plain.is_quantized:
        plain = plain.int_repr()
    if plain.dtype == torch.bfloat16 or plain.dtype in BYTES:
        bits = torch.uint16 if plain.dtype == torch.bfloat16 else torch.uint8
        return plain.cpu().contiguous().reshape(-1).view(bits).numpy().reshape(plain.shape)
    return plain.numpy(force=True)  # resolves conjugates, signs, and zeros without memory


def is_among(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    return any(tensor is other for other in others)


def tensors(returned: Any, beside: bool = False) -> list[torch.Tensor]:
    """The tensors in whatever a function returned: in tuples, in dictionaries by key, dataclasses
    and objects with attributes, such as the outputs of transformers' models. ``beside``: numbers
    and arrays of NumPy or another library become tensors, too."""
    # a function that calls itself would keep them until Python looks for cycles, and PyTorch copies
    # a gradient that anybody holds
    found, met, pending = list[torch.Tensor](), set[int](), [returned]
    while pending:
        value, inside = pending.pop(), list[Any]()
        number = isinstance(value, complex | float | int) or hasattr(value, "__array__")
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            # two runs may put the same names in another order
            inside = [value[name] for name in sorted(value, key=str)]
        elif isinstance(value, list | tuple | set | frozenset):
            inside = [*value]
        elif beside and not met and number:
            plain = np.array(value)  # attributes of objects are settings and counters: left out
            if plain.dtype.kind in "biufc":
                found.append(torch.from_numpy(plain))
        elif hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module | type):
            inside = [] if id(value) in met else [vars(value)]
            met.add(id(value))
        pending += reversed(inside)
    return found


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """A tensor's shape; of nested sequences of several lengths that of all of them, padded."""
    return tuple(array(tensor).shape if tensor.is_nested else tensor.shape)


@cache
def dtype(kind: torch.dtype) -> str:
    """A format's name as ``Seen`` has it: NumPy's, or ``bfloat16``."""
    return "uint8" if kind in BYTES else str(kind).removeprefix("torch.")


# how a tensor lies in memory


@dataclass(frozen=True)
class Slot:
    """An operand of a call, without its numbers. ``strides``: None of what isn't memory with
    strides; ``address``: as ``offset_of`` has it; ``number``: which of the arrays that are read,
    None where it isn't read, but written or asked for its shape."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    address: int
    dtype: torch.dtype
    device: torch.device
    number: int | None = None


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of memory from the first to the last that a tensor has."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def offset_of(tensor: torch.Tensor) -> int:
    """Bytes from a multiple of 64 to the beginning of a tensor's memory.

    PyTorch allocates at multiples of 64 on a CPU. Views begin anywhere in an allocation, and what
    others have allocated anywhere at all (NumPy, ``torch.frombuffer``, mapped files: safetensors
    puts weights at multiples of 8). MKL's order of additions depends on it.
    """
    try:
        return tensor.data_ptr() % BOUNDARY
    except RuntimeError:  # it has no memory of its own, as where PyTorch traces
        return 0


def slot_of(tensor: torch.Tensor, number: int | None = None) -> Slot:
    strides = tuple(tensor.stride()) if is_strided(tensor) else None
    shape = tuple(tensor.shape) if not tensor.is_nested else ()
    address = 0 if strides is None else offset_of(tensor)
    return Slot(shape, strides, address, tensor.dtype, tensor.device, number)


def lay_like(bits: np.ndarray, slot: Slot) -> torch.Tensor:
    """A new tensor of these container bits that lies in memory as ``slot`` did, and begins as many
    bytes behind a multiple of 64."""
    values = torch.from_numpy(np.array(bits, order="C"))
    if slot.dtype in BYTES or (slot.dtype == torch.bfloat16 and values.dtype == torch.uint16):
        values = values.view(slot.dtype)
    values = values.to(slot.dtype)
    strides = None if slot.dtype in BYTES else slot.strides
    if strides is None or len(strides) != values.dim() or not values.numel():
        return values.to(slot.device)
    if tuple(values.shape) != slot.shape:
        strides = _no_gaps(tuple(values.shape), strides)
    wide = [1 if step == 0 else n for n, step in zip(values.shape, strides, strict=True)]
    once = values[tuple(slice(n) for n in wide)]
    if wide != list(values.shape) and not torch.equal(once.expand_as(values), values):
        # what was broadcast stays so if it still is the same
        strides, wide, once = _no_gaps(tuple(values.shape), strides), list(values.shape), values
    view = _zeros_at(slot, extent(wide, strides)).as_strided(wide, strides)
    return view.copy_(once).expand(values.shape)


def copied_at(tensor: torch.Tensor, address: int) -> torch.Tensor:
    """A copy with the same strides that begins that many bytes behind a multiple of 64."""
    return lay_like(array(tensor), replace(slot_of(tensor), address=address))


def _zeros_at(slot: Slot, count: int) -> torch.Tensor:
    """So many zeros, at the slot's address."""
    if slot.device.type != "cpu":
        start = slot.address // slot.dtype.itemsize
        return torch.zeros(start + count, dtype=slot.dtype, device=slot.device)[start:]
    zeros = np.zeros(count * slot.dtype.itemsize, np.uint8)
    return torch.from_numpy(layout.copied(zeros, slot.address)).view(slot.dtype)


def _no_gaps(shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, with the axes in the same order in memory."""
    dense, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda a: (strides[a], -a)):
        dense[axis] = step
        step *= max(shape[axis], 1)
    return tuple(dense)


# what a schema says

# An operation's schema: its name, arguments and results.
schema = attrgetter("_schema")

# Operations that overwrite their first argument without reading it, as those that fill it with
# random numbers do.
OVERWRITES = ("copy_", "fill_", "zero_")

# Changes its running means in training alone, which its schema does not say.
SOMETIMES = "native_batch_norm"


class Facts(NamedTuple):
    """What an operation's schema says. ``base``: its name, without ``aten::``; ``defaults``: of its
    arguments, None where there is none; ``writes``: the arguments that it changes, and
    ``writes_only`` those that it doesn't read either; ``random``: it draws; ``empty``: what it
    gives holds nothing yet; ``composite``: PyTorch calls others for it, which can be seen instead;
    ``view``: its result shares memory; ``turns``: it changes how a tensor lies. ``func``: itself,
    so that nothing else gets its id."""

    base: str
    defaults: dict[str, Any]
    writes: frozenset[str]
    writes_only: frozenset[str]
    random: bool
    empty: bool
    composite: bool
    view: bool
    turns: bool
    func: Any


# By the operation's id: its own hash is computed in Python.
FACTS: dict[int, Facts] = {}


def op_facts(func: Any) -> Facts:
    return FACTS.get(id(func)) or FACTS.setdefault(id(func), _facts(func))


def _is_composite(func: Any) -> bool:
    """Whether an operation is no more than others that PyTorch calls for it. Dispatch shows these,
    but under ``torch.inference_mode()``, which leaves out the step that calls them."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    kernel = any(has(func.name(), key) for key in ("CPU", "CUDA"))
    return bool(has(func.name(), "CompositeImplicitAutograd")) and not kernel


def _facts(func: Any) -> Facts:
    base = schema(func).name.removeprefix("aten::")  # others keep their library's name in front
    arguments = schema(func).arguments
    random = Tag.nondeterministic_seeded in func.tags
    empty = "empty" in base
    writes = {a.name for a in arguments if a.alias_info and a.alias_info.is_write}
    only = {a.name for a in arguments if a.name in writes and a.kwarg_only}
    drawn = random and base.endswith("_") and "rrelu" not in base
    if drawn or base in OVERWRITES or base.startswith("new_") or base.endswith("_like"):
        only.add(arguments[0].name)  # or it asks that for its shape and format alone
    defaults = {a.name: a.default_value if a.has_default_value() else None for a in arguments}
    view = bool(getattr(func, "is_view", False))
    flags = (random, empty, _is_composite(func), view, Tag.inplace_view in func.tags)
    return Facts(base, defaults, frozenset(writes), frozenset(only), *flags, func)


def arguments_of(facts: Facts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by name, those that were left out with their defaults."""
    return {**facts.defaults, **dict(zip(facts.defaults, args, strict=False)), **kwargs}


def changed_by(
    facts: Facts, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[bool]]:
    """The tensors that a call changes in place; and of each of its tensors, in order, whether it is
    read."""
    writes = facts.writes
    if facts.base == SOMETIMES and arguments_of(facts, args, kwargs)["training"]:
        writes = frozenset(("running_mean", "running_var"))
    changed, read = [], []
    for name, value in (*zip(facts.defaults, args, strict=False), *kwargs.items()):
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                read.append(name not in facts.writes_only)
                changed += [leaf] if name in writes else []
    return changed, read


@dataclass(frozen=True)
class AtenCall(Call):
    """A call of ATen that has run: its attributes are all arguments by the names of the schema,
    with a ``Slot`` in the place of each array; its operands are the arrays that are read.

    ``func``: what was called; ``tensors``: what it reads; ``drawn``: it draws random numbers.
    """

    func: Any = None
    tensors: Sequence[torch.Tensor] = ()
    drawn: bool = False

    def at(self, slot: int | str) -> int:
        """The place of an argument among the arrays that are read. IndexError: it isn't read."""
        number = self[slot].number if isinstance(slot, str) else slot
        if number is None:
            raise IndexError(slot)
        return int(number)

    def has(self, slot: int | str) -> bool:
        """Whether an argument is given and is an array."""
        return super().has(slot) if isinstance(slot, int) else isinstance(self.get(slot), Slot)

    def shown(self) -> dict[str, Any]:
        """All arguments that aren't arrays, plain enough for JSON."""
        return {
            name: _plain_argument(value)
            for name, value in self.attributes.items()
            if value is not None and not any(isinstance(leaf, Slot) for leaf in tree_leaves(value))
        }

    def more(self) -> dict[str, Any]:
        """The arguments that aren't arrays, nor as by default."""
        usual = {k: _plain_argument(value) for k, value in op_facts(self.func).defaults.items()}
        return {k: value for k, value in self.shown().items() if value != usual.get(k)}


def aten_call(
    func: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    results: Sequence[torch.Tensor],
    returned: int,
    at: Sequence[int],
) -> tuple[AtenCall, Lines | None, RepeatedCall | None]:
    """A call that has run, its lines, and what runs it alone; None where its operands are not plain
    memory, or objects of C++. Neither lines nor what runs it keep a tensor.

    ``results``: what it gave and changed, of which the first so many are ``returned``; ``at``:
    which of these are new values.
    """
    facts, reads, slots = op_facts(func), list[torch.Tensor](), list[Slot]()
    is_read = iter(changed_by(facts, args, kwargs)[1])

    def slot(argument: Any) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        if not next(is_read):
            return slot_of(argument)
        reads.append(argument)
        slots.append(slot_of(argument))
        return slot_of(argument, len(slots) - 1)

    tree = tree_map(slot, (tuple(args), dict(kwargs)))
    attributes = arguments_of(facts, *tree)
    first = dict[int, int]()
    alike = [first.setdefault(id(tensor), n) for n, tensor in enumerate(reads)]
    drawn = facts.random and attributes.get("dropout_p", 1) != 0
    call = AtenCall(
        facts.base if facts.base.startswith("__") else facts.base.removesuffix("_"),
        attributes,
        [Operand(n, shape(tensor), dtype(tensor.dtype)) for n, tensor in enumerate(reads)],
        [shape(results[n]) for n in at],
        [dtype(results[n].dtype) for n in at],
        func=func,
        tensors=reads,
        drawn=drawn,
    )
    if any(operand.strides is None for operand in slots):
        return call, None, None
    state = torch.get_num_threads(), torch.is_grad_enabled()
    again = RepeatedCall(func, tree, slots, alike, at, len(results), *state)
    # what changes how a tensor lies, or operands besides, can't be written with what it gives
    unwritten = facts.turns or len(results) > returned
    unwritten = unwritten or any(isinstance(x, torch.ScriptObject) for x in tree_leaves(tree))
    return call, None if unwritten else again.lines, None if drawn else again


def _plain_argument(value: Any) -> Any:
    """An argument as JSON has it: numbers, texts and lists of them."""
    if isinstance(value, list | tuple):
        return [_plain_argument(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__ if isinstance(value, torch.ScriptObject) else str(value)


# alone


@dataclass(frozen=True)
class RepeatedCall:
    """Runs an operation alone, as it was run: operands in memory, their addresses, and threads.

    ``tree``: its arguments, with a ``Slot`` for each tensor; ``slots``: of what it reads;
    ``alike``: of each operand the first that is the same tensor, which attention asks; ``at``:
    which of ``count`` results are wanted; ``gradients``: whether they were on, as some kernels ask
    that themselves.
    """

    func: Any
    tree: Any
    slots: Sequence[Slot]
    alike: Sequence[int]
    at: Sequence[int]
    count: int
    threads: int
    gradients: bool

    @property
    def addresses(self) -> list[int | None]:
        """Bytes from a multiple of 64 to the beginning of each operand."""
        return [slot.address if slot.strides is not None else None for slot in self.slots]

    def moved(self, addresses: Sequence[int | None]) -> RepeatedCall:
        """The same with operands at other addresses; None: where it is."""
        both = zip(self.slots, addresses, strict=True)
        return replace(self, slots=[s if a is None else replace(s, address=a) for s, a in both])

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        operands = list[torch.Tensor]()
        for n, (bits, slot) in enumerate(zip(arrays, self.slots, strict=True)):
            first = self.alike[n]
            same = first < n and slot == self.slots[first] and np.array_equal(arrays[first], bits)
            operands.append(operands[first] if same else lay_like(bits, slot))

        def filled(leaf: Any) -> Any:
            if not isinstance(leaf, Slot):
                return leaf
            if leaf.number is None:
                return lay_like(np.zeros(leaf.shape), leaf)
            return operands[leaf.number]

        args, kwargs = tree_map(filled, self.tree)
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.set_grad_enabled(self.gradients):
                results = tensors(self.func(*args, **kwargs))
        finally:
            torch.set_num_threads(before)
        into, _ = changed_by(op_facts(self.func), args, kwargs)
        results += [tensor for tensor in into if not is_among(tensor, results)]
        return [np.array(array(results[n])) for n in self.at]

    def lines(self, names: Sequence[str], result: str) -> list[str]:
        """Writes it as a user does."""
        func, at, base = self.func, self.at, op_facts(self.func).base
        # a function of this name in ``torch`` that isn't Python's takes the arguments of the schema
        public = isinstance(getattr(torch, base, None), BuiltinFunctionType) and base[0] != "_"
        public = public and func._overloadname in OVERLOADS
        called = f"torch.{base}" if public else f"torch.ops.{func}"
        args = [_argument_text(argument, names) for argument in self.tree[0]]
        named = self.tree[1].items()
        args += [f"{name}={_argument_text(argument, names)}" for name, argument in named]
        code = [line for both in zip(names, self.slots, strict=True) for line in _laid(*both)]
        code.append(f"{result} = {called}({', '.join(args)})")
        returns = schema(func).returns
        if 1 < len(returns) != self.count:  # among them are numbers, or nothing
            code.append(f"{result} = [y for y in {result} if isinstance(y, torch.Tensor)]")
        several = len(returns) > 1 or any(str(each.type).startswith("List") for each in returns)
        if len(at) == 1 and several:
            code.append(f"{result} = {result}[{at[0]}]")
        elif self.count > 1 and list(at) != list(range(self.count)):
            code.append(f"{result} = [{', '.join(f'{result}[{n}]' for n in at)}]")
        return code


# Overloads that a public function of the same name chooses by its arguments.
OVERLOADS = ("default", "Tensor", "Scalar")


def _laid(name: str, slot: Slot) -> list[str]:
    """Lines that lay an operand into memory as the recorded one lay: none for one that follows from
    its shape and begins at a multiple of 64, as PyTorch's own copies do."""
    shape, strides = tuple(slot.shape), slot.strides
    if strides is None:
        return []
    if not slot.address and torch.empty_strided(shape, strides, device="meta").is_contiguous():
        return []
    if 0 in strides:  # broadcast: what repeats lies in memory once
        index = ", ".join("0:1" if n == 0 else ":" for n in strides)
        wide = tuple(1 if step == 0 else n for n, step in zip(shape, strides, strict=True))
        once = replace(slot, shape=wide, strides=tuple(step or 1 for step in strides))
        expand = f"{name} = {name}.expand({', '.join(map(str, shape))})"
        return [f"{name} = {name}[{index}]", *_laid(name, once), expand]
    if not slot.address:
        made = f"torch.empty_strided({shape}, {strides}, dtype={name}.dtype)"
        return [f"{name} = {made}.copy_({name})"]
    size = extent(shape, strides) * slot.dtype.itemsize
    return [
        f"# {name} begins {slot.address} bytes behind a multiple of {BOUNDARY}",
        f"room = np.zeros({size + 2 * BOUNDARY}, np.uint8)",
        f"room = room[-room.ctypes.data % {BOUNDARY} + {slot.address} :][:{size}]",
        f"room = torch.from_numpy(room).view({name}.dtype)",
        f"{name} = room.as_strided({shape}, {strides}).copy_({name})",
    ]


def _argument_text(value: Any, names: Sequence[str]) -> str:
    if isinstance(value, Slot):
        if value.number is not None:
            return names[value.number]
        return f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_argument_text(each, names) for each in value) + "]"
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, float) and not np.isfinite(value):
        return f'float("{value}")'
    named = isinstance(value, torch.dtype | torch.layout | torch.memory_format)
    return str(value) if named else repr(value)


# what operations compute

# What each operation computes, by its name without ``_`` behind it. Besides, functions of elements
# that PyTorch tags as such.
TABLE = s.OperationTable()

Row = Callable[[AtenCall], s.Meaning]

# Functions of the elements at one place that PyTorch does not call so.
UNTAGGED = set(
    "hardswish _prelu_kernel floor_divide rsub complex polar log_sigmoid_forward".split()
)

# What chooses elements here, and computes with them in another library.
MOVES = (
    "max amax amin min aminmax median mode kthvalue max_unpool2d max_unpool3d adaptive_max_pool2d"
    " adaptive_max_pool3d"
)


def meaning(call: AtenCall) -> s.Meaning:
    """What a call computes; ``Unknown`` if it is not described."""
    if call.drawn:
        return s.Unknown("it draws random numbers")
    # what gives a view has a twin that gives a copy
    name = call.op if call.op in TABLE else call.op.removesuffix("_copy")
    pointwise = torch.Tag.pointwise in call.func.tags or name in UNTAGGED
    row = TABLE.get(name, _aten_function if pointwise else None)
    named = call if name == call.op else replace(call, op=name)
    unknown = s.Unknown(f"{name} is not described in probe")
    means = s.by_table({name: row}, named) if row else s.moved(name) or unknown
    if isinstance(means, s.Unknown) and means.why.startswith(f"{name} "):  # with its overload
        why = means.why.removeprefix(name).replace("attributes", "arguments")
        return s.Unknown(str(call.func).removesuffix(".default") + why)
    return means


# functions of elements

# Functions that clamp, with the arguments that say where.
BOUNDS = {"hardtanh": ("min_val", "max_val"), "clamp": ("min", "max"),
          "clamp_min": ("min", ""), "clamp_max": ("", "max")}  # fmt: skip


def _aten_function(c: AtenCall) -> s.Meaning:
    """A function of elements. Numbers beside arrays are named by where they stand: ``self`` or
    ``other``."""
    if c.op in BOUNDS and not any(map(c.has, BOUNDS[c.op])):
        return s.clip(*(c.get(name) for name in BOUNDS[c.op]))
    if c.op == "gelu":
        return s.gelu(c["approximate"] == "tanh")
    if c.op == "rsub":
        return s.function("subtract", **c.more())
    if c.op == "sqrt":  # PyTorch 2.13 gives a sixth of them one ulp off
        return s.approximate("sqrt")
    if c.op == "pow" and c.has("self") and c.count == 1:
        return s.power(c["exponent"])
    return s.function(c.op, **c.more())


@TABLE.row("clone lift_fresh detach alias to_mkldnn _to_dense _to_sparse _to_copy")
def _aten_same(c: AtenCall) -> s.Meaning:
    after = c.get("dtype")
    return s.Same() if after is None else s.cast(c.dtype(), dtype(after))


@TABLE.row("view _unsafe_view _reshape_alias unsqueeze")
def _viewed(c: AtenCall) -> s.Meaning:
    if c.get("dtype") is not None:
        return s.bitcast(c.dtype(), c.dtypes[0], c.gives[0] == c.shape())
    return s.Reshapes()


@TABLE.row("transpose t")
def _aten_transpose(c: AtenCall) -> s.Meaning:
    axes = list(range(c.rank()))
    first, second = c.get("dim0", 0), c.get("dim1", -1)
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return s.transpose(axes)


# sums of products


def _aten_add(product: Callable[[AtenCall], Any]) -> Row:
    """``beta * self + alpha * product(one, two)``."""

    def row(c: AtenCall) -> s.Meaning:
        return s.gemm(c, replace(product(c), reads=(1, 2)), 0, c["alpha"], c["beta"])

    return row


def _per_axis(numbers: Any, rank: int) -> tuple[int, ...]:
    sizes = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return sizes * rank if len(sizes) == 1 else sizes


def _frame(c: AtenCall, kernel: Sequence[int], transposed: bool = False) -> s.Frame:
    """A window by the arguments that all convolutions and pools have: an empty stride is the
    kernel's."""
    stride, dilation, padding = (
        _per_axis(numbers, len(kernel))
        for numbers in (c["stride"] or kernel, c.get("dilation", 1), c["padding"])
    )
    return s.Frame(tuple(kernel), stride, dilation, tuple((n, n) for n in padding), transposed)


@TABLE.row("convolution _convolution mkldnn_convolution _slow_conv2d_forward")
def _aten_conv(c: AtenCall) -> s.Meaning:
    spatial, turned = tuple(range(2, len(c["weight"].shape))), bool(c.get("transposed", False))
    # a transposed convolution's weights have the input's channels first
    weights = (*spatial, *((0, 1) if turned else (1, 0)))
    frame = _frame(c, c["weight"].shape[2:], turned)
    return s.convolution(frame, weights, c.get("groups", 1), reads=range(c.count))


@TABLE.row("convolution_backward")
def _aten_conv_backward(c: AtenCall) -> s.Meaning:
    spatial = tuple(range(2, len(c["weight"].shape)))
    frame = _frame(c, c["weight"].shape[2:], True)
    of_input: s.Meaning = s.convolution(frame, weights=(*spatial, 0, 1), reads=(0, 2))
    # a weight's gradient is a convolution of the input whose taps are the gradient's positions, and
    # whose channels are the samples
    taps = tuple(c["grad_output"].shape[2:])
    frame = s.Frame(taps, frame.dilation, frame.stride, frame.padding)
    by_sample = s.convolution(frame, weights=(*spatial, 0, 1), reads=(1, 0))
    of_weight: s.Meaning = replace(by_sample, channels=0)
    if c["groups"] != 1 or c["transposed"]:
        of_input = of_weight = s.Unknown("groups, or a transposed convolution")
    of_bias = s.reduced("sum", (0, *spatial))
    gradients = ("input", of_input), ("weight", of_weight), ("bias", of_bias)
    return s.Several(
        tuple(each for each, on in zip(gradients, c["output_mask"], strict=True) if on)
    )


@TABLE.row(
    "max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d"
    " avg_pool1d avg_pool2d avg_pool3d"
)
def _aten_pool(c: AtenCall) -> s.Meaning:
    rank, average = next(int(d) for d in "123" if f"{d}d" in c.op), c.op.startswith("avg")
    if average and c.get("divisor_override") is not None:
        return s.Unknown("it divides by a number of the caller's")
    return s.pool(
        "average" if average else "max",
        _frame(c, _per_axis(c["kernel_size"], rank)),
        counts_padding=average and bool(c["count_include_pad"]),
        lead=c.rank() - rank,  # without a batch there is an axis less
    )


# norms, attention, recurrence


@TABLE.row(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"
    " cudnn_batch_norm _batch_norm_with_update _batch_norm_no_update"
)
def _aten_bn(c: AtenCall) -> s.Meaning:
    training = bool(c.get("training", c.op.endswith("with_update")))
    if training and c.has("running_mean"):
        return s.Unknown("it changes its running means, as in training")
    return s.batch_norm(c.rank(), training)


# sums, means, extremes; whole axes and matrices


def _aten_axes(c: AtenCall) -> tuple[int, ...]:
    dim = c.get("dim") if c.shape() else ()
    return (dim,) if isinstance(dim, int) else tuple(dim or ()) or tuple(range(c.rank()))


TABLE |= {
    "copy": lambda c: s.cast(dtype(c["src"].dtype), dtype(c["self"].dtype)),
    **s.rows_for(
        "_conj _conj_physical conj_physical",
        lambda c: s.function("conj") if c["self"].dtype.is_complex else s.Same(),
    ),
    "_neg_view": lambda c: s.function("negative"),
    # sums of products
    **s.rows_for("mm bmm mv dot vdot", lambda c: s.matmul((c.rank(0), c.rank(1)))),
    **s.rows_for("addmm baddbmm addmv", _aten_add(lambda c: s.matmul((c.rank(1), c.rank(2))))),
    "addbmm": _aten_add(lambda c: s.einsum("bmk,bkn->mn")),
    "addr": _aten_add(lambda c: s.einsum("m,n->mn")),
    "linear": lambda c: s.dense(bias=2 if c.count == 3 else None),
    # whole axes
    **s.rows_for(
        "softmax _softmax _safe_softmax log_softmax _log_softmax",
        lambda c: s.normalised(c.op.removeprefix("_"), (c["dim"],)),
    ),
    **s.rows_for(
        "native_layer_norm _fused_rms_norm",
        lambda c: s.normalised(
            "rms_norm" if "rms" in c.op else "layer_norm",
            range(len(c["input"].shape) - len(c["normalized_shape"]), c.rank()),
        ),
    ),
    "native_group_norm": lambda c: s.normalised("group_norm", range(1, c.rank())),
    **s.rows_for(
        "sum mean prod logsumexp nansum linalg_vector_norm norm count_nonzero var std",
        lambda c: s.reduced(c.op, _aten_axes(c)),
    ),
    "permute": lambda c: s.transpose(c["dims"]),
    **s.rows_for(MOVES, lambda c: s.Moves()),
}
