"""Defines a case: operation, shapes, dtype and operands. Frozen; its id is a hash of its content.

The words are the same in ``Case(...)``, in JSON, on the command line, in the store and in figure
titles. Arrays are channels-last: x (batch, *spatial, in_channels), w (*kernel, in_channels/groups,
filters), b (filters,); ``length`` is the last spatial axis, ``height`` the ones before it.
Matrix products and sums have ``length`` rows and a kernel of 1: see :mod:`probe.case.operation`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import arguments, floats
from probe.case.arguments import (
    Numbers,
    Place,
    Sizes,
    axis_sizes,
    by,
    finite_numbers,
    flag,
    not_waiting,
    spelled_choice,
    whole_number,
)
from probe.case.errors import InputError, one_of
from probe.case.geometry import Padding, Pair, TransposedSizes, WindowSizes
from probe.case.layout import CONTIGUOUS
from probe.case.operands import KINDS, VERSION, generate
from probe.case.operation import OPERATIONS, Operation

# Further names of operations: Keras says Dense and Conv2DTranspose, PyTorch Linear and
# conv_transpose2d.
ALIASES = {
    "linear": "dense",
    "conv_transpose1d": "conv1d_transpose",
    "conv_transpose2d": "conv2d_transpose",
}

# Arguments that are younger than the first stored cases, with their defaults.
LATER: dict[str, object] = {
    "split": None,
    "ceil_mode": False,
    "pad_with": "nothing",
    "layout": CONTIGUOUS,
    "put": None,
}

# Bytes of the largest case file that is read: some 700,000 weights. Parsed, JSON takes up to 50
# times its size in memory.
LARGEST_FILE = 2**23

# What padding can put into a pooling window.
PAD_WITH = ("nothing", "zeros")


class Summed(ABC):
    """What the engine has to know of sums of products: a case, or what a recorded operation adds
    (:class:`probe.diff.sums.OperationSum`).

    An output is at a batch entry, a place of each spatial axis, and a filter. It multiplies the
    channels of its filter's group at the places that ``windows`` says with the filter's weights,
    and adds a bias unless that is None. ``kernel``: taps along each spatial axis; ``weighted``:
    False where there are no weights to choose; ``pool``: empty, unless it is a pool's case.
    ``windows``: :class:`probe.case.geometry.WindowSizes`, or has its ``outputs``, ``pads``,
    ``reads``.
    """

    op: str
    dtype: str
    batch: int
    in_channels: int
    filters: int
    groups: int
    if TYPE_CHECKING:  # attributes of some, properties of others

        @property
        def kernel(self) -> tuple[int, ...]: ...
        @property
        def bias(self) -> Any: ...
        @property
        def weighted(self) -> bool: ...
        @property
        def pool(self) -> str: ...
        @property
        def windows(self) -> Any: ...
        @property
        def spatial_rank(self) -> int: ...

    @abstractmethod
    def spatial(self, length: int | None = None) -> tuple[int, ...]:
        """Sizes of all spatial axes."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """What a session is told to run it."""

    @abstractmethod
    def drawn(self, kind: str, seed: int) -> Summed:
        """The same sums of other generated operands; a bias is generated, too."""

    @abstractmethod
    def operands(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The arrays x, w and b."""

    @property
    def group_channels(self) -> int:
        """How many input channels one filter reads."""
        return self.in_channels // self.groups

    @property
    def summands(self) -> int:
        """The number of products in each output, including padding, without the bias."""
        return math.prod(self.kernel) * self.group_channels

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(*kernel, in_channels / groups, filters)."""
        return (*self.kernel, self.group_channels, self.filters)

    def input_shape(self, length: int | None = None, batch: int | None = None) -> tuple[int, ...]:
        """(batch, *spatial, in_channels); None takes the case's own."""
        return (batch or self.batch, *self.spatial(length), self.in_channels)

    def output_spatial(self, length: int | None = None) -> tuple[int, ...]:
        """Output positions on each spatial axis; 0 where no window fits."""
        return self.windows.outputs(self.spatial(length))

    def pads(self, length: int | None = None) -> tuple[Pair, ...]:
        """Padding (before, after) of each spatial axis; ``length=None`` takes the case's own."""
        return self.windows.pads(self.spatial(length))

    def output_shape(self, length: int | None = None, batch: int | None = None) -> tuple[int, ...]:
        """(batch, *output positions, filters); None takes the case's own."""
        return (batch or self.batch, *self.output_spatial(length), self.filters)


@dataclass(frozen=True, init=False)
class Case(Summed):
    """Describes one computation. Every argument is checked; a wrong one raises InputError.

    ``kernel``, ``stride`` and ``dilation`` take an int (for every spatial axis), ``"1x5"`` or a
    tuple. ``filters=None`` is 1 (depthwise: ``in_channels``, and always a multiple of it; its
    groups are the channels). ``length=None`` leaves the last spatial axis open, for a sweep.
    ``height=None`` is the dilated kernel's extent. ``weights=None`` generates them; else all of
    them, row by row. ``bias``: None (no bias), one number for all filters, one for each, or
    ``"normal"`` (generated). ``padding``: see :mod:`probe.case.geometry`; ``operands``: see
    :data:`probe.case.operands.KINDS`. ``matmul``, ``dot``, ``sum`` and ``dense`` need no
    ``kernel``.

    ``split``: the first ``split`` channels go through one call and the rest through a second one,
    whose outputs are added (each rounded to the dtype; the bias is the first call's). None: one
    call for all channels.

    ``put``: values at places of the operands, instead of what is there, such as ``"x[0, 1]=nan"``
    or ``"x[0, 1, 3]=-inf; w[0]=1e38"``: an index, or the first numbers of one, which then stand for
    all beneath. Infinities and NaN are put so; places that a smaller case lacks are left out.

    Pooling alone: ``ceil_mode``: the last window may reach beyond the padded input (``caffe``
    padding always has it). ``pad_with``: what padding puts into a window: ``nothing`` (a maximum
    never takes it, an average does not count it) or ``zeros`` (PyTorch's ``count_include_pad``).

    ``layout``: how the library's own tensors lie in memory, see :mod:`probe.case.layout`.
    Libraries that
    copy what they are given keep none but ``contiguous``.
    """

    op: str
    kernel: tuple[int, ...]
    in_channels: int
    filters: int
    length: int | None
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    padding: Padding
    batch: int
    height: tuple[int, ...] | None
    dtype: str
    kind: str
    seed: int
    weights: tuple[float, ...] | None
    bias: float | str | tuple[float, ...] | None
    split: int | None
    ceil_mode: bool
    pad_with: str
    layout: str
    put: str | None

    def __init__(
        self,
        op: str = "",
        kernel: Sizes | None = None,
        in_channels: int | str = 1,
        filters: int | str | None = None,
        length: int | str | None = None,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        groups: int | str | None = None,
        padding: object = "valid",
        batch: int | str = 1,
        height: Sizes | None = None,
        dtype: str = "float32",
        operands: str = "normal",
        seed: int | str = 0,
        weights: Numbers | None = None,
        bias: Numbers | None = None,
        split: int | str | None = None,
        ceil_mode: bool | str = False,
        pad_with: str = "nothing",
        layout: str = CONTIGUOUS,
        put: str | None = None,
        **unknown: object,
    ) -> None:
        _refuse_unknown(unknown, _argument_names(type(self)))
        if op == "":
            todo = 'write Case("conv1d", kernel=5) or another of ' + ", ".join(OPERATIONS)
            raise InputError("op", "(none)", "it is required", todo)
        op = spelled_choice("op", op, (*OPERATIONS, *ALIASES))
        op = ALIASES.get(op, op)
        dtype = spelled_choice("dtype", dtype, floats.FORMATS)
        fields: dict[str, Any] = {"op": op}
        rank = OPERATIONS[op].spatial_rank
        fields["kernel"] = arguments.kernel_sizes(op, kernel, rank)
        fields["in_channels"] = whole_number("in_channels", in_channels)
        fields["groups"], fields["filters"] = arguments.channels(
            op, fields["in_channels"], groups, filters
        )
        fields["length"] = arguments.length(op, length, rank)
        fields["stride"] = axis_sizes("stride", stride, rank)
        fields["dilation"] = axis_sizes("dilation", dilation, rank)
        fields["padding"] = arguments.padding(padding, rank, OPERATIONS[op].transposed)
        fields["batch"] = whole_number("batch", batch)
        fields["height"] = None if height is None else arguments.height(height, rank)
        fields["dtype"] = dtype
        fields["kind"] = spelled_choice("operands", operands, KINDS)
        fields["seed"] = _seed(seed)
        fields["weights"] = None if weights is None else finite_numbers("weights", weights, dtype)
        fields["bias"] = arguments.bias(bias, dtype)
        fields["split"] = None if split is None else whole_number("split", split)
        fields["ceil_mode"] = flag("ceil_mode", ceil_mode)
        fields["pad_with"] = spelled_choice("pad_with", pad_with, PAD_WITH)
        fields["layout"] = arguments.layout(op, layout, dtype)
        ranks = {"x": rank + 2} | ({"w": rank + 2} if OPERATIONS[op].weighted else {})
        ranks |= {} if fields["bias"] is None else {"b": 1}
        fields["put"] = arguments.put_text(arguments.parse_put(put, ranks)) or None if put else None
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        arguments.check_absent(op, fields)
        self._check_fit()

    def _check_fit(self) -> None:
        """Raises InputError where windows don't fit or may hold padding alone, a split leaves one
        part or would split groups, or explicit numbers are too many or few."""
        if self.pool and not isinstance(self.padding, str):
            for pair, extent in zip(self.padding, self.effective_kernel, strict=True):
                if max(pair) >= extent:
                    why = f"a window of {extent} would hold padding alone"
                    raise InputError("padding", self.padding_text, why, f"use {extent - 1} or less")
        if self.split is not None and self.groups > 1:
            why = f"the channels of {self.groups} groups are already separate sums"
            raise InputError("split", self.split, why, "use groups=1")
        if self.split is not None and self.split >= self.in_channels:
            why = f"there are {self.in_channels} channels, which leaves none for the second call"
            raise InputError("split", self.split, why, "use fewer, or leave it out")
        if self.weights is not None and len(self.weights) != math.prod(self.weight_shape):
            shape = " x ".join(map(str, self.weight_shape))
            why = f"{len(self.weights)} weights for a kernel of shape {shape}"
            numbers = f"({len(self.weights)} numbers)"
            raise InputError("weights", numbers, why, "give all, row by row")
        if isinstance(self.bias, tuple) and len(self.bias) != self.filters:
            numbers, why = f"({len(self.bias)} numbers)", f"it does not fit filters={self.filters}"
            raise InputError("bias", numbers, why, "give one number, or one for each filter")
        axes = self.other_axes
        if self.length is not None and self.spatial_rank:
            axes = (*axes, self.length)
        for axis, outputs in enumerate(self.windows.outputs(axes)):
            if outputs < 1:
                size = axes[axis]
                name = "length" if axis == self.spatial_rank - 1 else "height"
                extent = self.effective_kernel[axis]
                why = f"shorter than the kernel, which spans {extent}; padding={self.padding_text}"
                if self.operation.transposed:
                    why = f"padding={self.padding_text} cuts off all of its outputs"
                todo = f"write {name}={self.windows.shortest(axis)} or more"
                raise InputError(name, size, why, todo)

    @property
    def operation(self) -> Operation:
        """Its operation's row."""
        return OPERATIONS[self.op]

    @property
    def spatial_rank(self) -> int:
        """How many spatial axes the operation has."""
        return self.operation.spatial_rank

    @property
    def weighted(self) -> bool:
        """False: all weights are 1, as in a sum, and the library is not given any."""
        return self.operation.weighted

    @property
    def pool(self) -> str:
        """``max``, ``avg`` or empty."""
        return self.operation.pool

    @property
    def rounds_up(self) -> bool:
        """Whether the last window may reach beyond the padded input: pooling alone."""
        return self.ceil_mode or (self.padding == "caffe" and bool(self.pool))

    @property
    def windows(self) -> WindowSizes:
        """Where its windows lie, and how many there are."""
        kind = TransposedSizes if self.operation.transposed else WindowSizes
        return kind(self.kernel, self.stride, self.dilation, self.padding, self.rounds_up)

    @property
    def effective_kernel(self) -> tuple[int, ...]:
        """What the dilated kernel spans on each spatial axis, in elements."""
        return self.windows.extents

    @property
    def other_axes(self) -> tuple[int, ...]:
        """Sizes of the spatial axes before the last; the kernel's extents where not given."""
        return self.effective_kernel[:-1] if self.height is None else self.height

    @property
    def shortest_length(self) -> int:
        """The smallest length that has an output."""
        return self.windows.shortest(self.spatial_rank - 1) if self.spatial_rank else 1

    def spatial(self, length: int | None = None) -> tuple[int, ...]:
        """Sizes of all spatial axes; ``length=None`` takes the case's own. Raises InputError."""
        length = self.length if length is None else length
        if length is None:
            raise InputError("length", None, "the case has no length", "give one, length=N")
        return (*self.other_axes, whole_number("length", length)) if self.spatial_rank else ()

    def drawn(self, kind: str, seed: int) -> Case:
        """The same sums of other generated operands; a bias is generated, too."""
        changes = {
            "kind": spelled_choice("operands", kind, KINDS),
            "seed": _seed(seed),
            "weights": None,
            "bias": None if self.bias is None else "normal",
            "put": None,
        }
        # no shape changes, and a reveal draws a dozen times: all else was checked when it was made
        drawn = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(drawn, name, value)
        return drawn

    def with_(self, **changes: Any) -> Case:
        """The same case with other arguments of ``Case``.

        What follows from another argument follows it: a depthwise case's groups and, unless they
        were given apart, its filters are its channels.
        """
        known = self.arguments()
        _refuse_unknown(changes, known)
        if self.operation.depthwise and {"op", "in_channels"} & set(changes):
            known["groups"] = None
            if self.filters == self.in_channels:
                known["filters"] = None
        return Case(**{**known, **changes})

    def arguments(self) -> dict[str, Any]:
        """The arguments that make this case, each in its normal form."""
        names = {"kind": "operands"}
        return {names.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}

    def to_json(self) -> dict[str, Any]:
        """All arguments as a JSON object; ``from_json`` gives an equal case.

        Arguments that came later (``LATER``) are there only where they are not at their defaults:
        cases were stored before they were known.
        """
        plain: dict[str, Any] = json.loads(json.dumps(self.arguments()))
        for name, default in LATER.items():
            if plain[name] == default:
                del plain[name]
        return plain

    @classmethod
    def from_json(cls, source: str | Mapping[str, Any]) -> Case:
        """The case of a JSON object or its text. InputError: unknown or missing keys."""
        try:
            fields = json.loads(source) if isinstance(source, str) else dict(source)
        except (ValueError, RecursionError) as error:
            # json's parser recurses into brackets, and a stranger's file may have any number
            why = (
                "nested too deeply" if isinstance(error, RecursionError) else f"not JSON ({error})"
            )
            raise InputError("case", str(source)[:40], why, "fix the text") from None
        if not isinstance(fields, dict):
            raise InputError(
                "case", repr(fields)[:40], "it is not a JSON object", 'write {"op": ...}'
            )
        _refuse_unknown(fields, _argument_names(cls))
        if "op" not in fields:
            raise InputError("op", None, "it is required", "add op to the case")
        return cls(**fields)

    @classmethod
    def from_file(cls, path: str | Path) -> Case:
        """The case in a JSON file. InputError: it can't be read, or is not a case."""
        try:
            if (size := not_waiting("case", Path(path)).stat().st_size) > LARGEST_FILE:
                why = f"{size:,} bytes, and a case has at most {LARGEST_FILE:,}"
                raise InputError("case", path, why, "give the JSON file of one case")
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not a text file"
            raise InputError("case", path, str(why), "give a JSON file with a case") from None
        except InputError as error:
            if error.name != "case":
                raise
            raise InputError("case", path, error.why, error.todo) from None

    @property
    def id(self) -> str:
        """16 hexadecimal digits that change with anything that changes the computation."""
        content = self.to_json() | {"height": self.other_axes, "content": VERSION}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def operands(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """x (batch, *spatial, in_channels), w (*kernel, in_channels/groups, filters), b (filters,).

        Arrays have the case's dtype (``ml_dtypes.bfloat16`` for bfloat16); b is None without a
        bias. The input of a shorter or smaller case is the prefix of a longer one's.
        """
        x, w, b = (
            None if array is None else floats.from_container(array, self.dtype)
            for array in generate(self)
        )
        assert x is not None and w is not None
        return x, w, b

    @property
    def places(self) -> tuple[Place, ...]:
        """What ``put`` puts where: operand, index and value."""
        rank = self.spatial_rank + 2
        return arguments.parse_put(self.put or "", {"x": rank, "w": rank, "b": 1})

    @property
    def bias_values(self) -> tuple[float, ...] | None:
        """The explicit bias of every filter; None if there is none or it is generated."""
        if self.bias is None or isinstance(self.bias, str):
            return None
        return self.bias if isinstance(self.bias, tuple) else (self.bias,) * self.filters

    def spec(self) -> dict[str, Any]:
        """What a worker needs to build the operator, as plain JSON; shapes are left to the arrays.

        ``padding`` is ``"valid"``, ``"same"``, ``"same_lower"`` or pairs; ``bias`` only says
        whether there is one. ``layout`` is there only where it is not ``contiguous``.
        """
        pads = self.padding
        if pads == "caffe":
            pads = self.windows.pads(self.windows.extents)
        spec: dict[str, Any] = {
            "op": self.op,
            "kernel": list(self.kernel),
            "stride": list(self.stride),
            "dilation": list(self.dilation),
            "groups": self.groups,
            "padding": pads if isinstance(pads, str) else [list(pair) for pair in pads],
            "dtype": self.dtype,
            "in_channels": self.in_channels,
            "filters": self.filters,
            "bias": self.bias is not None,
        }
        if self.pool:
            spec |= {"ceil_mode": self.rounds_up, "pad_with": self.pad_with}
        if self.split is not None:
            spec["split"] = self.split
        if self.layout != CONTIGUOUS:
            spec["layout"] = self.layout
        return spec

    @property
    def padding_text(self) -> str:
        """The padding as the command line writes it."""
        return arguments.padding_text(self.padding)

    @property
    def label(self) -> str:
        """A short text for figure titles: what differs from the defaults."""
        what = self.operation
        parts = [f"{self.op} {by(self.kernel)}" if what.windows else self.op]
        parts += [f"{self.in_channels}" + f" -> {self.filters}" * what.weighted]
        parts += [f"split {self.split}+{self.in_channels - (self.split or 0)}"] * bool(self.split)
        parts += [f"stride {by(self.stride)}"] * bool(set(self.stride) - {1})
        parts += [f"dilation {by(self.dilation)}"] * bool(set(self.dilation) - {1})
        grouped = self.groups > 1 and not what.depthwise
        parts += [f"{self.groups} groups"] * grouped
        parts += [self.padding_text] * (self.padding != "valid")
        parts += ["ceil mode"] * self.ceil_mode
        parts += [f"padded with {self.pad_with}"] * (self.pad_with != "nothing")
        parts += [f"batch {self.batch}"] * (self.batch > 1)
        has_length = self.length is not None and self.spatial_rank > 0
        high = self.height is not None or (has_length and self.spatial_rank > 1)
        parts += [f"height {by(self.other_axes)}"] * high
        parts += [f"length {self.length}"] * has_length
        parts += [self.layout] * (self.layout != CONTIGUOUS)
        parts += [self.dtype] * (self.dtype != "float32")
        parts += [self.kind] * (self.kind != "normal")
        parts += [self.put] if self.put else []
        return ", ".join(parts)


def _argument_names(kind: type) -> list[str]:
    """The arguments of ``Case``."""
    named = kind.__init__.__annotations__  # type: ignore[misc]
    return [name for name in named if name not in ("return", "unknown")]


def _refuse_unknown(fields: Mapping[str, Any], known: Iterable[str]) -> None:
    for name, value in fields.items():
        if name not in known:
            why, todo = "there is no such argument of a case", one_of(name, known)
            raise InputError(name, str(value)[:40], why, todo)


def _seed(seed: object) -> int:
    number = whole_number("seed", seed, least=0)
    if number >= 2**63:
        raise InputError("seed", seed, "it has more than 63 bits", "use a smaller one")
    return number


def require_length(case: Case) -> Case:
    """The case itself; InputError if its length is open."""
    if case.length is None:
        raise InputError("length", None, "the order depends on the shape", "give --length N")
    return require_places(case)


def require_places(case: Case) -> Case:
    """The largest case of a run itself; InputError if ``put`` names a place beyond it."""
    shapes = {"x": case.input_shape(), "w": case.weight_shape, "b": (case.filters,)}
    for name, at, _ in case.places:
        shape = shapes[name]
        if any(index >= size for index, size in zip(at, shape, strict=False)):
            why = (
                f"{name}[{', '.join(map(str, at))}] is beyond {name}, whose shape is {list(shape)}"
            )
            raise InputError("put", case.put, why, "indices begin at 0; put a value inside")
    return case
