"""A convolution, product or sum on a running target, as the reveals see it: masks in, outputs back.

A sum has no weights, so there the masks go into the input: every row is the same masks, since no
two outputs share an element.
"""

from __future__ import annotations

import math

import numpy as np

from probe import floats, memory
from probe.case import Case
from probe.launch import AnySession


class SessionOperator:
    """``case`` (its length set) on ``session``: a ``MaskedOperator``.

    Every run is a call of the library at the case's own shape and with the case's own spec, so
    that it takes the kernel that the user's call takes. A leaf is a weight's flat index within its
    filter (kernel position, then channel of its group); the bias is leaf ``summands``. Of a sum a
    leaf is an element of a row, and what the weight would make of it is put there, rounded: a sum
    is never told that a product was fused. InputError: it needs more memory than is free.
    """

    def __init__(self, session: AnySession, case: Case) -> None:
        memory.require(case)
        self.session, self.case = session, case
        self.dtype = case.dtype
        self.summands, self.filters = case.summands, case.filters
        self.bias = case.bias is not None
        self.shape = case.output_shape()
        self.positions = math.prod(self.shape[:-1])

    def run(
        self, x: float | np.ndarray, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """As ``MaskedOperator.run``: float32 or else float64. ``x`` may be a whole input."""
        whole = np.broadcast_to(x, self.case.input_shape())
        ask = self._in_weights if self.case.weighted else self._in_input
        mode, arrays = ask(whole, template, leaves, values)
        header = {"do": "masks", "spec": self.case.spec(), "mode": mode}
        blocks = [found["outputs"] for _, found in self.session.stream(header, arrays)]
        outputs = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        if self.dtype != "float32":
            outputs = floats.widen(outputs, self.dtype)
        return outputs.reshape(len(leaves), self.positions, self.filters)

    def _in_weights(
        self, x: np.ndarray, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> tuple[str, dict[str, np.ndarray]]:
        """The arrays of a ``masks`` request that edits the weights, and the bias."""
        weights = np.repeat(template[: self.summands], self.filters)
        arrays = {
            "x": self._container(x),
            "w": self._container(weights).reshape(self.case.weight_shape),
        }
        inner = (leaves >= 0) & (leaves < self.summands)
        arrays |= self._edits("", leaves, inner, values, leaves * self.filters)
        if self.bias:
            arrays["b"] = self._container(np.full(self.filters, template[self.summands]))
            last = leaves == self.summands
            arrays |= self._edits("b_", leaves, last, values, np.zeros_like(leaves))
        return "weights", arrays

    def _in_input(
        self, x: np.ndarray, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> tuple[str, dict[str, np.ndarray]]:
        """The arrays of a ``masks`` request that edits the input: one filter, weights of 1."""
        rows = np.asarray(x, np.float64).reshape(-1, self.summands)
        calls, _, slots = np.nonzero(leaves >= 0)
        elements = leaves[calls, 0, slots]
        counts = (leaves >= 0).reshape(len(leaves), -1).sum(axis=1) * len(rows)
        starts = np.arange(len(rows)) * self.summands
        return "inputs", {
            "x": self._container(rows * template).reshape(self.case.input_shape()),
            "w": self._container(np.ones(self.case.weight_shape)),
            "offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            "flat": (elements[:, None] + starts).reshape(-1),
            "values": self._container(rows[:, elements].T * values[slots, None]).reshape(-1),
        }

    def _edits(
        self,
        prefix: str,
        leaves: np.ndarray,
        which: np.ndarray,
        values: np.ndarray,
        base: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """The chosen entries of ``leaves`` as rows of edits, one a call."""
        _, filters, slots = np.nonzero(which)
        counts = which.reshape(len(leaves), -1).sum(axis=1)
        return {
            prefix + "offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            prefix + "flat": base[which] + filters,
            prefix + "values": self._container(values)[slots],
        }

    def _container(self, values: np.ndarray) -> np.ndarray:
        return floats.round_to(np.asarray(values, np.float64), self.dtype)

    def apply(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
        """The library's outputs for container operands: container, (positions, filters).

        A sum's weights, where they aren't 1, are multiplied into its input and rounded.
        """
        if not self.case.weighted:
            line = floats.widen(w, self.dtype).reshape(-1)
            x = self._container(floats.widen(x, self.dtype) * line)
            w = self._container(np.ones(self.case.weight_shape))
        arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
        _, found = self.session.request({"do": "run", "spec": self.case.spec()}, arrays)
        return found["y"].reshape(self.positions, self.filters)
