"""``probe.assert_same_bits``: where two values, or what two functions give, differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.arguments import typed
from probe.case.errors import ProbeError
from probe.record.inputs import arrays_restored, listed_inputs
from probe.record.store import array_of, bits_of, named_arrays
from probe.record.subject import require_arguments
from probe.targets.progress import silent

# Elements that differ, of each array, which a message shows.
SHOWN = 3


@typed
def assert_same_bits(left: Any, right: Any, *, inputs: Any = None) -> None:
    """Raises AssertionError unless two values have the same bits: where they differ, and how far.

    ``left``, ``right``: arrays or tensors of any library, numbers, files (``pathlib.Path``), or
    these in dictionaries and lists. Zeros of different signs and NaNs of different payloads differ;
    dtypes and shapes count. Two functions are called, with ``inputs`` (an array, or several) if
    given; where they differ, ``probe.first_difference`` says at which operation and why.
    Errors: InputError for what has no bits of its own, such as arrays of objects.
    """
    __tracebackhide__ = True
    both = callable(left) and callable(right)
    arguments = listed_inputs(inputs)
    for side in (left, right) if both else ():
        require_arguments(side, arguments)
    sides = list[dict[str, Any]]()
    for side in (left, right):
        with arrays_restored(arguments):  # a function may change them, and may return one of them
            parts = named_arrays(side(*arguments) if both else side)
            sides.append(
                {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in parts}
                if both
                else dict(parts)
            )
    lines = []
    for name in dict.fromkeys((*sides[0], *sides[1])):
        if name not in sides[0] or name not in sides[1]:
            lines.append(f"{name}: only the {'left' if name in sides[0] else 'right'} side has it")
        elif bits_of(sides[0][name]) != bits_of(sides[1][name]):
            lines.append(where_they_differ(sides[0][name], sides[1][name], name or "out"))
    arrays = [[bits_of(array) for array in side.values()] for side in sides]
    if lines and both and arrays[0] == arrays[1]:
        lines.append(ONLY_FORM)
    elif lines and both:
        from probe.ui.answers.first_difference import first_difference

        try:
            several = arguments if inputs is not None else None
            difference = first_difference(left, right, inputs=several, progress=silent)
            lines += difference.lines()[1:] if difference.finding else [ONLY_FORM]
        except ProbeError as error:
            lines.append(f"no operation can be named: {error}")
    if lines:
        raise AssertionError("\n".join(lines))


def where_they_differ(
    left: Any, right: Any, name: str = "out", dtype: str = "", shown: int = SHOWN
) -> str:
    """Where two values differ, and by how many ulps: ``3 of 8 differ, by up to 2 ulp``.

    ``dtype``: the format of the numbers, where the arrays only hold their bits.
    """
    left_bits, right_bits = bits_of(left), bits_of(right)
    if dtype:
        left_bits = replace(left_bits, dtype=dtype)
        right_bits = replace(right_bits, dtype=dtype)
    if left_bits.dtype == "file" or right_bits.dtype == "file":
        return f"{name}: the files differ: {left_bits.text}, against {right_bits.text}"
    if isinstance(left, str) and isinstance(right, str):
        pairs = enumerate(zip(left, right, strict=False))
        same = next((i for i, pair in pairs if pair[0] != pair[1]), min(len(left), len(right)))
        parts = [repr(text[max(0, same - 10) : same + 30]) for text in (left, right)]
        return f"{name}: the texts part at character {same:,}: {', against '.join(parts)}"
    if (left_bits.dtype, left_bits.shape) != (right_bits.dtype, right_bits.shape):
        forms = [each.text.rpartition(" ")[0] for each in (left_bits, right_bits)]
        return f"{name}: {', against '.join(forms)}: dtypes or shapes differ"
    arrays = [np.ascontiguousarray(array_of(each)[0]) for each in (left, right)]
    number = left_bits.dtype in floats.FORMATS
    if number:
        arrays = [each.view(floats.container_of_format(left_bits.dtype)) for each in arrays]
    # a scalar has become a row
    a, b = (each.reshape(left_bits.shape) for each in arrays)
    # bytes are compared, not numbers: -0.0 == 0.0, and a NaN is not equal to itself
    size = a.dtype.itemsize
    # complex numbers and records have no whole number of their size
    unit = f"u{size}" if size in (1, 2, 4, 8) else f"V{size}"
    raw = [each.view(unit) for each in arrays]
    places = np.flatnonzero(np.asarray(raw[0] != raw[1]).reshape(-1))
    head = f"{name}: {len(places):,} of {a.size:,} differ"
    if number:
        distances = ulp.differences(a, b, left_bits.dtype)
        if not len(distances.index):
            return f"{head}, in the signs of zeros or the payloads of NaNs alone"
        most = ulp.largest_ulp(distances)
        head += ", numbers against NaN" if most is None else f", by up to {most:,} ulp"
    examples = []
    for at in map(int, places[:shown]):
        index = [int(n) for n in np.unravel_index(at, a.shape)] if a.ndim else ""
        texts = []
        for flat in (a.reshape(-1)[at : at + 1], b.reshape(-1)[at : at + 1]):
            text = str(flat[0])
            if number:
                value = (
                    flat
                    if left_bits.dtype.startswith("float")
                    else floats.widen(flat, left_bits.dtype)
                )
                text = f"{value[0]} ({int(floats.to_bits(flat, left_bits.dtype)[0]):#x})"
            texts.append(text)
        examples.append(f"{name}{index}={texts[0]}, against {texts[1]}")
    return f"{head}: {'; '.join(examples)}{'; ...' * (len(places) > shown)}"


ONLY_FORM = (
    "one after the other the arrays have the same numbers, so no operation is a source: their "
    "names, signs of zeros or payloads of NaNs differ"
)
