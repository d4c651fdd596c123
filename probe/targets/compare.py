"""Runs sweeps in the child, and the calls with edited operands that reveal orders.

A sweep runs the longest case once, then every shorter one against it. Only results leave: counts,
digests and the places that differ. This runs in the targets' interpreters
(Python 3.6, NumPy and one library).
"""

import hashlib
import time

import numpy as np

from probe.case import ulp

# A reply is sent when this much time has passed, or this much has been found, since the last one.
INTERVAL = 0.05
LARGEST = 1 << 22

# Of SHA-256, the fastest of hashlib's where the processor has instructions for it: 1.8 GB/s.
DIGITS = 32

# How often, and for how many seconds, both addresses are asked before bits are said to go by them.
MOST_REPEATS, REPEATING = 100, 0.2

EQUAL, DIFFERS, ALIGNMENT = "equal", "differs", "alignment differs"

_ROW = (
    *("at", "compared", "differing", "max_ulp", "first"),
    *("seconds", "control", "digest_at", "digest_against", "signed_zero"),
)


def repeat_control(prepared, output, dtype):
    """Whether the same shape gives the same bits: again, then from another alignment.

    ``equal``, ``differs`` (with the very same buffers) or ``alignment differs``: then each address
    has bits of its own, which come again there.
    """
    if not ulp.equal(output, prepared.run()[0], dtype):
        return DIFFERS
    moved = prepared.realigned()
    moved_output = np.array(moved.run()[0])
    if ulp.equal(output, moved_output, dtype):
        return EQUAL
    # What is random may agree a few times by luck, and differ here: it does not repeat at either
    # address. The fewer bits can change, the more luck there is: what is fast is asked often.
    sides, begun, steady = ((moved_output, moved), (output, prepared)), time.perf_counter(), True
    for number in range(MOST_REPEATS):
        steady = steady and all(ulp.equal(bits, call.run()[0], dtype) for bits, call in sides)
        if not steady or (number and time.perf_counter() - begun > REPEATING):
            break
    return ALIGNMENT if steady else DIFFERS


def compare_items(call, header, describe):
    """Answers of one ``sweep`` request: (header, arrays) pairs, the last with ``done``.

    ``header``: ``vary``, ``against``, ``control`` (``every`` or ``differing``) and ``items``, each
    ``[at, blocks]``: the value of the axis, and the blocks of outputs that must agree, each
    ``[left, right]``: ``[start, stop, step]`` for each axis of the output at ``at`` and of the one
    at ``against``; a left of None means all of it.
    ``zeros``: as ``ulp.differences`` has it; ``equal`` if it is left out.
    ``interval``: seconds between answers; 0 answers every item at once, and before the first, with
    no item, when the base has been computed. ``describe``: exception -> ``(kind, message)``, see
    ``child.logged``; an item that fails is listed under ``failures`` and the others go on.

    Each answer has the columns ``at``, ``compared``, ``differing``, ``max_ulp`` (-1: no distance
    is a number), ``first`` (-1: none), ``seconds``, the lists ``control`` (None: not run),
    ``digest_at``, ``digest_against`` and ``signed_zero`` (zeros of different signs), and of all
    differing outputs, one item after the other, ``index`` (flat in the whole output at ``at``),
    ``index_against`` (flat in the other), ``bits_at``, ``bits_against`` and ``ulps``.
    """
    base = _Base(call, header)
    batch = _Batch(base)
    if not base.interval:
        yield batch.answer()
    for at, blocks in header["items"]:
        try:
            item = base.compare(at, blocks)
        except Exception as error:  # of the operation, as `describe` says: others are compared
            batch.failures.append([at] + list(describe(error)))
        else:
            batch.add(*item)
        if batch.full():
            yield batch.answer()
            batch = _Batch(base)
    answer, arrays = batch.answer()
    yield dict(answer, done=True), arrays


class _Base:
    """The outputs at ``against``, and what is done with one item."""

    def __init__(self, call, header):
        self.call, self.vary = call, header["vary"]
        self.zeros = header.get("zeros", "equal")
        self.controls_all = header.get("control", "every") == "every"
        self.dtype = call.spec["dtype"]
        prepared = call.at({self.vary: header["against"]})
        self.output = prepared.run()[0].copy()
        self.control = repeat_control(prepared, self.output, self.dtype)
        self.interval = header.get("interval", INTERVAL)

    def compare(self, at, blocks):
        """One row of ``_ROW`` and the item's differences, None where there are none."""
        prepared = self.call.at({self.vary: at})
        output, seconds = prepared.run()
        compared, against = _matched_blocks(output, self.output, blocks)
        left, right = compared.tobytes(), against.tobytes()
        digests = [hashlib.sha256(left).hexdigest()[:DIGITS]] * 2
        places, checked, differing, largest, first, signed = None, None, 0, 0, -1, 0
        if left != right:
            digests[1] = hashlib.sha256(right).hexdigest()[:DIGITS]
            differences = ulp.differences(compared, against, self.dtype, self.zeros)
            signed = ulp.signed_zeros(compared, against, self.dtype)
            if len(differences.index):
                places = _sorted_differences(differences, output, self.output, blocks)
                numbers = differences.ulps[differences.ulps != ulp.NAN]
                largest = int(np.abs(numbers).max()) if len(numbers) else -1
                differing, first = len(differences.index), int(places[0][0])
        if self.controls_all or differing:
            checked = repeat_control(prepared, output, self.dtype)
            checked = self.control if checked == EQUAL else checked
        row = at, compared.size, differing, largest, first, seconds, checked
        return row + (*digests, signed), places


def _matched_blocks(output, base, blocks):
    """The blocks of two arrays: views where there is one block, else all in a line."""
    if len(blocks) == 1:
        left, right = blocks[0]
        return output if left is None else output[_slices(left)], base[_slices(right)]
    lefts = [output[_slices(left)].reshape(-1) for left, _ in blocks]
    rights = [base[_slices(right)].reshape(-1) for _, right in blocks]
    return np.concatenate(lefts), np.concatenate(rights)


def _sorted_differences(differences, output, base, blocks):
    """Flat indices into both whole outputs, and the differences, in order of the first index."""
    numbers, base_numbers = (np.arange(array.size).reshape(array.shape) for array in (output, base))
    numbers, base_numbers = _matched_blocks(numbers, base_numbers, blocks)
    index = numbers.reshape(-1)[differences.index]
    order = np.argsort(index, kind="mergesort")
    differences = ulp.Differences(*[column[order] for column in differences])
    return index[order], base_numbers.reshape(-1)[differences.index], differences


def _slices(ranges):
    return tuple([slice(*limits) for limits in ranges])


class _Batch:
    """The results of some items, as columns."""

    def __init__(self, base):
        self.base, self.rows, self.found, self.failures = base, [], [], []
        self.size, self.until = 0, time.time() + base.interval

    def add(self, row, places):
        self.rows.append(row)
        if places is not None:
            self.found.append(places)
            self.size += places[0].nbytes * 5

    def full(self):
        return time.time() >= self.until or self.size > LARGEST

    def answer(self):
        columns = dict(zip(_ROW, zip(*self.rows))) if self.rows else dict.fromkeys(_ROW, ())
        header = {
            "failures": self.failures,
            "base_control": self.base.control,
        }
        header.update({name: columns[name] for name in _ROW[6:]})
        arrays = {name: np.array(columns[name], np.int64) for name in _ROW[:5]}
        arrays["seconds"] = np.array(columns["seconds"], np.float64)
        if self.found:
            parts = [
                (index, against, d.bits_a, d.bits_b, d.ulps) for index, against, d in self.found
            ]
            names = ("index", "index_against", "bits_at", "bits_against", "ulps")
            arrays.update((name, np.concatenate(part)) for name, part in zip(names, zip(*parts)))
        return header, arrays


# Outputs of at most this many bytes travel in one answer.
ANSWER_BYTES = 1 << 25
# Seconds after which an answer goes out: who waits for it has a time limit, and the calls add up.
ANSWER_SECONDS = 10.0


def masks(call, header, arrays):
    """Answers of one ``masks`` request: (header, arrays) pairs, the last with ``done``.

    ``header["mode"]``: ``weights`` or ``inputs``, the operand that is edited. ``arrays``: the edits
    in rows, one a call: ``offsets`` (calls + 1), ``flat`` (flat indices into the operand) and
    ``values`` (container); ``b_offsets``, ``b_flat``, ``b_values`` likewise for the bias, if it is
    edited; ``select`` (flat output indices), if not all outputs are wanted. Every call starts from
    the operands of ``call``: edits do not add up.

    Each answer has ``outputs`` of shape (calls, *output) or (calls, selected), container, and
    ``first``, the number of its first call; ``shape`` is the operator's output shape.
    """
    steps, select = _Steps(call, header["mode"], arrays), arrays.get("select")
    if not steps.calls:
        raise ValueError("calls=0: a masks request needs at least one call")
    first, outputs, until = 0, [], time.time() + ANSWER_SECONDS
    for number in range(steps.calls):
        output = steps.run(number)
        shape = list(output.shape)
        outputs.append(output if select is None else output.reshape(-1)[select])
        full = len(outputs) * outputs[0].nbytes >= ANSWER_BYTES or time.time() >= until
        if full and number + 1 < steps.calls:
            yield {"first": first, "shape": shape}, {"outputs": np.array(outputs)}
            first, outputs, until = number + 1, [], time.time() + ANSWER_SECONDS
    yield {"first": first, "shape": shape, "done": True}, {"outputs": np.array(outputs)}


class _Edits:
    """An operand, and the sparse changes of each call, which are taken back after it."""

    def __init__(self, template, offsets, flat, values):
        self.scratch = np.array(template, order="C")
        self.line = self.scratch.reshape(-1)
        self.template = self.line.copy()
        self.offsets, self.flat = offsets.tolist(), flat
        self.values = values.astype(self.line.dtype, copy=False)
        if len(flat) != len(values) or self.offsets[-1] != len(flat) or self.offsets[0] != 0:
            raise ValueError("offsets, flat and values do not describe the same edits")

    def apply(self, number):
        start, stop = self.offsets[number], self.offsets[number + 1]
        index = self.flat[start:stop]
        self.line[index] = self.values[start:stop]
        return index

    def restore(self, index):
        self.line[index] = self.template[index]


class _Steps:
    """One call after the other. What is not edited is given to the library once."""

    def __init__(self, call, mode, arrays):
        if mode not in ("weights", "inputs"):
            raise ValueError(f"mode={mode}: weights or inputs can be edited")
        prepared = call.at()
        self.operator, self.mode = prepared.operator, mode
        self.input, self.call = prepared.input, prepared.call
        self.operands = {"w": np.ascontiguousarray(call.w)}
        if call.b is not None:
            self.operands["b"] = call.b
        edited = call.w if mode == "weights" else call.x
        self.edits = _Edits(edited, arrays["offsets"], arrays["flat"], arrays["values"])
        self.calls = len(self.edits.offsets) - 1
        self.bias = None
        if "b_offsets" in arrays:
            names = ("b_offsets", "b_flat", "b_values")
            self.bias = _Edits(call.b, *[arrays[name] for name in names])

    def run(self, number):
        """The output of one call, a container array of its own."""
        operator, edits, x, call = self.operator, self.edits, self.input, self.call
        index, operands = edits.apply(number), self.operands
        if self.mode == "weights":
            operands = dict(operands, w=edits.scratch)
        else:
            x = operator.input(edits.scratch)
        if self.bias is not None:
            places = self.bias.apply(number)
            operands = dict(operands, b=self.bias.scratch)
        if operands is not self.operands:
            call = operator.bind(operands)
        output = operator.output(call(x))
        if self.bias is not None:
            self.bias.restore(places)
        edits.restore(index)
        return output
