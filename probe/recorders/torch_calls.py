"""A call of an ATen operation: its arguments by name, what it changes, and how a user writes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch

from probe.layout import BOUNDARY
from probe.recorders.torch_values import Place, Slot, array, slot_of
from probe.semantics.call import NotSettled

SMALL = 1 << 20
"""Integers up to which an index belongs to what an operation means."""

SHAPE_ALONE = {
    *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"),
    *("new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided", "randint_like"),
}
"""Operations that ask a tensor for its shape and format, and not for what it holds."""

WRITTEN = {"copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_"}
"""Operations that overwrite their first argument without reading it."""

NO_CONTENTS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_"}
"""Operations whose results hold nothing yet."""

SOMETIMES = "native_batch_norm"
"""Changes its running means in training alone, which its schema does not say."""


class Facts(NamedTuple):
    """What an operation's schema says: its arguments' names and defaults, which of them it writes,
    and which it only writes. ``reads_only``: it reads all its arrays, changes none, and what it
    gives holds something. ``func``: itself, so that nothing else gets its id."""

    base: str
    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    writes: tuple[int, ...]
    writes_only: tuple[int, ...]
    random: bool
    reads_only: bool
    func: Any


FACTS: dict[int, Facts] = {}
"""By the operation's id: its own hash is computed in Python."""


def facts(func: Any) -> Facts:
    """Returns what an operation's schema says."""
    return FACTS.get(id(func)) or FACTS.setdefault(id(func), _facts(func))


def _facts(func: Any) -> Facts:
    schema = func._schema
    base = schema.name.removeprefix("aten::")  # others keep their library's name in front
    arguments = schema.arguments
    writes = tuple(n for n, a in enumerate(arguments) if a.alias_info and a.alias_info.is_write)
    only = {n for n in writes if arguments[n].kwarg_only}
    only |= {0} if base in SHAPE_ALONE or base in WRITTEN else set()
    defaults = tuple(a.default_value if a.has_default_value() else None for a in arguments)
    random = torch.Tag.nondeterministic_seeded in func.tags
    names = tuple(a.name for a in arguments)
    reads_only = not writes and not only and base not in NO_CONTENTS and base != SOMETIMES
    return Facts(base, names, defaults, writes, tuple(only), random, reads_only, func)


def leaves(value: Any) -> Iterator[Any]:
    """Yields what lists, tuples and dictionaries of arguments hold."""
    if isinstance(value, list | tuple) and not isinstance(value, Slot):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from leaves(one)
    else:
        yield value


def signed(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    reads: list[torch.Tensor],
    places: list[Place],
    place: Callable[[torch.Tensor], Place],
) -> Hashable:
    """Returns what tells a call's arguments from others, but for the contents of arrays.

    ``reads`` and ``places``: get its tensors, in order, and the place of each.
    """
    found: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is torch.Tensor or isinstance(value, torch.Tensor):
            at = place(value)
            reads.append(value)
            places.append(at)
            found.append(at.lay.like)
        elif kind is int or value is None:
            found.append(value)
        elif isinstance(value, list | tuple) and kind is not Slot:
            found.append((kind, signed(value, {}, reads, places, place)))
        elif isinstance(value, dict):
            found.append((kind, signed((), value, reads, places, place)))
        else:
            found.append(_signed(value))
    if kwargs:
        found.append(tuple(kwargs))
        found.append(signed(tuple(kwargs.values()), {}, reads, places, place))
    return tuple(found)


def _gather(value: Any, into: list[torch.Tensor]) -> None:
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, torch.Tensor):
            into.append(one)
        elif isinstance(one, list | tuple | dict) and not isinstance(one, Slot):
            _gather(one, into)


def _signed(value: Any) -> Hashable:
    """Returns what tells an argument from others: of a tensor how it lies in memory, of a number
    its type too (1, 1.0 and True are equal) and its sign (as 0.0 and -0.0 are)."""
    kind = type(value)
    if kind is int or kind is torch.Tensor:
        return slot_of(value) if kind is torch.Tensor else value
    if isinstance(value, torch.Tensor):
        return slot_of(value)
    if kind is float:
        return kind, repr(value)
    if isinstance(value, list | tuple) and not isinstance(value, Slot):
        return (kind, *map(_signed, value))
    if isinstance(value, dict):
        return (kind, *((name, _signed(one)) for name, one in value.items()))
    return kind, value


def replaced(value: Any, to: Callable[[Any], Any]) -> Any:
    """Returns arguments with each leaf replaced."""
    if isinstance(value, list | tuple) and not isinstance(value, Slot):
        found = [replaced(one, to) for one in value]
        return found if isinstance(value, list) else tuple(found)
    if isinstance(value, dict):
        return {name: replaced(one, to) for name, one in value.items()}
    return to(value)


class Called:
    """A call: ``tensors`` are its arrays in the order in which they stand.

    ``reads``: those whose contents it reads; ``shapes``, ``dtypes``: of what it gave; set when it
    has run.
    ``looked``: whether somebody asked for the contents of an argument.
    """

    def __init__(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, tuple(args), dict(kwargs)
        self.facts = facts(func)
        self.base = self.facts.base
        self.tensors: list[torch.Tensor] = []
        _gather(self.args, self.tensors)
        _gather(self.kwargs, self.tensors)
        self.reads: list[Slot] = []
        self.shapes: list[tuple[int, ...]] = []
        self.dtypes: list[str] = []
        self._numbers: list[int | None] = []
        self._bound: dict[str, Any] | None = None
        self._tree: Any = None
        self.looked = False

    @property
    def op(self) -> str:
        """ATen's name of the operation, with its overload."""
        return str(self.func).removesuffix(".default")

    @property
    def name(self) -> str:
        """Returns the operation's name, the same whether it works in place or not."""
        return self.base if self.base.startswith("__") else self.base.removesuffix("_")

    @property
    def random(self) -> bool:
        """Returns whether it draws random numbers."""
        return self.facts.random and self._values().get("dropout_p", 1) != 0

    def number(self, reads: Sequence[torch.Tensor]) -> None:
        """Says which arguments are read, in order."""
        at, self._numbers = 0, []
        for one in self.tensors:
            is_read = at < len(reads) and one is reads[at]
            self._numbers.append(at if is_read else None)
            at += is_read

    def signature(self) -> Hashable:
        """Returns what tells this call from others, but for the contents of arrays: two of the same
        have the same attributes, and the same meaning unless that looked into an array."""
        tracks = tuple(self._numbers), tuple(self.shapes)
        return (self.func, _signed(self.args), _signed(self.kwargs), tracks)

    def changed(self) -> list[torch.Tensor]:
        """Returns the tensors that it changes in place."""
        found = self._tensors_at(self.facts.writes)
        if self.base == SOMETIMES and self._values()["training"]:
            means = self._values()["running_mean"], self._values()["running_var"]
            found += [one for one in means if one is not None]
        return found

    def written(self) -> list[torch.Tensor]:
        """Returns the tensors whose contents it doesn't read."""
        return self._tensors_at(self.facts.writes_only)

    def _tensors_at(self, places: Sequence[int]) -> list[torch.Tensor]:
        if not places:
            return []
        values = self._values()
        every = (leaves(values[self.facts.names[n]]) for n in places)
        return [one for some in every for one in some if isinstance(one, torch.Tensor)]

    def _values(self) -> dict[str, Any]:
        """Returns arguments by name, with the tensors themselves."""
        names, defaults = self.facts.names, self.facts.defaults
        found = dict(zip(names, defaults, strict=True))
        found.update(zip(names, self.args, strict=False))
        found.update(self.kwargs)
        return found

    def tree(self) -> Any:
        """Returns (arguments, keywords) with a ``Slot`` in the place of each tensor."""
        if self._tree is None:
            numbers = iter(self._numbers)
            self._tree = replaced(
                (self.args, self.kwargs),
                lambda one: slot_of(one, next(numbers)) if isinstance(one, torch.Tensor) else one,
            )
        return self._tree

    def bound(self) -> dict[str, Any]:
        """Returns its arguments by name, with ``Slot`` in the place of each tensor."""
        if self._bound is None:
            args, kwargs = self.tree()
            self._bound = Called(self.func, args, kwargs)._values()
        return self._bound

    def __getitem__(self, name: str) -> Any:
        return self.bound()[name]

    def same(self, *names: str) -> bool:
        """Returns whether arguments are one tensor, rather than several that lie alike."""
        self.looked = True  # which tensor it is stands in no signature
        values = self._values()
        first, *others = (values[name] for name in names)
        return all(one is first or _one(one, first) for one in others)

    def integers(self, number: int) -> np.ndarray:
        """Returns the integers in an array that it reads. NotSettled where there are too many."""
        self.looked = True
        found = self.tensors[self._numbers.index(number)]
        if found.numel() > SMALL:
            raise NotSettled(f"it reads {found.numel():,} indices, and at most {SMALL:,} are read")
        return np.array(array(found))

    def attributes(self) -> dict[str, Any]:
        """Returns all arguments that aren't arrays, plain enough for JSON."""
        found = {}
        for name, value in self.bound().items():
            if value is not None and not any(isinstance(one, Slot) for one in leaves(value)):
                found[name] = _plain(value)
        return found

    def numbers(self, *leave_out: str) -> tuple[Any, ...]:
        """Returns (name, value) of the arguments that aren't arrays and not as by default."""
        found = []
        for name, default in zip(self.facts.names, self.facts.defaults, strict=True):
            value = self.bound()[name]
            if name in leave_out or any(isinstance(one, Slot) for one in leaves(value)):
                continue
            if value is not None and (isinstance(value, torch.ScriptObject) or value != default):
                found.append((name, _plain(value)))
        return tuple(found)

    def writer(self, at: Sequence[int], count: int) -> Callable[[Sequence[str], str], list[str]]:
        """Returns what writes it down as a user would.

        ``count``: of the tensors that it gives; ``at``: which of them are results of its own.
        """
        func, tree, reads = self.func, self.tree(), list(self.reads)
        base = self.base
        plain = getattr(torch, base, None)
        own = callable(plain) and not base.startswith("_") and _takes(func, base)
        called = f"torch.{base}" if own else f"torch.ops.{func}"

        def lines(names: Sequence[str], result: str) -> list[str]:
            found = [one for both in zip(names, reads, strict=True) for one in _laid(*both)]
            args = [_literal(one, names) for one in tree[0]]
            args += [f"{name}={_literal(one, names)}" for name, one in tree[1].items()]
            found.append(f"{result} = {called}({', '.join(args)})")
            if count > 1 and any(str(one.type) == "int" for one in func._schema.returns):
                found.append(f"{result} = [y for y in {result} if isinstance(y, torch.Tensor)]")
            if count > 1 and list(at) != list(range(count)):
                found.append(f"{result} = [{', '.join(f'{result}[{n}]' for n in at)}]")
            return found

        return lines


def _one(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Returns whether two tensors show the same memory in the same way."""
    ends = [(one.data_ptr(), one.shape, one.stride(), one.dtype) for one in (left, right)]
    return ends[0] == ends[1]


OWN = {
    "addmm",
    "mm",
    "bmm",
    "baddbmm",
    "add",
    "mul",
    "sub",
    "div",
    "relu",
    "tanh",
    "sigmoid",
    "cat",
}


def _takes(func: Any, base: str) -> bool:
    """Returns whether the function of that name in ``torch`` takes the arguments as they stand."""
    return base in OWN and func._overloadname in ("default", "Tensor", "Scalar")


def _plain(value: Any) -> Any:
    """Numbers, texts and lists of them."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _packed(value) if isinstance(value, torch.ScriptObject) else str(value)


def _packed(value: Any) -> str:
    """Returns what tells packed weights, and other objects of C++, from others."""
    name = value._type().qualified_name().rpartition(".")[2]
    try:
        held = list(leaves(value.__getstate__()))
    except Exception:  # it can't be written to a file
        return str(name)
    arrays = [array(one).tobytes() for one in held if isinstance(one, torch.Tensor)]
    return f"{name} {blake2b(b''.join(arrays), digest_size=8).hexdigest()}"


def _contiguous(slot: Slot) -> bool:
    step = 1
    for size, stride in zip(reversed(slot.shape), reversed(slot.strides or ()), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _laid(name: str, slot: Slot) -> list[str]:
    """Returns lines that lay an operand into memory as the recorded one lay: none for one that
    follows from its shape and begins at a multiple of 64, as PyTorch's own copies do."""
    strides = slot.strides
    if strides is None or (_contiguous(slot) and not slot.address):
        return []
    if 0 in strides:  # broadcast: what repeats lies in memory once
        index = ", ".join("0:1" if n == 0 else ":" for n in strides)
        wide = tuple(1 if step == 0 else n for n, step in zip(slot.shape, strides, strict=True))
        once = slot._replace(shape=wide, strides=tuple(step or 1 for step in strides))
        expand = f"{name} = {name}.expand({', '.join(map(str, slot.shape))})"
        return [f"{name} = {name}[{index}]", *_laid(name, once), expand]
    shape, start = tuple(slot.shape), slot.address // slot.dtype.itemsize
    if not slot.address:
        made = f"torch.empty_strided({shape}, {strides}, dtype={name}.dtype)"
        return [f"{name} = {made}.copy_({name})"]
    said = f"# {name} begins {slot.address} bytes behind a multiple of {BOUNDARY}"
    count = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1
    if slot.address % slot.dtype.itemsize == 0:
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


def _literal(one: Any, names: Sequence[str]) -> str:
    if isinstance(one, Slot):
        if one.number is not None:
            return names[one.number]
        return f"torch.empty({tuple(one.shape)}, dtype={one.dtype})"
    if isinstance(one, list | tuple):
        return "[" + ", ".join(_literal(each, names) for each in one) + "]"
    if isinstance(one, torch.device):
        return f'torch.device("{one}")'
    if isinstance(one, float) and not np.isfinite(one):
        return f'float("{one}")'
    return (
        str(one) if isinstance(one, torch.dtype | torch.layout | torch.memory_format) else repr(one)
    )
