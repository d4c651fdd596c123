"""Defines the floating-point formats: bits, values, and correct rounding between them.

A *container* is the NumPy array a format travels in: ``float16``, ``float32`` and ``float64`` as
themselves, ``bfloat16`` as ``uint16`` bit patterns, so that a worker needs no library but NumPy.
This file also runs in the targets' interpreters (Python 3.6, NumPy 1.11).
"""

from collections import namedtuple

import numpy as np

# ``precision`` counts the hidden bit; ``emin`` and ``emax`` are the exponents of the smallest
# normal and the largest finite value, as in IEEE 754; ``unit`` is the unsigned type of the bits.
# The rest is for questions about sums: ``wider`` are the formats in which libraries keep partial
# sums beyond their own, the nearest first; ``big`` is the exponent of masks, ``low`` and ``high``
# bound the exponents of what is added beside each other, with room for sums on both sides.
Format = namedtuple("Format", "name bits precision emax emin unit wider big low high")

# The formats an array may have: a new one is a row here.
FORMATS = {
    # too few binades for a unit of 1: its smallest subnormal is the unit, and 2^15 swallows 2^11 of
    # these in a float32 accumulator as well as in a float16 one
    "float16": Format("float16", 16, 11, 15, -14, "uint16", ("float32", "float64"), 15, -24, 15),
    "bfloat16": Format(
        "bfloat16", 16, 8, 127, -126, "uint16", ("float32", "float64"), 100, -116, 124
    ),
    "float32": Format("float32", 32, 24, 127, -126, "uint32", ("float64",), 100, -116, 124),
    "float64": Format("float64", 64, 53, 1023, -1022, "uint64", (), 600, -1000, 1000),
}

# Grids that values may be rounded to inside an operator. No array is ever in TF32.
GRIDS = dict(FORMATS, tf32=FORMATS["float32"]._replace(name="tf32", bits=19, precision=11))


def format_of(name: str) -> Format:
    """The format of that name, ``tf32`` included. ValueError lists the names there are."""
    try:
        return GRIDS[name]
    except KeyError:
        known = ", ".join(sorted(GRIDS))
        raise ValueError(f"format={name}: there is no such format; write one of {known}") from None


def container_of_format(name: str) -> np.dtype:
    """The dtype in which arrays of that format travel; ``bfloat16`` travels as ``uint16``."""
    if name not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise ValueError(f"dtype={name}: no array has this format; write one of {known}")
    return np.dtype("uint16" if name == "bfloat16" else name)


def eps(name: str) -> float:
    """The distance from 1 to the next larger value of the format."""
    return 2.0 ** (1 - format_of(name).precision)


def largest_finite(name: str) -> float:
    form = format_of(name)
    return (2.0 - eps(name)) * 2.0**form.emax


def flushed_below(name: str, tininess=None) -> float:
    """The least magnitude that stays where subnormal results become zero.

    An exact result below it is flushed. Processors differ in when they look, by IEEE 754's 7.5:
    ``tininess`` None: after rounding as if exponents had no end (x86), so that what rounds up to
    the smallest normal number 2^emin stays; ``"before"``: before rounding (ARM), so that the bound
    is 2^emin; ``"grid"``: after rounding to the format's own subnormal grid.
    """
    form = format_of(name)
    spare = {None: form.precision + 1, "before": None, "grid": form.precision}[tininess]
    # half an ulp of a number just below 2^emin; of float64 it is beyond float64's digits
    return 2.0**form.emin * (1.0 if spare is None or spare > 53 else 1.0 - 2.0**-spare)


def to_container(array: np.ndarray, name: str) -> np.ndarray:
    """The same bits as a container array (a view); also takes ``ml_dtypes.bfloat16`` arrays.

    Values are never converted: another dtype is a TypeError.
    """
    array, wanted = np.asarray(array), container_of_format(name)
    if array.dtype == wanted:
        return array
    if array.dtype.name == name:
        return array.view(wanted)
    raise TypeError(f"dtype={array.dtype}: {name} arrays travel as {wanted}; round them first")


def from_container(array: np.ndarray, name: str) -> np.ndarray:
    """The public array of a container array (a view): ``ml_dtypes.bfloat16`` for bfloat16."""
    array = to_container(array, name)
    if name != "bfloat16":
        return array
    import ml_dtypes  # only where people meet the values: a worker has no ml_dtypes

    return array.view(ml_dtypes.bfloat16)


def to_bits(array: np.ndarray, name: str) -> np.ndarray:
    """The bit patterns of a container array as unsigned integers, of the same shape (a view)."""
    return to_container(array, name).view(format_of(name).unit)


def from_bits(bits: np.ndarray, name: str) -> np.ndarray:
    """The container array with these bit patterns; other integers are converted."""
    return np.asarray(bits).astype(format_of(name).unit, copy=False).view(container_of_format(name))


def widen(array: np.ndarray, name: str) -> np.ndarray:
    """The exact values of a container array as float64, of the same shape."""
    array = to_container(array, name)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        if name == "bfloat16":
            array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return array.astype(np.float64)


def is_finite(array: np.ndarray, name: str) -> np.ndarray:
    """Which values of a container array are neither infinite nor NaN: bool of the same shape."""
    finite: np.ndarray = np.isfinite(widen(array, name))
    return finite


def nearest(values: np.ndarray, name: str) -> np.ndarray:
    """float64 values rounded once to the grid of a format (``tf32`` too), kept as float64.

    To the nearest, ties to even; subnormal results and overflow to infinity are the format's own.
    """
    form = format_of(name)
    values = np.asarray(values, dtype=np.float64)
    if form.precision == 53:
        return values.copy()
    if name == "float32":  # the processor's own conversion, several times faster
        with np.errstate(all="ignore"):
            return values.astype(np.float32).astype(np.float64)
    drop = np.uint64(53 - form.precision)
    one = np.uint64(1)
    with np.errstate(all="ignore"):
        bits = values.view(np.uint64)
        rounded = bits + ((one << (drop - one)) - one) + ((bits >> drop) & one)
        rounded = ((rounded >> drop) << drop).view(np.float64)
        # Below the normal range the grid is even: adding and taking away a constant rounds to it.
        shift = 1.5 * 2.0 ** (form.emin - form.precision + 53)
        magnitude = np.abs(values)
        rounded = np.where(
            magnitude < 2.0**form.emin, np.copysign(values + shift - shift, values), rounded
        )
        over = np.abs(rounded) > largest_finite(name)
        rounded = np.where(over, np.copysign(np.inf, values), rounded)
        return np.where(magnitude < np.inf, rounded, values)


def round_to(values: np.ndarray, name: str) -> np.ndarray:
    """float64 values to a container array, each rounded once: to the nearest, ties to even."""
    wanted = container_of_format(name)
    with np.errstate(all="ignore"):
        if name in ("float32", "float64"):
            return np.asarray(values, dtype=np.float64).astype(wanted)
        exact = nearest(values, name)  # NumPy's own float16 rounding differs in old releases
        if name == "float16":
            return exact.astype(np.float16)
        return (exact.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def cut_to(values: np.ndarray, name: str) -> np.ndarray:
    """float64 values to a container array, each rounded toward zero: finite ones stay finite."""
    rounded = round_to(values, name)
    bits = to_bits(rounded, name)
    with np.errstate(invalid="ignore"):
        # rounding went away from zero: one step back, since patterns of one sign rise with their
        # size
        beyond = np.abs(widen(rounded, name)) > np.abs(values)
    return from_bits(bits - beyond.astype(bits.dtype), name)


def round_float32_to(values: np.ndarray, name: str) -> np.ndarray:
    """float32 values to a container array, each rounded once. Fast where the format is bfloat16."""
    values = np.asarray(values, dtype=np.float32)
    if name != "bfloat16":
        return round_to(values, name)
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        rounded = (bits + (np.uint32(0x7FFF) + odd)) >> np.uint32(16)
    # a NaN whose payload lies in the lower half would become an infinity
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def bits_text(bits: int, name: str) -> str:
    """One value as people read it: ``97.20009 (0x42c26672)``, shortest digits, then the bits."""
    form = format_of(name)
    value = from_bits(np.array([int(bits)], dtype=form.unit), name)
    if name == "bfloat16":
        value = widen(value, name).astype(np.float32)
    return "{} (0x{:0{}x})".format(str(value[0]), int(bits), form.bits // 4)


def rounded_text(value):
    """As many digits as a value deserves: 0.13, 1.8, 47, 5e+31; empty for None, NaN."""
    if value is None or np.isnan(value):
        return ""
    if value >= 1e12:
        return "{:.2g}".format(value)
    return "{:,.0f}".format(value) if value >= 10 else "{:.2g}".format(value)
