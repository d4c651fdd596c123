"""A program: straight-line steps, each an operation that reads one or more earlier values.

A case is a program of one step, a network a program of many. The first values are the inputs, one
in most programs, and then comes what each step gives. ``layer`` is the JSON object of ``Case.spec``
or ``Layer.spec``; ``arrays`` says under which names the program's operands hold the layer's own.
The child reads this file: it runs on Python 3.6.
"""

from typing import Any, Dict, NamedTuple, Tuple

from probe import layout, operation
from probe.layout import CONTIGUOUS


class ProgramStep(NamedTuple):
    """One operation; ``arrays``: ``{"w": "w3"}``."""

    layer: Dict[str, Any]
    reads: Tuple[int, ...]
    arrays: Dict[str, str]


class Program(NamedTuple):
    """Steps in the order in which they run; the last one's value is the output.

    ``network``: a model, where a product is one of the rows of all positions, of one step too.
    ``layout``: how the input lies in memory, see :mod:`probe.layout`. ``more``: shapes of the
    inputs behind the first; empty: they have its.
    """

    steps: Tuple[ProgramStep, ...]
    inputs: int = 1
    network: bool = False
    layout: str = CONTIGUOUS
    more: Tuple[Tuple[int, ...], ...] = ()

    @property
    def single(self):
        """Returns whether it is a case: one step that is not a model by itself."""
        return len(self.steps) == 1 and not self.network

    def operands(self):
        """Returns the names of all operands, each once, in the order of the steps."""
        found: Dict[str, Any] = {}
        for step in self.steps:
            found.update((name, None) for name in step.arrays.values())
        return list(found)


def operand_names(layer):
    """Returns the names of the arrays that a layer has beside its inputs."""
    row = operation.operation_of_spec(layer)
    if row.weighted:
        return ("w", "b") if layer["bias"] else ("w",)
    return row.arrays


def case(spec):
    """Returns the program of one operation, whose operands are ``w`` and ``b``."""
    steps = (ProgramStep(spec, (0,), {name: name for name in operand_names(spec)}),)
    return Program(steps, layout=layout.layout_of_spec(spec))


def single_step(step):
    """Returns the program of one step of another one: its operands keep their names."""
    reads = tuple(range(len(step.reads)))
    return Program(
        (step._replace(reads=reads),), len(reads), layout=layout.layout_of_spec(step.layer)
    )


def layer_program(specs, reads=None, inputs=1, more=()):
    """Returns the program of layers; the operands have the numbers of their layers.

    The first spec says how the input lies in memory.

    ``reads``: for each layer the numbers of the values that it reads, of which the first are the
    ``inputs``; None: each the one before. ``more``: as of ``Program``.
    """
    found = []
    for number, spec in enumerate(specs):
        arrays = {name: "%s%d" % (name, number) for name in operand_names(spec)}
        found.append(ProgramStep(spec, tuple(reads[number]) if reads else (number,), arrays))
    further = tuple(tuple(shape) for shape in more)
    return Program(tuple(found), inputs, True, layout.layout_of_spec(specs[0]), further)
