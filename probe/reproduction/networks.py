"""Writes a small network as a script: all layers up to the first that differs.

Every layer with windows is a call of the library, fed with the NumPy array of the one before it;
what stands between is NumPy where its bits are every library's (biases, scales, padding, ReLU), and
the library's own function elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.activations import lines as spelled
from probe.comparison import Blocks, Comparison, Pairs, Revealer, run
from probe.errors import InputError, Nondeterministic
from probe.launch import AnySession, open_session
from probe.network import Network
from probe.network.chain import Layer
from probe.network.comparison import Comparer, PaddedComparison
from probe.network.geometry import Shared
from probe.network.running import Axes, content
from probe.reproduction import code, folder, program, proof
from probe.reproduction.code import Library
from probe.reproduction.content import Reproduction, facts_of
from probe.target import Target


@dataclass(frozen=True)
class Operation:
    """What a report calls the computation."""

    op: str
    dtype: str


@dataclass(frozen=True, eq=False)
class Padded:
    """A network on content of some positions, padded to ``at`` and to ``against``.

    ``x``: the content (1, *height, positions, in_channels). ``value``: what the padding holds.
    What is said of it has the axes of the model.
    """

    network: Network
    x: np.ndarray
    at: int
    against: int
    value: float = 0.0
    vary: str = "padded length"
    padding: None = None

    @property
    def case(self) -> Operation:
        """Returns the kind of computation."""
        return Operation("network", self.network.dtype)

    @cached_property
    def axes(self) -> Axes:
        """Returns the axes of the model."""
        return Axes(self.network)

    @property
    def label(self) -> str:
        """Its layers, and the lengths."""
        layers = self.axes.layers
        what = f"{len(layers)} layers up to {layers[-1].label}"
        if self.network.part:
            what += " (of a model that is read in part)"
        lengths = f"padded length {self.at} against {self.against}"
        return f"network of {what}; content of {self.x.shape[-2]} positions, {lengths}"

    @property
    def paired(self) -> bool:
        """Two lengths are compared."""
        return True

    def to_json(self) -> dict[str, Any]:
        """Lengths, layers, and how many numbers of the content are not 0."""
        return {
            "op": "network",
            "layers": [layer.label for layer in self.axes.layers],
            "content": self.x.shape[-2],
            "vary": self.vary,
            "at": self.at,
            "against": self.against,
            "not_zero": {"x": int(np.count_nonzero(self.x))},
            "part": self.network.part or None,
        }


def reproduce(
    network: Network,
    length: int,
    target: Target,
    fixed: int | None = None,
    to: int | None = None,
    *,
    value: float = 0.0,
    seed: int = 0,
    times: int = 3,
) -> Reproduction:
    """Content of ``length`` positions padded to ``to`` against ``fixed``: the first difference.

    ``fixed``: the model's own length if None; ``to``: the least that the content takes. Layers
    behind the first one that differs are left out. InputError: nothing differs, or no script is
    written for a layer. Otherwise as ``folder.reproduce``.
    """
    fixed = fixed or network.fixed
    if fixed is None:
        raise InputError("fixed", None, "the model does not define a length", "give --against N")
    with open_session(target).start() as session:
        comparer = Comparer(session, network.geometry(fixed), value)
        found = comparer.compare(length, to, seed, whole=False)
        version = str(session.facts["library_version"])
        facts = session.facts
        first = found.first
        if not found.steady:
            raise Nondeterministic(f"{network.name}: the same run again gives different bits")
        if first is None or found.explanation is None:
            where = f" in {network.part}" if network.part else ""
            why = (
                f"no activation differs at {found.padded} positions{where}"
                if first is None
                else (f"{first.name} differs, and no sum: {', '.join(first.causes)}")
            )
            raise InputError(
                "network", network.name, why, "give a different valid or padded length"
            )
        cut = network.with_(layers=network.layers[: first.number + 1])
        finding = Padded(cut, content(cut, length, seed), found.padded, fixed, value)
        blocks = _blocks(found, finding.axes)
        explanation = _explanation(session, found, finding, blocks)
    script = _program(finding, target, version, blocks)
    expected = _expected(found, finding, blocks)
    ran = proof.prove(script, (target, target), expected, times)
    made = Reproduction(
        *(finding, (target, target), (version, version), explanation),
        *(folder.evidence_of(explanation), script, ran),
        facts=facts_of((target, target), (facts, facts)),
    )
    folder.add_emulated(made)
    return made


def _explanation(
    session: AnySession, found: PaddedComparison, finding: Padded, blocks: Blocks
) -> Comparison:
    """Returns the last layer's differences; they are revealed in the model's axes, swapped or
    not."""
    assert found.explanation is not None and found.short is not None and found.whole is not None
    axes, dtype = finding.axes, finding.network.dtype
    number, layer = len(axes.layers) - 1, axes.layers[-1]
    if not axes.swapped or layer.op == "dense":
        return found.explanation
    arrays, sides = layer.operands(dtype), []
    for side in (found.short, found.whole):
        x = axes.activations(side.activations[number])
        case = layer.case(x.shape[1:-1], dtype)
        sides.append(run(session, case, (x, arrays["w"], arrays.get("b"))))
    pairs = Pairs.of_blocks(sides[0].case, sides[1].case, blocks)
    made = Comparison(sides[0].case, sides[0], sides[1], pairs)
    return made.reveal(session, session, Revealer(tried=0), np.arange(len(pairs)))


def _blocks(found: PaddedComparison, axes: Axes) -> Blocks:
    """Outputs of the last layer that read the same in both runs, in blocks of neighbours."""
    network, number = axes.network, len(axes.layers) - 1
    shared: Shared = network.geometry(found.fixed).follow(found.padded)[number + 1]
    assert found.short is not None and shared.shift is not None
    outer = tuple(slice(0, size) for size in found.short.activations[number + 1].shape)
    edges = np.flatnonzero(np.diff(shared.same.astype(np.int8), prepend=0, append=0)).tolist()
    made = []
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        ours = (*outer[:-2], slice(start, stop), outer[-1])
        theirs = (*outer[:-2], slice(start + shared.shift, stop + shared.shift), outer[-1])
        made.append((axes.block(ours), axes.block(theirs)))
    return tuple(made)


def _expected(found: PaddedComparison, finding: Padded, blocks: Blocks) -> list[tuple[str, str]]:
    """Returns bit patterns of the outputs that differ, in the script's order."""
    assert found.short is not None and found.whole is not None
    number, dtype = len(finding.network.layers), finding.network.dtype
    one, two = (
        finding.axes.activations(side.activations[number]) for side in (found.short, found.whole)
    )
    width = floats.format_of(dtype).bits // 4
    pairs: list[tuple[str, str]] = []
    for ours, theirs in blocks:
        a, b = one[ours].reshape(-1), two[theirs].reshape(-1)
        index = ulp.differences(a, b, dtype).index
        hexes = ([f"{int(n):0{width}x}" for n in floats.to_bits(y[index], dtype)] for y in (a, b))
        pairs += list(zip(*hexes, strict=True))
    return pairs


def _program(finding: Padded, target: Target, version: str, blocks: Blocks) -> str:
    """Returns the script."""
    work = _Layers(finding, target, version)
    calls = [work.side(length) for length in (finding.at, finding.against)]
    used = work.whole
    axes, dtype = finding.axes, finding.case.dtype
    operands = code.assignments("content", code.exact(axes.activations(finding.x), dtype))
    for number, layer in enumerate(axes.layers):
        for name, array in layer.arrays.items():
            operands += code.assignments(f"{name}_{number}", code.exact(array, dtype))
    one, two = (_shape(axes, length) for length in (finding.at, finding.against))
    return program.rendered(
        title=f"{used.name} {version}: a network gives different bits with other padding.",
        about=program.wrapped(finding.label + ".", f"{dtype}, on {target.text}.")
        + ["The outputs that are compared read the same content and padding in both runs."],
        libraries=[used, used],
        targets=(target, target),
        dtype=dtype,
        operands=operands,
        blocks=[(program.index(left, one), program.index(right, two)) for left, right in blocks],
        functions=work.functions,
        left=[calls[0]],
        right=[calls[1]],
        said=program.said_of(finding),
    )


def _shape(axes: Axes, length: int) -> tuple[int, ...]:
    return (1, *axes.sizes(length)[-1], axes.network.filters)


class _Layers:
    """Functions of a script: each layer of a side, and the side's network."""

    def __init__(self, finding: Padded, target: Target, version: str) -> None:
        self.finding, self.target, self.version = finding, target, version
        self.dtype = finding.network.dtype
        self.functions: list[program.Function] = [_padding(finding)]
        self.libraries: list[Library] = []
        self.standard: set[str] = set()

    @property
    def whole(self) -> Library:
        """Returns the library, with everything that any layer imports."""
        if not self.libraries:
            raise InputError(
                "network", self.finding.network.name, "no layer calls the library", "add one"
            )
        first = self.libraries[0]
        imports = dict.fromkeys(line for one in self.libraries for line in one.imports)
        standard = {name for one in self.libraries for name in one.standard} | self.standard
        return replace(first, imports=tuple(imports), standard=tuple(sorted(standard)))

    def side(self, length: int) -> str:
        """Returns the expression of one side's outputs; adds the functions that it needs."""
        axes, word = self.finding.axes, "" if len(self.functions) == 1 else "_fixed"
        sizes = axes.sizes(length)
        lines: list[str] = []
        for number, layer in enumerate(axes.layers):
            lines += self._layer(number, layer, sizes[number], word)
        name = self._add(
            "network", word, "x", "All layers, one after the other.", [*lines, "return x"]
        )
        return f"{name}(padded(content, {length}))"

    def _layer(self, number: int, layer: Layer, sizes: tuple[int, ...], word: str) -> list[str]:
        """Returns lines that replace x by what comes out of a layer."""
        if layer.op == "activation" and layer.activation not in code.EXACT:
            return [f"x = {self._activation(number, layer, sizes, word)}(x)"]
        if layer.op == "normalisation" and (lines := self._normalisation(number, sizes, word)):
            return lines
        if not (layer.sums or layer.pool):
            return [f"x = {_between(number, layer)}"]
        case = layer.case(sizes, self.dtype)
        given = [
            name
            for name, array in (("weights", layer.weights), ("bias", layer.bias))
            if array is not None
        ]
        own = layer.operands(self.dtype)
        x = np.zeros(case.input_shape(), self.finding.x.dtype)
        found = code.of_case(
            self.target, self.version, case, (x, own["w"].reshape(case.weight_shape), own.get("b"))
        )
        self.libraries.append(found)
        parameters = ", ".join(["x", *(name[0] for name in given)])
        name = self._add(f"layer_{number}", word, parameters, f"{layer.label}.", list(found.body))
        arguments = ", ".join(["x", *(f"{name}_{number}" for name in given)])
        if layer.op != "dense":
            return [f"x = np.ascontiguousarray({name}({arguments}))"]
        flat = arguments.replace("x", f"x.reshape(1, -1, {layer.in_channels})", 1)
        return [f"x = {name}({flat}).reshape(x.shape[:-1] + (-1,))"]

    def _normalisation(self, number: int, sizes: tuple[int, ...], word: str) -> list[str]:
        """Returns lines that replace x by the library's own scaling; none where NumPy's will do."""
        layer = self.finding.axes.layers[number]
        shape, operands = (1, *sizes, layer.in_channels), layer.operands(self.finding.network.dtype)
        lines = code.normalisation(self.target, self.version, shape, operands, self.dtype)
        if not lines:
            return []
        self.standard |= set(code.standard(lines))
        about = "Scale and shift, as the library has them."
        name = self._add("normalisation", f"_{number}{word}", "x, scale, shift", about, list(lines))
        return [f"x = {name}(x, scale_{number}, shift_{number})"]

    def _activation(self, number: int, layer: Layer, sizes: tuple[int, ...], word: str) -> str:
        """Returns the name of a function that is the library's own."""
        alpha, shape = layer.parameters.get("alpha", 1.0), (1, *sizes, layer.in_channels)
        given = self.target, self.version, layer.activation, alpha, shape, self.dtype
        lines = code.activation(*given)
        self.standard |= set(code.standard(lines))
        about = f"{layer.activation}, as the library has it."
        return self._add(layer.activation, f"_{number}{word}", "x", about, list(lines))

    def _add(self, name: str, word: str, parameters: str, about: str, lines: list[str]) -> str:
        """Returns the name of a function with these lines: an earlier one's, or a new one's."""
        body = tuple(code.block(lines))
        for one in self.functions:
            if one.lines == body and one.about == about and one.parameters == parameters:
                return one.name
        self.functions.append(program.Function(f"{name}{word}", parameters, about, body))
        return f"{name}{word}"


def _padding(finding: Padded) -> program.Function:
    around = ["(0, 0)"] * finding.x.ndim
    along = finding.axes.length
    around[along] = f"(0, length - x.shape[{along}])"
    pairs = f"[{', '.join(around)}]"
    line = f'return np.pad(x, {pairs}, "constant", constant_values={finding.value})'
    body = tuple(code.block([line]))
    return program.Function("padded", "x, length", "Content with padding behind it.", body)


def _between(number: int, layer: Layer) -> str:
    """Returns the expression of a layer that is not a sum.
    InputError where its bits are the library's."""
    if layer.op == "bias":
        return f"x + bias_{number}"
    if layer.op == "normalisation":
        return f"x * scale_{number} + shift_{number}"
    if layer.op == "pad":
        pairs = [(0, 0), *(tuple(pair) for pair in layer.padding), (0, 0)]
        value = layer.parameters.get("value", 0.0)
        return f'np.pad(x, {pairs}, "constant", constant_values={value})'
    if layer.op != "activation":
        raise InputError("network", layer.name, f"no script has {layer.op}", "leave it out")
    (found,) = spelled(layer.activation, "numpy", layer.parameters.get("alpha", 1.0))
    return found
