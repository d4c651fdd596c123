"""TensorFlow's operations that go by indices, read whole axes or matrices, or are seldom used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from probe.recorders import written_at
from probe.recorders.tensorflow_lines import Call
from probe.semantics import (
    Each,
    Made,
    Meaning,
    Moves,
    Normalises,
    Pads,
    Reduces,
    Same,
    Scans,
    Step,
    Steps,
    Turns,
    Whole,
    operations,
)

Row = Callable[[Call], Meaning | None]


def _words(call: Call, *names: str) -> tuple[Any, ...]:
    return tuple((name, str(call.get(name, None))) for name in names)


def _rolled(call: Call) -> Meaning:
    shifts, axes = (call.arguments[n].reshape(-1).tolist() for n in (1, 2))
    return written_at.rolled(shifts, axes, len(call.inputs[0]))


def _scattered(call: Call) -> Meaning | None:
    index = call.values(0)
    if index is None:
        return None
    places = written_at.of_points(index, call.outputs[0])
    return written_at.written(places, call.outputs[0], (1,), 2, adds=True)


def _updated(call: Call) -> Meaning | None:
    index = call.values(1)
    if index is None:
        return None
    places = written_at.of_points(index, call.inputs[0])
    adds = call.op == "TensorScatterAdd"
    return written_at.written(places, call.inputs[0], (0, 2), 3, adds)


def _turned(call: Call) -> Meaning | None:
    lengths = call.values(1)
    if lengths is None:
        return None
    time, batch = int(call.get("seq_dim", 0)), int(call.get("batch_dim", 0))
    return written_at.turned(lengths, time, batch, call.inputs[0])


def _lrn(call: Call) -> Meaning:
    return Normalises((3,), "lrn", _words(call, "depth_radius", "bias", "alpha", "beta"))


def _band(call: Call) -> Meaning:
    lower, upper = (int(call.arguments[n].reshape(())) for n in (1, 2))

    def move(a: np.ndarray) -> np.ndarray:
        high, wide = a.shape[-2:]
        above = np.arange(wide) - np.arange(high)[:, None]
        keep = ((lower < 0) | (-above <= lower)) & ((upper < 0) | (above <= upper))
        return np.where(keep, a, np.zeros((), a.dtype))

    return Moves(move)


def _main(call: Call) -> bool:
    """Returns whether a matrix's operation is about its main diagonal."""
    return 1 not in call.arguments or not np.any(call.arguments[1])


def _diagonal(call: Call) -> Meaning | None:
    """The diagonal of a square matrix, with zeros elsewhere: with other numbers it is not known."""
    if not _main(call) or call.outputs[0][-2:] != (call.inputs[0][-1],) * 2:
        return None

    def move(a: np.ndarray) -> np.ndarray:
        found = np.zeros((*a.shape, a.shape[-1]), a.dtype)
        index = np.arange(a.shape[-1])
        found[..., index, index] = a
        return found

    if 4 in call.arguments and np.any(call.arguments[4]):
        return None
    return Steps((Step(Moves(move), (0,), call.outputs[0]),))


def _diagonal_of(call: Call) -> Meaning | None:
    if not _main(call):
        return None
    taken = Moves(lambda a: np.diagonal(a, axis1=-2, axis2=-1))
    return Steps((Step(taken, (0,), call.outputs[0]),))


def _diagonal_set(call: Call) -> Meaning | None:
    if 2 in call.arguments and np.any(call.arguments[2]):
        return None

    def move(a: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        found, index = np.array(a), np.arange(min(a.shape[-2:]))
        found[..., index, index] = diagonal
        return found

    return Moves(move)


def _segments(call: Call) -> Meaning:
    """Sums and the like over the first axis, in parts that the second input names."""
    return Whole(tuple((a, a) for a in range(1, len(call.inputs[0]))), call.op.lower())


def _boxes(call: Call) -> Meaning:
    """Every box reads the whole pictures, its corners, and which picture is its own."""
    words = (*_words(call, "method", "extrapolation_value"), call.outputs[0][1:])
    whole = Whole(((0, 0),), "crop_and_resize", words, (2,))
    return Steps((Step(whole, (1, 0, 2), call.outputs[0]),))


def _matrices(call: Call) -> Meaning | None:
    """Every output reads all of its own matrix."""
    lead = len(call.inputs[0]) - 2
    if len(call.inputs) > 1 and (lead > 1 or len(call.inputs[1]) != lead + 2):
        return None
    words = _words(call, "adjoint", "lower")
    rows = tuple(range(1, len(call.inputs))) * bool(lead)
    return Whole(tuple((a, a) for a in range(lead)), call.op.lower(), words, rows)


def _spectrum(call: Call) -> Meaning:
    """Fourier transforms over the last axes."""
    count = int(call.op[-2]) if call.op.endswith("D") else 1
    lead = len(call.inputs[0]) - count
    length = call.arguments[1].reshape(-1).tolist() if 1 in call.arguments else []
    return Whole(tuple((a, a) for a in range(lead)), call.op.lower(), tuple(length))


def _last(call: Call) -> Meaning:
    """Every output reads all of the last axis: colours."""
    return Whole(tuple((a, a) for a in range(len(call.inputs[0]) - 1)), call.op.lower())


def _losses(call: Call) -> Meaning | None:
    if call.inputs[0] != call.inputs[1]:
        return None
    return Whole(((0, 0),), "softmax_cross_entropy", (), (1,))


def _plane(call: Call) -> Meaning:
    """Every output reads all of its channel's plane."""
    whole = (
        *_words(call, "align_corners", "half_pixel_centers"),
        call.inputs[0][1:3],
        call.outputs[0][1:3],
    )
    return Whole(((0, 0), (3, 3)), call.op.lower(), whole)


def _cumulated(call: Call) -> Meaning | None:
    rank = len(call.inputs[0])
    axis, reverse = int(call.arguments[1]) % rank, bool(call.get("reverse", False))
    scan = Scans(axis, call.op.lower(), reverse)
    if not call.get("exclusive", False):
        return scan
    if call.op not in STARTS:
        return None
    moved = tuple(((-1, 1) if reverse else (1, -1)) if a == axis else (0, 0) for a in range(rank))
    shifted = Pads(moved, STARTS[call.op], str(call.get("T", "float32")))
    return Steps((Step(scan, (0,), call.inputs[0]), Step(shifted, (1,), call.outputs[0])))


STARTS = {"Cumsum": 0.0, "Cumprod": 1.0}
"""What an exclusive scan gives first."""


def _each(word: str, *names: str) -> Row:
    return lambda call: Each(word, "", _words(call, *names))


def _widened(call: Call) -> Meaning:
    """A dilation of grey levels: every output reads its channel's plane and the filter."""
    words = _words(call, "strides", "rates", "padding")
    return Whole(((0, 0), (3, 3)), "dilation2d", (*words, call.outputs[0][1:3]))


def _everything(call: Call) -> Meaning:
    return Whole((), call.op.lower())


def _same(call: Call) -> Meaning:
    return Moves(lambda *arrays: list(arrays)) if len(call.outputs) > 1 else Same()


ELEMENTS = (
    *("BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "BesselJ0", "BesselJ1", "BesselK0"),
    *("BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1", "Betainc", "Igamma"),
    *("Igammac", "Zeta", "Polygamma", "Xlog1py", "NextAfter", "Dawsn", "Expint", "FresnelCos"),
    *("FresnelSin", "Spence", "BitwiseXor", "LeftShift", "RightShift", "PopulationCount", "Conj"),
    *("Real", "Imag", "Angle", "ComplexAbs", "Complex"),
)
"""Functions of the elements at one place that only they have."""

PLACES: dict[str, Row] = {
    **{name: _each(name.lower()) for name in ELEMENTS},
    **dict.fromkeys(("TensorScatterUpdate", "TensorScatterAdd"), _updated),
    **dict.fromkeys(("MatrixDiag", "MatrixDiagV3"), _diagonal),
    **dict.fromkeys(("MatrixDiagPart", "MatrixDiagPartV3"), _diagonal_of),
    **dict.fromkeys(("MatrixSetDiag", "MatrixSetDiagV3"), _diagonal_set),
    **{
        f"{kind}{name}": _segments
        for name in ("Sum", "Max", "Min", "Prod", "Mean", "SumV2", "MaxV2", "MinV2", "ProdV2")
        for kind in ("Segment", "UnsortedSegment")
    },
    **dict.fromkeys(
        ("MatrixInverse", "MatrixDeterminant", "Cholesky", "MatrixExponential"), _matrices
    ),
    **dict.fromkeys(("Qr", "Svd", "SelfAdjointEigV2", "Eig", "Lu", "MatrixSquareRoot"), _matrices),
    **dict.fromkeys(("LogMatrixDeterminant", "MatrixLogarithm"), _matrices),
    **dict.fromkeys(("MatrixSolve", "MatrixTriangularSolve"), _matrices),
    **dict.fromkeys(("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D"), _spectrum),
    **dict.fromkeys(("RFFT", "RFFT2D", "RFFT3D", "IRFFT", "IRFFT2D", "IRFFT3D"), _spectrum),
    **dict.fromkeys(("HSVToRGB", "RGBToHSV", "Cross"), _last),
    **dict.fromkeys(("Where", "Unique", "UniqueV2", "ListDiff", "InvertPermutation"), _everything),
    **dict.fromkeys(("Bincount", "DenseBincount", "LinSpace", "HistogramFixedWidth"), _everything),
    **dict.fromkeys(("CheckNumerics", "CheckNumericsV2", "EnsureShape", "GuaranteeConst"), _same),
    "IdentityN": _same,
    "Roll": _rolled,
    "ScatterNd": _scattered,
    "ReverseSequence": _turned,
    "LRN": _lrn,
    "Dilation2D": _widened,
    "MatrixBandPart": _band,
    "CropAndResize": _boxes,
    "SoftmaxCrossEntropyWithLogits": _losses,
    **dict.fromkeys(("ResizeArea", "ResizeBilinear", "ResizeBicubic"), _plane),
    **dict.fromkeys(("Cumsum", "Cumprod", "CumulativeLogsumexp"), _cumulated),
    "ZerosLike": lambda call: Made(0),
    "L2Loss": lambda call: Reduces(tuple(range(len(call.inputs[0]))), "l2_loss"),
    "ConjugateTranspose": lambda call: Steps(
        (
            Step(Turns(tuple(map(int, call.arguments[1].reshape(-1)))), (0,), call.outputs[0]),
            Step(operations.function("conj"), (1,), call.outputs[0]),
        )
    ),
    "BiasAddV1": lambda call: operations.function("add"),
    "Bucketize": _each("bucketize", "boundaries"),
    "ApproximateEqual": _each("approximate_equal", "tolerance"),
    "FakeQuantWithMinMaxArgs": _each("fake_quant", "min", "max", "num_bits", "narrow_range"),
    "FakeQuantWithMinMaxVars": _each("fake_quant_vars", "num_bits", "narrow_range"),
    "FakeQuantWithMinMaxVarsPerChannel": _each("fake_quant_vars", "num_bits", "narrow_range"),
}
"""Rows as of :data:`probe.recorders.tensorflow_meanings.ROWS`."""
