"""One sweep in the child: the longest case once, then every shorter one against it.

Only results leave: counts, digests and the places that differ. Runs in the targets' interpreters
(Python 3.6, NumPy and one library).
"""

import hashlib
import sys
import time
import traceback

import numpy as np

from probe import floats, ulp

#: A reply is sent when this much time has passed, or this much has been found, since the last one.
INTERVAL = 0.05
LARGEST = 1 << 22

EQUAL, DIFFERS, ALIGNMENT = "equal", "differs", "alignment differs"


def control(prepared, output, dtype):
    """Whether the same shape gives the same bits: again, then from another alignment.

    ``equal``, ``differs`` (with the very same buffers) or ``alignment differs``.
    """
    if not ulp.equal(output, prepared.run()[0], dtype):
        return DIFFERS
    moved = prepared.realigned()
    return EQUAL if ulp.equal(output, moved.run()[0], dtype) else ALIGNMENT


def sweep(call, header, describe):
    """Answers of one ``sweep`` request: (header, arrays) pairs, the last with ``done``.

    ``header``: ``vary``, ``against``, ``control`` (``every`` or ``differing``) and ``items``, each
    ``[at, left, right]``: the value of the axis, and the slices (``[start, stop, step]`` for each
    axis) of the outputs at ``at`` and at ``against`` that must agree. ``describe``: exception ->
    ``(kind, message)``; an item that fails is listed under ``failures`` and the others go on.

    Each answer has the columns ``at``, ``compared``, ``differing``, ``max_ulp`` (-1: no distance
    is a number), ``first`` (-1: none), ``seconds``, the lists ``control`` (None: not run),
    ``digest_at`` and ``digest_against``, and of all differing outputs, one item after the other,
    ``index`` (flat in the whole output at ``at``), ``index_against`` (flat in the other),
    ``bits_at``, ``bits_against`` and ``ulps``. ``shape_against`` is the shape of the base.
    """
    base = _Base(call, header)
    batch = _Batch(base)
    for at, left, right in header["items"]:
        try:
            batch.add(at, *base.compare(at, left, right))
        except Exception as error:  # noqa: BLE001 (the other items go on)
            traceback.print_exc(file=sys.stderr)
            batch.failures.append([at] + list(describe(error)))
        if batch.full():
            yield batch.answer()
            batch = _Batch(base)
    answer, arrays = batch.answer()
    yield dict(answer, done=True), arrays


class _Base:
    """The outputs at ``against``, and what is done with one item."""

    def __init__(self, call, header):
        self.call, self.vary = call, header["vary"]
        self.every = header.get("control", "every") == "every"
        self.dtype = call.spec["dtype"]
        prepared = call.at({self.vary: header["against"]})
        self.output = prepared.run()[0].copy()
        self.control = control(prepared, self.output, self.dtype)
        self.digest = PrefixDigest()

    def compare(self, at, left, right):
        """The scalars of one item and its differences, ``ulp.Differences`` or None."""
        prepared = self.call.at({self.vary: at})
        output, seconds = prepared.run()
        mine, theirs = output[_slices(left)], self.output[_slices(right)]
        found = ulp.differences(mine, theirs, self.dtype)
        differing = len(found.index)
        checked = None
        if self.every or differing:
            checked = control(prepared, output, self.dtype)
            if checked == EQUAL:
                checked = self.control
        digests = self._digests(mine, theirs, differing)
        scalars = [mine.size, differing, seconds, checked, digests]
        return scalars, self._places(found, left, right, mine.shape, output.shape)

    def _digests(self, mine, theirs, differing):
        against = self.digest.of(theirs)
        if not differing and mine.nbytes > 1 << 14:
            bits = [floats.to_bits(side, self.dtype) for side in (mine, theirs)]
            if np.array_equal(*bits):
                return against, against
        return digest(mine), against

    def _places(self, found, left, right, compared, shape):
        if not len(found.index):
            return None
        place = np.unravel_index(found.index, compared)
        index = _flat(place, left, shape)
        return index, _flat(place, right, self.output.shape), found


def _slices(ranges):
    return tuple([slice(start, stop, step) for start, stop, step in ranges])


def _flat(place, ranges, shape):
    moved = tuple([start + step * i for i, (start, _, step) in zip(place, ranges)])
    return np.ravel_multi_index(moved, shape).astype(np.int64)


class _Batch:
    """The results of some items, as columns."""

    def __init__(self, base):
        self.base, self.failures, self.found, self.size = base, [], [], 0
        self.at, self.rows, self.since = [], [], time.time()

    def add(self, at, scalars, places):
        largest, first = 0, -1
        if places is not None:
            self.found.append(places)
            self.size += places[0].nbytes * 5
            first = int(places[0].min())
            numbers = places[2].ulps[places[2].ulps != ulp.NAN]
            largest = int(np.abs(numbers).max()) if len(numbers) else -1
        self.at.append(at)
        self.rows.append(scalars + [largest, first])

    def full(self):
        return self.size > LARGEST or time.time() - self.since > INTERVAL

    def answer(self):
        names = ("compared", "differing", "seconds", "control", "digests", "max_ulp", "first")
        columns = dict(zip(names, zip(*self.rows))) if self.rows else dict.fromkeys(names, ())
        header = {
            "failures": self.failures,
            "base_control": self.base.control,
            "shape_against": list(self.base.output.shape),
            "control": list(columns["control"]),
            "digest_at": [pair[0] for pair in columns["digests"]],
            "digest_against": [pair[1] for pair in columns["digests"]],
        }
        arrays = {
            name: np.array(columns[name], np.int64)
            for name in ("compared", "differing", "max_ulp", "first")
        }
        arrays["at"] = np.array(self.at, np.int64)
        arrays["seconds"] = np.array(columns["seconds"], np.float64)
        arrays.update(self._differences())
        return header, arrays

    def _differences(self):
        if not self.found:
            return {}
        index, against, found = zip(*self.found)
        return {
            "index": np.concatenate(index),
            "index_against": np.concatenate(against),
            "bits_at": np.concatenate([part.bits_a for part in found]),
            "bits_against": np.concatenate([part.bits_b for part in found]),
            "ulps": np.concatenate([part.ulps for part in found]),
        }


def digest(array):
    """32 hex digits of SHA-256 over the array's bytes, C order: equal bits, equal digest.

    Of hashlib's functions it is the fastest where the processor has instructions for it (1.8 GB/s).
    """
    return hashlib.sha256(memoryview(_raw(array))).hexdigest()[:32]


class PrefixDigest:
    """``digest`` of arrays of which each may be a prefix of the next: only the rest is read."""

    def __init__(self):
        self.start, self.done, self.hash = None, 0, hashlib.sha256()

    def of(self, array):
        """``digest(array)``; the array's memory must not change between calls."""
        if not array.flags.c_contiguous:
            return digest(array)
        raw = _raw(array)
        start = raw.ctypes.data
        if start != self.start or raw.nbytes < self.done:
            self.start, self.done, self.hash = start, 0, hashlib.sha256()
        self.hash.update(memoryview(raw[self.done :]))
        self.done = raw.nbytes
        return self.hash.hexdigest()[:32]


def _raw(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
