"""Checks what people write in Python, in JSON or on the command line, and converts it to values.

The first functions are for any argument, the last ones for those of a case.
Every function raises InputError with the argument's name, what was given and what to write.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from probe.case import floats
from probe.case import layout as layouts
from probe.case.errors import InputError, one_of
from probe.case.geometry import BY_SIZE, CONVENTIONS, Padding
from probe.case.operation import OPERATIONS

Numbers = float | str | Iterable[float]
Sizes = int | str | Iterable[int]


def by(entries: Iterable[int]) -> str:
    """Sizes as the command line writes them: ``5``, ``1x5``."""
    return "x".join(map(str, entries))


def whole_number(name: str, value: object, least: int = 1) -> int:
    """``value`` as an int of at least ``least``; text of digits is taken too. Raises InputError."""
    whole = isinstance(value, (int, str, np.integer)) and not isinstance(value, bool)
    try:
        number = int(value) if whole else None  # type: ignore[call-overload]
    except ValueError:
        number = None
    if number is None:
        raise InputError(name, value, "it is not a whole number", f"write {name}={least} or more")
    if number < least:
        raise InputError(name, value, f"it is less than {least}", f"write {name}={least} or more")
    return number


def optional_number(name: str, value: object, least: int = 1) -> int | None:
    """As ``whole_number``; None stays None."""
    return None if value is None else whole_number(name, value, least)


Function = TypeVar("Function", bound=Callable[..., Any])


def typed(function: Function) -> Function:
    """Has a public function refuse arguments of other types than its annotations name.

    InputError, as of ``require_types``.
    """
    signature = inspect.signature(function)
    annotations = {name: str(p.annotation) for name, p in signature.parameters.items()}

    @functools.wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*given, **named).arguments
        except TypeError as error:
            raise _unbound(function.__name__, annotations, given, named, error) from None
        for name, value in bound.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                for each in value:
                    require_types(annotations, {name: each})
            elif kind is not inspect.Parameter.VAR_KEYWORD and name != "self":
                require_types(annotations, {name: value})
        return function(*given, **named)

    return checked  # type: ignore[return-value]


def _unbound(
    function: str,
    names: Collection[str],
    given: Collection[object],
    named: Mapping[str, object],
    error: TypeError,
) -> InputError:
    """The error of a call that lacks an argument, or has one that the function doesn't take."""
    unknown_name = next((name for name in named if name not in names), "")
    if unknown_name:
        why = f"probe.{function} takes no such argument"
        return InputError(unknown_name, named[unknown_name], why, one_of(unknown_name, names))
    why = f"probe.{function}: {error}"
    count = f"{len(given) + len(named)} of them"
    return InputError("arguments", count, why, f"it takes {', '.join(names)}")


def require_types(annotations: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Raises InputError where a value has none of the types that its annotation names.

    Each is looked at by its name, without what stands in brackets: ``str | Path | None``.
    """
    for name, value in values.items():
        words = annotations[name]
        while "[" in words:  # the innermost ones first: ``Sequence[tuple[int, ...]] | str``
            words = re.sub(r"\[[^\[\]]*\]", "", words)
        if not any(_is_of(value, word.rpartition(".")[2]) for word in words.split(" | ")):
            why = f"its type is {type(value).__name__}"
            raise InputError(name, value, why, f"give {annotations[name]}")


# Types that are accepted beside the annotated one; the callee parses strings of numbers.
_ALSO = {"int": ("integer", "str"), "float": ("int", "str", "number"), "bool": ("int", "bool_")}


def _is_of(value: object, word: str) -> bool:
    # Case, Target and Lengths have checks of their own, which also say what to write
    if word in ("Any", "object", "Case", "Target", "Lengths") or (word == "None" and value is None):
        return True
    if word in ("Callable", "Tell", "Say"):
        return callable(value)
    if word in ("Iterable", "Sequence"):
        return hasattr(value, "__iter__")
    names = {kind.__name__ for kind in type(value).__mro__}
    return (
        word in names
        or bool(names.intersection(_ALSO.get(word, ())))
        or (word == "Mapping" and isinstance(value, Mapping))
    )


def require_unwritten(name: str, folder: Path | None, todo: str = "give another folder") -> None:
    """Refuses a file, a folder that has files, or one that can't be made, before anything runs.
    InputError."""
    if folder is None:
        return
    if folder.is_file():
        raise InputError(name, folder, "it is a file", "give a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(name, folder, "the folder has files that would be overwritten", todo)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:  # work that fails leaves no empty folders
            path.rmdir()
    except OSError as error:
        why = error.strerror or "it can't be made"
        raise InputError(name, folder, why, "give a folder that can be made") from None


def not_waiting(name: str, path: Path) -> Path:
    """The path of a file, a folder or of nothing. InputError: it is anything else.

    Reading a FIFO waits for a writer, for ever; a device may have no end.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        why = "it is a FIFO, a socket or a device"
        raise InputError(name, path, why, "give a file that lies on a disk")
    return path


# Parts of a key of TOML: its parser takes the square of their number of steps.
MOST_PARTS = 500


def parsed_toml(text: str) -> dict[str, Any]:
    """What a text of TOML says. ValueError: it is not TOML, or nested too deeply."""
    import tomllib

    if any(line.partition("=")[0].count(".") >= MOST_PARTS for line in text.splitlines()):
        raise ValueError("nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def axis_sizes(name: str, value: object, rank: int) -> tuple[int, ...]:
    """One size for each of ``rank`` axes, from ``5``, ``"5"``, ``"1x5"`` or ``(1, 5)``."""
    if isinstance(value, str):
        entries: list[object] = list(value.split("x"))
    elif isinstance(value, (tuple, list, np.ndarray)):
        entries = list(value)
    else:
        entries = [value]
    if not rank and any(str(entry) != "1" for entry in entries):
        raise InputError(name, value, "this operation has no spatial axis", "leave it out")
    if len(entries) == 1:
        entries *= rank
    if len(entries) != rank:
        form = "x".join(["N"] * rank)
        raise InputError(
            name, value, f"{len(entries)} sizes for {axes_text(rank)}", f"write {name}={form}"
        )
    return tuple(whole_number(name, entry) for entry in entries)


def finite_numbers(name: str, value: Numbers, dtype: str) -> tuple[float, ...]:
    """Finite numbers that ``dtype`` can hold, from text with commas, a number or a sequence."""
    todo = "write finite numbers separated by commas; put=w[...]=nan sets others"
    try:
        parts = value.split(",") if isinstance(value, str) else np.ravel(np.asarray(value)).tolist()
        result = tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        raise InputError(name, value, "it is not a list of numbers", todo) from None
    values = np.array(result, dtype=np.float64)
    finite = np.isfinite(floats.widen(floats.round_to(values, dtype), dtype))
    if not finite.all():
        raise InputError(name, values[~finite][0], f"no finite {dtype}", todo)
    return result


_PUT = re.compile(r"([xwb])\[([0-9, ]*)\]=(\S+)$")
PUTS = "write x[0, 1]=nan, several separated by semicolons; x is (batch, *spatial, channels)"

# An operand, an index into it (or the first numbers of one), and the value put there.
Place = tuple[str, tuple[int, ...], float]


def parse_put(value: str, ranks: Mapping[str, int]) -> tuple[Place, ...]:
    """What ``x[0, 1]=nan; w[3]=inf`` puts where. ``ranks``: axes of each operand."""
    places = []
    for part in str(value).split(";"):
        if not part.strip():
            continue
        match = _PUT.match(part.strip().replace(" =", "=").replace("= ", "="))
        if not match:
            raise InputError("put", value, f"{part.strip()!r} names no operand and value", PUTS)
        name, inside, text = match.groups()
        try:
            index = tuple(int(number) for number in inside.split(",")) if inside.strip() else ()
            number = float(text)
        except ValueError:
            raise InputError("put", value, f"{part.strip()!r} is not index=number", PUTS) from None
        if name not in ranks:
            raise InputError("put", value, f"the case has no {name}", PUTS)
        if len(index) > ranks[name]:
            why = f"{len(index)} numbers, and {name} has {axes_text(ranks[name])}"
            raise InputError("put", value, why, PUTS)
        places.append((name, index, number))
    return tuple(places)


def put_text(places: Iterable[Place]) -> str:
    """Places as the command line writes them; ``parse_put`` gives them back."""
    return "; ".join(f"{name}[{', '.join(map(str, at))}]={value!r}" for name, at, value in places)


def flag(name: str, value: object) -> bool:
    """``value`` as a bool; 0, 1 and text such as ``true`` or ``0`` are taken too."""
    words = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in words:
        raise InputError(name, value, "it is neither true nor false", f"write {name}=true")
    return words[str(value).lower()]


MOST = 1_000_000
_SPAN = re.compile(r"(-?\d+)(?:\.\.(-?\d+)(?::(-?\d+))?)?$")
SPANS = "write 5..64, 5..64:3 for every third, or 5,7,9..12"


def whole_numbers(name: str, text: str) -> list[int]:
    """The numbers of ``text``, ascending, each once, ends of ranges too. InputError."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = _SPAN.match(part.strip())
        if not match:
            raise InputError(name, text, f"{part.strip()!r} is not a number or a range", SPANS)
        first, last, step = (None if word is None else int(word) for word in match.groups())
        assert first is not None
        if step is not None and step < 1:
            raise InputError(name, text, f"the step {step} is less than 1", SPANS)
        span = range(first, (first if last is None else last) + 1, step or 1)
        if not span:
            raise InputError(name, text, f"{part.strip()} runs backwards", SPANS)
        if span[0] < 1:
            raise InputError(name, text, f"{span[0]} is less than 1", "leave it out")
        if len(numbers) + len(span) > MOST:
            raise InputError(name, text, f"more than {MOST} numbers", "take steps: 5..1000000:1000")
        numbers.update(span)
    return sorted(numbers)


def axes_text(count: int, kind: str = "") -> str:
    """``1 axis``, ``2 spatial axes``."""
    return f"{count} {kind}{'axis' if count == 1 else 'axes'}"


def choice(name: str, value: object, known: Iterable[str]) -> str:
    """``value`` if it is one of ``known``; else InputError lists them."""
    names = list(known)
    if value not in names:
        raise InputError(name, value, "unknown", one_of(value, names))
    return str(value)


def spelled_choice(name: str, value: object, known: Collection[str]) -> str:
    """As ``choice``, but libraries' spellings will do: DepthwiseConv2D is depthwise_conv2d."""
    if isinstance(value, str) and value in known:
        return value
    same = [word for word in known if _letters(word) == _letters(value)]
    return same[0] if len(same) == 1 else choice(name, value, known)


def _letters(value: object) -> str:
    return str(value).lower().translate(str.maketrans("", "", " _-"))


def padding(value: object, rank: int, transposed: bool = False) -> Padding:
    """The normal form of a padding for ``rank`` spatial axes: a convention's name or all pairs.

    Takes a convention, an int, ``"N"``, ``"L:R"``, ``"0:1,2:2"``, or a sequence with an int or a
    pair for each axis; a single entry serves every axis. Raises InputError.
    """
    if isinstance(value, str) and value.strip().lower() in CONVENTIONS:
        return value.strip().lower()
    entries: Sequence[object]
    if isinstance(value, str):
        entries = [tuple(part.split(":")) if ":" in part else part for part in value.split(",")]
    elif isinstance(value, Sequence):
        entries = value
    else:
        entries = [value]
    if len(entries) not in (1, rank):
        why = f"{len(entries)} entries for {axes_text(rank, 'spatial ')}"
        raise InputError("padding", value, why, PADDINGS)
    pairs = []
    for entry in entries:
        both = tuple(entry) if isinstance(entry, (tuple, list)) else (entry, entry)
        if len(both) != 2:
            raise InputError("padding", value, f"{entry} is not a pair before:after", PADDINGS)
        try:
            # int() would take True for 1, and 1.5 too
            if any(isinstance(side, (bool, float)) for side in both):
                raise ValueError
            before, after = (int(side) for side in both)
        except (TypeError, ValueError):
            why = f"{entry} is not a whole number or pair"
            raise InputError("padding", value, why, PADDINGS) from None
        if before < 0 or (after < 0 and not transposed):
            todo = "crop the input instead"
            if transposed:
                todo = "only outputs after the last can be added: 0:-1 is output_padding=1"
            raise InputError("padding", value, "padding can't be negative", todo)
        pairs.append((before, after))
    return tuple(pairs * rank if len(pairs) == 1 else pairs)


PADDINGS = (
    "use valid, same, same_lower, caffe, N, L:R, "
    "or one of N and L:R for each spatial axis such as 0:1,2:2"
)


def padding_text(padding: Padding) -> str:
    """The padding as the command line writes it; ``padding`` gives it back."""
    if isinstance(padding, str):
        return padding
    sides = [f"{before}" if before == after else f"{before}:{after}" for before, after in padding]
    return sides[0] if len(set(sides)) == 1 else ",".join(sides)


def length(op: str, value: object, rank: int) -> int | None:
    """The last spatial axis; None leaves it open, 1 where there is no such axis."""
    size = None if value is None else whole_number("length", value)
    if rank or size == 1:
        return size
    if size is None:
        return 1
    why = f"{op} has no length: its rows are its batch"
    raise InputError("length", size, why, "leave it out, and write batch=N")


def layout(op: str, text: object, dtype: str) -> str:
    """How operands lie in memory, as it is stored: see :mod:`probe.case.layout`. InputError."""
    try:
        word = layouts.parse_layout(text)
    except ValueError as error:
        raise InputError("layout", text, str(error), layouts.HOW) from None
    images = OPERATIONS[op].windows and OPERATIONS[op].spatial_rank > 1
    if word == "channels_last" and not images:
        why = f"this memory format is for 2 or 3 spatial axes, and {op} has fewer"
        raise InputError("layout", word, why, "use transposed, which has channels last too")
    size = floats.container_of_format(dtype).itemsize
    if layouts.offset(word) > 0 and layouts.offset(word) % size:
        why = f"elements of {dtype} have {size} bytes"
        raise InputError("layout", word, why, f"use a multiple of {size}")
    return word


def kernel_sizes(op: str, size: Sizes | None, rank: int) -> tuple[int, ...]:
    """The kernel on every axis; 1 for an operation without one."""
    if size is not None:
        return axis_sizes("kernel", size, rank)
    if OPERATIONS[op].windows:
        raise InputError("kernel", None, "it is required", "write kernel=N, its size")
    return (1,) * rank


def bias(value: object, dtype: str) -> float | str | tuple[float, ...] | None:
    """One number for all filters, a number for each, ``normal``, or None: there is none."""
    if value is None or value in ("", "none"):
        return None
    if value == "normal":
        return "normal"
    values = finite_numbers("bias", value, dtype)  # type: ignore[arg-type]
    single = isinstance(value, (int, float)) or (isinstance(value, str) and len(values) == 1)
    return values[0] if single else values


def height(value: Sizes, rank: int) -> tuple[int, ...]:
    """The spatial axes before the last."""
    if rank > 1:
        return axis_sizes("height", value, rank - 1)
    why = f"this operation has {'one' if rank else 'no'} spatial axis" + " only" * rank
    raise InputError("height", value, why, "leave it out, or use conv2d")


def channels(op: str, channels: int, groups: object, filters: object) -> tuple[int, int]:
    """Groups and filters with their defaults, checked against the channels."""
    depthwise = OPERATIONS[op].depthwise
    default = channels if depthwise else 1
    group_count = default if groups is None else whole_number("groups", groups)
    filter_count = default if filters is None else whole_number("filters", filters)
    if depthwise and group_count not in (1, channels):
        why = f"a depthwise operator has as many groups as channels, {channels}"
        raise InputError("groups", group_count, why, "leave it out")
    group_count = channels if depthwise else group_count
    for name, number in (("in_channels", channels), ("filters", filter_count)):
        if number % group_count:
            why = f"not divisible by the {group_count} groups"
            todo = f"use a multiple of {group_count}" + ("" if depthwise else ", or other groups")
            raise InputError(name, number, why, todo)
    return group_count, filter_count


def check_absent(op: str, fields: Mapping[str, Any]) -> None:
    """Raises InputError where ``fields``, a case's fields, says what the operation hasn't got."""
    what, fixed = OPERATIONS[op], dict[str, Any]()
    if not what.windows:
        ones = (1,) * what.spatial_rank
        fixed |= {"kernel": ones, "stride": ones, "dilation": ones}
        fixed |= {"groups": 1, "padding": "valid"}
    if not what.weighted:
        filters = fields["in_channels"] if what.pool else 1
        fixed |= {"filters": filters, "weights": None, "bias": None}
    if not what.pool:
        fixed |= {"ceil_mode": False, "pad_with": "nothing"}
    if not what.batched:
        fixed["batch"] = 1
    if fields["ceil_mode"] and fields["padding"] in BY_SIZE:
        why = f"{fields['padding']} has ceil(size / stride) outputs already"
        raise InputError("ceil_mode", True, why, "leave it out")
    for name, value in fixed.items():
        if fields[name] != value:
            shown = by(fields[name]) if name in ("kernel", "stride", "dilation") else fields[name]
            raise InputError(name, shown, f"{op} has none", "leave it out")
