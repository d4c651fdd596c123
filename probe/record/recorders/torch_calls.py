"""A call of an ATen operation: what its schema says, what tells it from others, how it is run
alone, and how a user writes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import repeat
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tag

from probe.case.layout import BOUNDARY
from probe.order.semantics.contract import Call as Base
from probe.order.semantics.contract import Operand, left_out
from probe.record.recorders.torch_values import (
    Place,
    Slot,
    array,
    dtype,
    extent,
    lay_like,
    of_others,
    overload,
    packed_in,
    schema,
    shape,
    slot_of,
    tensors,
)

# Operations that overwrite their first argument without reading it, as those that fill it with
# random numbers do.
OVERWRITES = ("copy_", "fill_", "zero_")

# Changes its running means in training alone, which its schema does not say.
SOMETIMES = "native_batch_norm"


class Facts(NamedTuple):
    """What an operation's schema says: its arguments' names and defaults, which of them it writes,
    and which it only writes. ``optional``: arrays that may be left out. ``empty``: what it gives
    holds nothing yet. ``reads_only``: it reads all its arrays, changes none, and what it gives
    holds something. ``of_others``: what it computes others do, which can be seen instead.
    ``turns``: it changes how a tensor lies. ``func``: itself, so that nothing else gets its id."""

    base: str
    defaults: dict[str, Any]
    writes: frozenset[str]
    writes_only: frozenset[str]
    optional: frozenset[str]
    random: bool
    empty: bool
    reads_only: bool
    of_others: bool
    view: bool
    turns: bool
    func: Any


# By the operation's id: its own hash is computed in Python.
FACTS: dict[int, Facts] = {}


def op_facts(func: Any) -> Facts:
    return FACTS.get(id(func)) or FACTS.setdefault(id(func), _facts(func))


def _facts(func: Any) -> Facts:
    base = schema(func).name.removeprefix("aten::")  # others keep their library's name in front
    arguments = schema(func).arguments
    random = Tag.nondeterministic_seeded in func.tags
    empty = "empty" in base or base == "set_"
    writes = {a.name for a in arguments if a.alias_info and a.alias_info.is_write}
    only = {a.name for a in arguments if a.name in writes and a.kwarg_only}
    drawn = random and base.endswith("_") and "rrelu" not in base
    if drawn or base in OVERWRITES or base.startswith("new_") or base.endswith("_like"):
        only.add(arguments[0].name)  # or it asks that for its shape and format alone
    defaults = {a.name: a.default_value if a.has_default_value() else None for a in arguments}
    optional = frozenset(a.name for a in arguments if str(a.type) == "Optional[Tensor]")
    reads_only = not (writes or only or empty or base == SOMETIMES)
    view = bool(getattr(func, "is_view", False))
    flags = (random, empty, reads_only, of_others(func), view, Tag.inplace_view in func.tags)
    return Facts(base, defaults, frozenset(writes), frozenset(only), optional, *flags, func)


def replaced(value: Any, to: Callable[[Any], Any]) -> Any:
    """Returns arguments with each leaf replaced: of lists, tuples and dictionaries."""
    if isinstance(value, list | tuple) and not isinstance(value, Slot):
        items = [replaced(item, to) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {name: replaced(item, to) for name, item in value.items()}
    return to(value)


def leaves_of(value: Any) -> list[Any]:
    """Returns what lists, tuples and dictionaries of arguments hold."""
    leaves: list[Any] = []
    replaced(value, leaves.append)
    return leaves


def arguments_of(known: Facts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**known.defaults, **dict(zip(known.defaults, args, strict=False)), **kwargs}


def changed_by(
    known: Facts, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[bool]]:
    """Returns the tensors that a call changes in place, and of each of its tensors, in order,
    whether it is read."""
    writes = known.writes
    if known.base == SOMETIMES and arguments_of(known, args, kwargs)["training"]:
        writes = frozenset(("running_mean", "running_var"))
    changed, read = [], []
    for name, value in (*zip(known.defaults, args, strict=False), *kwargs.items()):
        for leaf in leaves_of(value):
            if isinstance(leaf, torch.Tensor):
                read.append(name not in known.writes_only)
                changed += [leaf] if name in writes else []
    return changed, read


def signed(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    reads: list[torch.Tensor],
    places: list[Place],
    place: Callable[[torch.Tensor], Place],
) -> Hashable:
    """Returns what tells a call's arguments from others, but for the contents of arrays: of a
    tensor how it lies in memory, of a number its type too (1, 1.0 and True are equal) and its sign
    (as 0.0 and -0.0 are).

    ``reads`` and ``places``: get its tensors, in order, and the place of each.
    """
    signature: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is torch.Tensor or isinstance(value, torch.Tensor):
            at = place(value)
            reads.append(value)
            places.append(at)
            signature.append(at.lay.like)
        elif kind is int or value is None:
            signature.append(value)
        elif isinstance(value, list | tuple):
            signature.append((kind, signed(value, {}, reads, places, place)))
        elif isinstance(value, dict):
            signature.append((kind, signed((), value, reads, places, place)))
        else:
            signature.append((kind, repr(value) if kind is float else value))
    if kwargs:
        signature.append(tuple(kwargs))
        signature.append(signed(tuple(kwargs.values()), {}, reads, places, place))
    return tuple(signature)


@dataclass(frozen=True)
class AtenCall(Base):
    """A call of ATen that has run: its attributes are all arguments by the names of the schema,
    with ``Slot`` in the places of arrays, and its operands are those that are read.

    ``func``: what was called; ``tensors``: what it reads; ``drawn``: it draws random numbers.
    """

    func: Any = None
    tensors: Sequence[torch.Tensor] = ()
    drawn: bool = False

    def at(self, slot: int | str) -> int:
        """Returns the place of an array among those that are read. IndexError: it isn't read."""
        number = self[slot].number if isinstance(slot, str) else slot
        if number is None:
            raise IndexError(slot)
        return int(number)

    def has(self, slot: int | str) -> bool:
        """Returns whether an argument is given and is an array."""
        return super().has(slot) if isinstance(slot, int) else isinstance(self.get(slot), Slot)

    def shown(self) -> dict[str, Any]:
        """Returns all arguments that aren't arrays, plain enough for JSON; and which arrays are
        left out ahead of one that is given, which else would stand for another."""
        plain = {
            name: _plain_argument(value)
            for name, value in self.attributes.items()
            if value is not None and not any(isinstance(leaf, Slot) for leaf in leaves_of(value))
        }
        known = op_facts(self.func)
        optional = [name for name in known.defaults if name in known.optional]
        gone = left_out([self.get(name) for name in optional])
        return plain | ({"left_out": " ".join(optional[n] for n in gone)} if gone else {})

    def more(self, *leave_out: str) -> tuple[Any, ...]:
        """Returns (name, value) of the arguments that aren't arrays, nor as by default."""
        usual = {k: _plain_argument(value) for k, value in op_facts(self.func).defaults.items()}
        every = self.shown().items()
        return tuple((k, v) for k, v in every if k not in leave_out and v != usual.get(k))


class RanCall(NamedTuple):
    """An operation that has run, as PyTorch had it.

    ``read``: of each of its tensors, in order, whether it is read, None: all are; ``every``: what
    it gave and changed, of which the first so many are ``returned``; ``at``: which of these are new
    values.
    """

    func: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    read: Sequence[bool] | None
    every: Sequence[torch.Tensor]
    returned: int
    at: Sequence[int]


def aten_call(ran: RanCall) -> tuple[AtenCall, Lines | None, RepeatedCall | None]:
    """Returns a call that has run, its lines, and what runs it alone; None where its operands are
    not plain memory, or objects of C++. Neither lines nor what runs it keep a tensor."""
    func, args, kwargs, read, every, returned, at = ran
    known, reads = op_facts(func), list[torch.Tensor]()
    left = repeat(True) if read is None else iter(read)

    def slot(argument: Any) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        if not next(left):
            return slot_of(argument)
        reads.append(argument)
        return slot_of(argument, len(reads) - 1)

    tree = replaced((tuple(args), dict(kwargs)), slot)
    slots = [slot_of(tensor) for tensor in reads]
    attributes = arguments_of(known, *tree)
    first = dict[int, int]()
    alike = [first.setdefault(id(tensor), n) for n, tensor in enumerate(reads)]
    state = torch.get_num_threads(), at, torch.is_grad_enabled()
    drawn = known.random and attributes.get("dropout_p", 1) != 0
    again = None if drawn else RepeatedCall(func, tree, slots, alike, *state)
    beside = [n for tensor in every[returned:] for n, read in enumerate(reads) if read is tensor]
    lines = _writer(func, tree, slots, at, len(every), beside)
    base = known.base
    call = AtenCall(
        base if base.startswith("__") else base.removesuffix("_"),
        attributes,
        [Operand(n, shape(tensor), dtype(tensor.dtype)) for n, tensor in enumerate(reads)],
        [shape(every[n]) for n in at],
        [dtype(every[n].dtype) for n in at],
        func=func,
        tensors=reads,
        drawn=drawn,
    )
    if any(operand.strides is None for operand in slots):
        return call, None, None
    # a change in place of how a tensor lies can't be written with what it gives
    odd = known.turns or any(isinstance(leaf, torch.ScriptObject) for leaf in leaves_of(tree))
    return call, None if odd else lines, again


def _plain_argument(value: Any) -> Any:
    """Numbers, texts and lists of them."""
    if isinstance(value, list | tuple):
        return [_plain_argument(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, torch.ScriptObject):
        return str(value)
    name, held = packed_in(value)
    if held is None:
        return name
    bits = [array(leaf).tobytes() for leaf in leaves_of(held) if isinstance(leaf, torch.Tensor)]
    return f"{name} {blake2b(b''.join(bits), digest_size=8).hexdigest()}"


# alone


@dataclass(frozen=True)
class RepeatedCall:
    """Runs an operation alone, as it was run: operands in memory, their addresses, and threads.

    ``tree``: its arguments; ``slots``: how what it reads lies; ``alike``: of each operand the first
    that is the same tensor, which attention asks; ``at``: which results are asked for;
    ``gradients``: whether they are on, as some kernels ask that themselves.
    """

    func: Any
    tree: Any
    slots: Sequence[Slot]
    alike: Sequence[int]
    threads: int
    at: Sequence[int]
    gradients: bool = False

    @property
    def addresses(self) -> list[int | None]:
        """Returns how many bytes behind a multiple of 64 each operand begins."""
        return [slot.address if slot.strides is not None else None for slot in self.slots]

    @property
    def lies(self) -> list[tuple[Any, ...]]:
        """Returns how each operand lies in memory, to be compared with another call's."""
        return [(slot.strides, slot.address) for slot in self.slots]

    def moved(self, addresses: Sequence[int | None]) -> RepeatedCall:
        """Returns the same with operands at other addresses; None: where it is."""
        both = zip(self.slots, addresses, strict=True)
        return replace(self, slots=[s if a is None else s._replace(address=a) for s, a in both])

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

        args, kwargs = replaced(self.tree, filled)
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.set_grad_enabled(self.gradients):
                every = tensors(self.func(*args, **kwargs))
        finally:
            torch.set_num_threads(before)
        into, _ = changed_by(op_facts(self.func), args, kwargs)
        every += [tensor for tensor in into if not any(tensor is other for other in every)]
        return [np.array(array(every[n])) for n in self.at]


# as a user writes it

Lines = Callable[[Sequence[str], str], list[str]]


def _writer(
    func: Any,
    tree: Any,
    reads: Sequence[Slot],
    at: Sequence[int],
    count: int,
    beside: Sequence[int],
) -> Lines:
    """``count``: of the tensors that it gives; ``at``: which of them are results of its own;
    ``beside``: numbers of operands that it changes besides, the last of these."""
    base = op_facts(func).base
    # a function of this name in ``torch`` that isn't Python's takes the arguments of the schema
    own = isinstance(getattr(torch, base, None), BuiltinFunctionType) and base[0] != "_"
    returns = schema(func).returns
    several = len(returns) > 1 or any(str(returned.type).startswith("List") for returned in returns)
    called = f"torch.{base}" if own and overload(func) in OVERLOADS else f"torch.ops.{func}"

    def lines(names: Sequence[str], result: str) -> list[str]:
        code = [line for both in zip(names, reads, strict=True) for line in _laid(*both)]
        args = [_argument_text(argument, names) for argument in tree[0]]
        args += [f"{name}={_argument_text(argument, names)}" for name, argument in tree[1].items()]
        code.append(f"{result} = {called}({', '.join(args)})")
        if 1 < len(returns) != count - len(beside):  # among them are numbers, or nothing
            code.append(f"{result} = [y for y in {result} if isinstance(y, torch.Tensor)]")
        if beside:
            own = f"*{result}, " if several else f"{result}, " if returns else ""
            code.append(f"{result} = [{own}{', '.join(names[n] for n in beside)}]")
        if len(at) == 1 and (count > 1 or several or beside):
            code.append(f"{result} = {result}[{at[0]}]")
        elif count > 1 and list(at) != list(range(count)):
            code.append(f"{result} = [{', '.join(f'{result}[{n}]' for n in at)}]")
        return code

    return lines


OVERLOADS = ("default", "Tensor", "Scalar")


def _laid(name: str, slot: Slot) -> list[str]:
    """Returns lines that lay an operand into memory as the recorded one lay: none for one that
    follows from its shape and begins at a multiple of 64, as PyTorch's own copies do."""
    shape, strides = tuple(slot.shape), slot.strides
    if strides is None:
        return []
    if not slot.address and torch.empty_strided(shape, strides, device="meta").is_contiguous():
        return []
    if 0 in strides:  # broadcast: what repeats lies in memory once
        index = ", ".join("0:1" if n == 0 else ":" for n in strides)
        wide = tuple(1 if step == 0 else n for n, step in zip(shape, strides, strict=True))
        once = slot._replace(shape=wide, strides=tuple(step or 1 for step in strides))
        expand = f"{name} = {name}.expand({', '.join(map(str, shape))})"
        return [f"{name} = {name}[{index}]", *_laid(name, once), expand]
    if not slot.address:
        made = f"torch.empty_strided({shape}, {strides}, dtype={name}.dtype)"
        return [f"{name} = {made}.copy_({name})"]
    said = f"# {name} begins {slot.address} bytes behind a multiple of {BOUNDARY}"
    count, (start, inside) = extent(shape, strides), divmod(slot.address, slot.dtype.itemsize)
    if not inside:
        made = f"torch.empty({start + count}, dtype={name}.dtype)"
        return [said, f"{name} = {made}.as_strided({shape}, {strides}, {start}).copy_({name})"]
    size = count * slot.dtype.itemsize  # PyTorch's own views begin at whole numbers, NumPy's don't
    return [
        said,
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
