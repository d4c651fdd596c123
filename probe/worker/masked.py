"""Many calls of one operator, each with a few elements of an operand changed: the reveals' engine.

Runs in the targets' interpreters (Python 3.6, NumPy and one library).
"""

import time

import numpy as np

from probe import floats

#: Outputs of at most this many bytes travel in one answer.
LARGEST = 1 << 25
#: Seconds after which an answer goes out: who waits for it has a time limit, and the calls add up.
INTERVAL = 10.0


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
    first, outputs, until = 0, [], time.time() + INTERVAL
    for number in range(steps.calls):
        output = steps.run(number)
        shape = list(output.shape)
        outputs.append(output if select is None else output.reshape(-1)[select])
        full = len(outputs) * outputs[0].nbytes >= LARGEST or time.time() >= until
        if full and number + 1 < steps.calls:
            yield {"first": first, "shape": shape}, {"outputs": np.array(outputs)}
            first, outputs, until = number + 1, [], time.time() + INTERVAL
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


def constant_weights(spec, value):
    """Weights (*kernel, in_channels/groups, filters) that are all ``value``, container."""
    shape = list(spec["kernel"]) + [spec["in_channels"] // spec["groups"], spec["filters"]]
    return floats.round_to(np.full(shape, value, np.float64), spec["dtype"])
