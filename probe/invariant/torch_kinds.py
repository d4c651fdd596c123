"""What PyTorch's operations are, derived from the recorder's table at the calls that a model makes.

Nothing here knows an operation by its name: the schema says what only looks at memory or gives
numbers to the program, its tags what draws random numbers, and the table what is computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tag
from torch.utils._pytree import tree_leaves, tree_map

from probe.invariant.kinds import Kind, apart, kind_of
from probe.invariant.torch_calls import FORMATS, Tensors
from probe.recorders.torch_calls import Call, called, changed, facts
from probe.recorders.torch_table import meaning
from probe.recorders.torch_values import tensors
from probe.semantics import Each, Meaning, Unknown, functions, of_complex

MOST = 1 << 14
"""Calls that are kept. Numbers that change at every call, as a step of time, would add to them."""

VALUES = frozenset((bool, str, int, type(None)))
"""Arguments that choose what is computed by what they are: an axis, a mode, an exponent."""


class Kinds:
    """What the operations of one model are, by what they are called with.

    ``by_value``: those that are exact with some numbers alone, such as a power of two.
    ``complex``: whether complex numbers were met, of which products round more than once.
    """

    def __init__(self) -> None:
        self.by_value: set[Any] = set()
        self.complex = False
        self._known: dict[Any, Kind] = {}
        self._apart: dict[Any, bool] = {}

    def __call__(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> Kind:
        """Returns what a call of an operation of ATen is. It is run once, on copies, where this is
        not known."""
        key = (func, *(_told(one) for one in args), *((n, _told(kwargs[n])) for n in kwargs))
        if func in self.by_value:
            key = (*key, repr([one for one in args if isinstance(one, float)]))
        found = self._known.get(key)
        if found is None:
            found, always = self._found(func, args, kwargs)
            if len(self._known) >= MOST:
                self._known.clear()
            if always:
                self._known[key] = found
        return found

    def _found(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> tuple[Kind, bool]:
        """Returns what a call is, and whether others are that have as much in common."""
        known, schema = facts(func), func._schema
        if not schema.name.startswith("aten::") or known.random:
            return Kind.SOME, True
        numbers = all("Tensor" not in str(one.type) for one in schema.returns)
        if known.view or known.turns or known.empty or numbers:
            return (
                Kind.EXACT,
                True,
            )  # it looks at memory in another way, or gives numbers to the program
        every = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if any(one.layout is not torch.strided or one.is_nested for one in every):
            return Kind.SOME, False
        call, computes = described(func, args, kwargs)
        self.complex |= any("complex" in one for one in call.dtypes)
        by_name = functions.of(functions.canonical(call.op)).rounds is not None
        if isinstance(computes, Each) and not by_name:
            self.by_value.add(func)
        # which of several elements is written into one place, chance decides: others have places
        return kind_of(computes), not (isinstance(computes, Unknown) and call.looked)

    def apart(self, func: Any, x: Any, options: Any, kwargs: dict[str, Any]) -> bool:
        """Whether an operation of one tensor works on each sample by itself, and gives one tensor
        of numbers in a known format."""
        key = func, x.shape[1:], x.dtype, repr((options, kwargs))
        if key not in self._apart:
            two = x[:1].expand(2, *x.shape[1:]).contiguous()
            call, computes = described(func, (two, *options), kwargs)
            formats = set(FORMATS.values())
            fits = len(call.gives) == 1 and call.dtypes[0] in formats
            self._apart[key] = fits and apart(computes, [two.shape], call.gives, (True,))
        return self._apart[key]


def reads(func: Any) -> bool:
    """Whether an operation gives numbers to the program, which may then call others."""
    return Tag.data_dependent_output in func.tags or Tag.dynamic_output_shape in func.tags


def described(func: Any, args: Tensors, kwargs: dict[str, Any]) -> tuple[Call, Meaning]:
    """Returns a call, which changes copies where it changes anything, and what it computes."""
    into, read = changed(facts(func), args, kwargs)
    if into:
        args, kwargs = tree_map(_copied, (tuple(args), kwargs))
        into, read = changed(facts(func), args, kwargs)
    with torch.no_grad():
        every = tensors(func(*args, **kwargs))
    returned = len(every)
    every += [one for one in into if not any(one is other for other in every)]
    call, _, _ = called(func, args, kwargs, read, every, returned, range(len(every)))
    found = meaning(call)
    numbers = [one for one in (*tree_leaves((args, kwargs)), *every) if torch.is_tensor(one)]
    return call, of_complex(found) if any(map(torch.is_complex, numbers)) else found


def _copied(one: Any) -> Any:
    return one.clone() if isinstance(one, torch.Tensor) else one


def _told(one: Any) -> Any:
    """Returns what of an argument decides what an operation is."""
    if isinstance(one, torch.Tensor):
        return one.dtype
    return one if type(one) in VALUES else type(one)
