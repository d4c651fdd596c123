"""Model files whose nodes run one by one; or as one operation, where that can't be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from probe import ulp
from probe.recording.contract import INPUT, Event, Seen, Visit
from probe.semantics import Unknown


class Nodes(ABC):
    """What the recorders of model files share, whose nodes run one by one: where that changes bits
    or can't be, the model is one operation.

    ``inputs``: arrays by name; ``note``: empty, or why it is one operation.
    """

    inputs: dict[str, np.ndarray]
    note: str
    whole: bool

    @abstractmethod
    def plain(self) -> list[np.ndarray]:
        """Runs the model unwatched."""

    @abstractmethod
    def with_inputs(self, inputs: Mapping[str, np.ndarray]) -> Nodes:
        """Returns a recorder of the same model with other inputs."""

    def give_up(self, why: str) -> None:
        """From here on the model is one operation."""
        self.whole = True
        self.note = f"the model is one operation: {why}"

    def as_one(self, visit: Visit) -> list[Seen]:
        """Runs the model as one operation."""

        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            return self.with_inputs(dict(zip(self.inputs, arrays, strict=True))).plain()

        found = self.plain()
        reads = [_of_array(name, one) for name, one in self.inputs.items()]
        gives = [_of_array(f"output {n}", one) for n, one in enumerate(found)]
        visit(Event("model", "", reads, gives, Unknown(self.note), {}, again))
        return gives


def _of_array(name: str, array: np.ndarray) -> Seen:
    return Seen(name, array.shape, str(array.dtype), lambda: array, INPUT, name)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether two outputs of a model have the same shape, type and bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind == "f":
        return ulp.equal(one, other, str(one.dtype))
    return bool(np.array_equal(one, other))
