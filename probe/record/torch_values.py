"""PyTorch's tensors: bits as container arrays, how they lie in memory, which value each is.

What PyTorch has no public interface for is used in this file alone. Written with PyTorch 2.13.

A value is known by its memory, how often that was changed, and where in it it lies.

Views share memory, and a change through one of them changes all others: each is another value from
then on, put together from what was there and what was written. Addresses are never mistaken for
each other: of every memory that a run meets a weak reference is kept until it has died, and each
has a number of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._dynamo.callback import callback_handler
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from probe.case.errors import InputError
from probe.case.layout import BOUNDARY
from probe.order.semantics import Moves, Unknown
from probe.record.contract import (
    CONSTANT,
    INPUT,
    THROUGH_A_VIEW,
    WEIGHT,
    Isolated,
    Operation,
    Seen,
    Visit,
)

# What runs whenever a module is called. Looked for among the frames of Python: hooks on modules
# would be compiled into compiled functions, and change them.
CALL = torch.nn.Module._call_impl.__code__

Region = Callable[[Sequence[Any], Callable[[], Any], Sequence[int]], Any]
# The module of what Inductor compiles; it is large, and stays away until something is compiled.
OUTPUT_CODE = "torch._inductor.output_code"


@contextmanager
def compiled_as_one(region: Region) -> Iterator[Callable[[], bool]]:
    """Hands every compiled region that runs to ``region(operands, run, changed)`` while entered:
    ``changed`` numbers the operands that it changes in place. Yields a function that says whether
    something is being compiled at the moment.
    """
    with ExitStack() as stack:
        compiling: list[Any] = []

        def begin(args: Any) -> None:
            compiling.append(args)
            _watch(region, stack)

        def end(_: Any) -> None:
            compiling.clear()

        callback_handler.register_start_callback(begin)
        stack.callback(callback_handler.remove_start_callback, begin)
        callback_handler.register_end_callback(end)
        stack.callback(callback_handler.remove_end_callback, end)
        if OUTPUT_CODE in sys.modules:
            _watch(region, stack)
        yield lambda: bool(compiling)


def _watch(region: Region, stack: ExitStack) -> None:
    from torch._inductor.output_code import CompiledFxGraph

    plain = CompiledFxGraph.__call__
    if getattr(plain, "watched", False):
        return

    def watched(self: Any, inputs: Sequence[Any]) -> Any:
        operands = list(inputs)  # the region empties its list, to free memory early

        def run() -> Any:
            with _disable_current_modes():
                return plain(self, inputs)

        return region(operands, run, sorted(getattr(self, "mutated_input_idxs", ())))

    watched.watched = True  # type: ignore[attr-defined]
    CompiledFxGraph.__call__ = watched  # type: ignore[method-assign]
    stack.callback(setattr, CompiledFxGraph, "__call__", plain)


def of_others(func: Any) -> bool:
    """Returns whether an operation is no more than others that PyTorch calls for it. Dispatch shows
    these, but under ``torch.inference_mode()``, which leaves out the step that calls them."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    own = any(has(func.name(), key) for key in ("CPU", "CUDA"))
    return bool(has(func.name(), "CompositeImplicitAutograd")) and not own


with torch.inference_mode():
    _INFERENCE = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    )


def called_for(func: Any, args: Any, kwargs: Any, mode: TorchDispatchMode) -> Any:
    """Calls these others under a mode, as PyTorch's own dispatch does: its ``decompose`` takes
    Python's formulas where there are some, as of GRU, which give different bits; and inside a mode
    the views of weights ask for no gradients, by which ``matmul`` chooses its kernel."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch._C._ForceDispatchKeyGuard(*_INFERENCE))
        stack.enter_context(mode)
        return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def weights_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields its own parameters and buffers with their names."""
    for every in (module._parameters, module._buffers):
        there = {name: tensor for name, tensor in every.items() if tensor is not None}
        for name, tensor in there.items():
            # torch.func wraps what functional_call gives, once for each transformation
            while _wrapped(tensor):
                tensor = torch._C._functorch.get_unwrapped(tensor)
            yield name, tensor


_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


# Returns what tells a storage from others while it lives.
storage_address = attrgetter("_cdata")

# Returns an operation's schema: its name, arguments and results.
schema = attrgetter("_schema")

# Returns which of the operations of its name an operation is.
overload = attrgetter("_overloadname")

# bits

NUMBERS = "return tensors of a device that computes, such as the CPU"
# Types of numbers that NumPy has not: their bits are compared, as bytes.
BYTES = {
    kind
    for name, kind in vars(torch).items()
    if ("float8" in name or "float4" in name) and isinstance(kind, torch.dtype)
}


def is_strided(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is memory with strides."""
    return tensor.layout is torch.strided and not tensor.is_nested


def array(tensor: torch.Tensor) -> np.ndarray:
    """Returns a tensor's bits as a container array, a view of them where there can be one."""
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


def tensors(returned: Any, beside: bool = False) -> list[torch.Tensor]:
    """Returns the tensors in whatever a function returned: in tuples, in dictionaries by key,
    dataclasses and objects with attributes, such as the outputs of transformers' models.
    ``beside``: numbers and arrays of NumPy or another library become tensors, too."""
    # a function that calls itself would keep them until Python looks for cycles, and PyTorch copies
    # a gradient that anybody holds
    every, met, pending = list[torch.Tensor](), set[int](), [returned]
    while pending:
        value, inside = pending.pop(), list[Any]()
        if isinstance(value, torch.Tensor):
            every.append(value)
        elif isinstance(value, dict):
            # two runs may put the same names in another order
            inside = [value[name] for name in sorted(value, key=str)]
        elif isinstance(value, list | tuple | set | frozenset):
            inside = [*value]
        elif (
            beside
            and not met
            and (hasattr(value, "__array__") or isinstance(value, complex | float | int))
        ):
            plain = np.array(value)  # attributes of objects are settings and counters: left out
            if plain.dtype.kind in "biufc":
                every.append(torch.from_numpy(plain))
        elif hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module | type):
            inside = [] if id(value) in met else [vars(value)]
            met.add(id(value))
        pending += reversed(inside)
    return every


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Returns a tensor's shape; of sequences of several lengths, packed, that of all, padded."""
    return tuple(array(tensor).shape if tensor.is_nested else tensor.shape)


@cache
def dtype(kind: torch.dtype) -> str:
    return "uint8" if kind in BYTES else str(kind).removeprefix("torch.")


# how a tensor lies in memory


@dataclass(frozen=True)
class Slot:
    """The place of an operand in a call. ``address``: as ``offset_of`` has it. ``number``: which of
    the arrays that are read, None where it isn't read, but written or asked for its shape."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    address: int
    dtype: torch.dtype
    device: torch.device
    number: int | None = None


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Returns how many elements there are in memory from the first to the last."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def offset_of(tensor: torch.Tensor) -> int:
    """Returns how many bytes behind a multiple of 64 a tensor's memory begins.

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
    """Returns a new tensor of these container bits that lies in memory as ``slot`` did, and begins
    as many bytes behind a multiple of 64."""
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
    """Returns a copy that lies in memory alike, and begins that many bytes behind a multiple of
    64."""
    return lay_like(array(tensor), replace(slot_of(tensor), address=address))


def _zeros_at(slot: Slot, count: int) -> torch.Tensor:
    """Returns zeros for so many numbers, at the slot's address."""
    if slot.device.type != "cpu":
        start = slot.address // slot.dtype.itemsize
        return torch.zeros(start + count, dtype=slot.dtype, device=slot.device)[start:]
    size = count * slot.dtype.itemsize
    raw = np.zeros(size + 2 * BOUNDARY, np.uint8)
    start = -raw.ctypes.data % BOUNDARY + slot.address
    return torch.from_numpy(raw[start : start + size]).view(slot.dtype)


def _no_gaps(shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, with the axes in the same order in memory."""
    dense, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda a: (strides[a], -a)):
        dense[axis] = step
        step *= max(shape[axis], 1)
    return tuple(dense)


class MemoryLayout(NamedTuple):
    """Where in its memory a tensor lies."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> MemoryLayout:
        """Returns that of a tensor; of one that isn't memory with strides its format alone."""
        if not is_strided(tensor):
            return cls((), (), 0, dtype(tensor.dtype))
        shape, strides = tuple(tensor.shape), tensor.stride()
        if 1 in shape:  # their steps say nothing
            strides = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
        return cls(shape, strides, tensor.storage_offset(), dtype(tensor.dtype))

    @property
    def size(self) -> int:
        return prod(self.shape)

    def covers(self, other: MemoryLayout) -> bool:
        """Returns whether it has no gaps, and another lies wholly inside."""
        count = extent(self.shape, self.strides)
        end = other.offset + extent(other.shape, other.strides)
        inside = self.offset <= other.offset and end <= self.offset + count
        return self.dtype == other.dtype and self.size == count and inside

    def places(self) -> np.ndarray:
        """Returns each element's place in the memory, flat: int64."""
        places = np.full(self.shape, self.offset, np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.strides, strict=True)):
            places += np.arange(size).reshape(-1, *(1,) * (len(self.shape) - axis - 1)) * step
        return places.reshape(-1)


# which value a tensor is

# Elements up to which it is worked out which of them a change through a view reached.
MOST = 1 << 22

# Memories that are met between two looks for those that have died.
SWEEP = 64


class Memory:
    """A storage: how often it was changed, and what is known to lie in it.

    ``number``: its own in this run; ``held``: a weak reference to the storage, so that its address
    stays its own, or a tensor that isn't plain memory, which is rare, so that its id does.
    ``own``: whether the run itself made it. ``values``: keys, of this change or before; ``parts``:
    the largest value before the first change, and what was written since, oldest first.
    """

    def __init__(self, number: int, held: Any) -> None:
        self.number, self.held = number, held
        self.changes, self.own = 0, False
        self.values: set[Hashable] = set()
        self.parts: list[tuple[Hashable, MemoryLayout]] = []

    def expired(self) -> bool:
        return isinstance(self.held, StorageWeakRef) and bool(self.held.expired())

    def note(self, key: Hashable, lies: MemoryLayout) -> None:
        self.values.add(key)
        if not self.changes and (not self.parts or lies.size > self.parts[0][1].size):
            self.parts = [(key, lies)]

    def write(self, key: Hashable, lies: MemoryLayout) -> None:
        self.parts = [part for part in self.parts if not lies.covers(part[1])] + [(key, lies)]


class Place(NamedTuple):
    """What there is to know of a tensor at a moment: its memory, its value's key, and how it
    lies."""

    memory: Memory
    key: tuple[Any, ...]
    lies: MemoryLayout


def address(tensor: torch.Tensor) -> int:
    """Returns what tells a tensor's memory from others while it lives."""
    return storage_address(tensor.untyped_storage()) if is_strided(tensor) else -id(tensor)


class Values:
    """All values of a run, by tensor. ``weights``: names, by memory and how they lie in it."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.memories: dict[int, Memory] = {}
        self.weights: dict[Hashable, str] = {}
        self.met = 0

    def weigh(self, tensor: torch.Tensor, name: str) -> None:
        memory, _, lies = self.place(tensor)
        self.weights.setdefault((memory.number, lies), name)

    def name(self, place: Place) -> str:
        """Returns the name of a weight; empty of any other value."""
        return self.weights.get((place.memory.number, place.lies), "")

    def place(self, tensor: torch.Tensor) -> Place:
        """Returns which value a tensor is now; its ``key`` tells it from every other."""
        at, plain = address(tensor), is_strided(tensor)
        memory = self.memories.get(at)
        if memory is None:
            self.met += 1
            if self.met % SWEEP == 0:
                live = self.memories.items()
                self.memories = {at: memory for at, memory in live if not memory.expired()}
            held: Any = StorageWeakRef(tensor.untyped_storage()) if plain else tensor
            memory = self.memories[at] = Memory(self.met, held)
        lies = MemoryLayout.of(tensor)
        key: tuple[Any, ...] = (memory.number, memory.changes, lies)
        if plain and (tensor.is_neg() or tensor.is_conj()):
            key += (tensor.is_conj(), tensor.is_neg())
        return Place(memory, key, lies)

    def read(self, tensor: torch.Tensor, place: Place, path: str, changes: bool = False) -> Seen:
        """Returns a value that is read; ``changes``: this operation is about to change it."""
        memory, key, lies = place
        fresh = key not in memory.values
        if fresh:
            if memory.own and memory.parts:
                self._renewed(tensor, place, path)
            memory.note(key, lies)
        seen = self.seen(tensor, place)
        if fresh and changes:
            bits = np.array(array(tensor))
            seen.array = lambda: bits
        return seen

    def given(self, tensor: torch.Tensor, place: Place) -> Seen:
        """Returns a value that an operation has just given. ``place``: as it is now."""
        memory, key, lies = place
        memory.own = memory.own or not memory.values
        memory.note(key, lies)
        return self.seen(tensor, place)

    def seen(self, tensor: torch.Tensor, place: Place) -> Seen:
        """Returns a value as the contract has it. ``place``: as it is now."""
        name = self.name(place)
        role = WEIGHT if name or isinstance(tensor, torch.nn.Parameter) else INPUT
        begins = offset_of(tensor) if is_strided(tensor) else None
        dtype = place.lies.dtype
        return Seen(place.key, shape(tensor), dtype, lambda: array(tensor), role, name, begins)

    def allocated(self, every: Sequence[torch.Tensor]) -> None:
        """Notes memory that nothing has been written into yet: zeros, as what it held before would
        be others in the next run."""
        for tensor in every:
            if is_strided(tensor):
                tensor.untyped_storage().fill_(0)
            memory = self.place(tensor).memory
            memory.own, memory.changes = True, 1

    def unwritten(self, place: Place) -> bool:
        """Whether a tensor's memory has not been written, so that looking at it reads no value."""
        return place.memory.own and not place.memory.parts

    def change(self, place: Place) -> None:
        """Notes that an operation has changed what lies in a tensor's memory."""
        place.memory.changes += 1
        place.memory.own = True

    def written(self, tensor: torch.Tensor) -> None:
        """Notes what a change has written; the value has been given."""
        memory, key, lies = self.place(tensor)
        memory.write(key, lies)

    def _renewed(self, tensor: torch.Tensor, place: Place, path: str) -> None:
        """Puts a value together from what was in its memory and what was written since."""
        memory, key, lies = place

        def overwritten() -> np.ndarray:
            raise LookupError("the value has been overwritten")

        reads = [Seen(k, g.shape, g.dtype, overwritten, CONSTANT) for k, g in memory.parts]
        again = _gathering([part for _, part in memory.parts], lies)
        meaning = Moves() if again else Unknown("it is large, or was written as other types")
        gives = [self.seen(tensor, place)]
        self.visit(Operation(THROUGH_A_VIEW, path, reads, gives, meaning, {}, again))
        memory.write(key, lies)


def _gathering(parts: Sequence[MemoryLayout], to: MemoryLayout) -> Isolated | None:
    """Returns what makes a value of parts of its memory, at each place of the last that was written
    there, zero where none was; None where that isn't worked out."""
    if any(part.dtype != to.dtype for part in parts) or sum(p.size for p in (*parts, to)) > MOST:
        return None
    places = [part.places() for part in (*parts, to)]
    where = np.full(1 + max(int(place.max(initial=0)) for place in places), -1)
    start = 0
    for part in places[:-1]:
        where[part] = np.arange(start, start + part.size)
        start += part.size
    index = where[places[-1]].reshape(to.shape)

    def gathered(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        flat = [np.asarray(array).reshape(-1) for array in arrays]
        return [np.concatenate([*flat, np.zeros(1, flat[0].dtype)])[index]]

    return gathered
