"""A summation: how an output adds its products, as a tree and the roundings of its evaluation.

Whatever says something about a summation asks it here: its identity, its JSON, its rows of the
store, its text, what is left of it at an edge, and what sets two of them apart. All of these are
derived from the facts that :class:`Rounding` declares, each once. A new rounding is a field there
(and a line of ``to_dtype``, or of ``replay``, that computes it), a row of ``rounding.QUESTIONS``
that finds it, a line of ``report/evaluator.py`` that computes it in scripts, and an algorithm
of ``reference`` that has it, to test all of these against.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats
from probe.order.tree import BIAS, Tree

Row = dict[str, Any]

# In a set of what is flushed: all of its kind, whatever the tree.
EVERY = -2

# What becomes of a sum of negative zeros: nothing is added; +0 is added to the first product, after
# it is rounded; or before.
ZERO_KEPT, ZERO_ADDED, ZERO_FUSED = "kept", "+0 added", "+0 fused"


@dataclass(frozen=True)
class Fact:
    """What is known of a field of ``Rounding``.

    ``key``: its name in JSON. ``rare``: left out there where there is nothing to say; answers show
    it in any case, unless it is ``quiet``. ``sums``: it says nothing of a single product.
    ``leaves``: a set's numbers are leaves, not nodes. ``text``: it in words, {} being the format or
    the sum; ``apart``: the same of two summations, of which one side does it. ``cause``: what a
    difference of formats, and of sets without ``apart``, is.
    """

    key: str
    rare: bool = False
    quiet: bool = False
    sums: bool = False
    leaves: bool = False
    text: str = ""
    apart: str = ""
    cause: str = "precision"


def _numbers_field(key: str, **more: Any) -> Any:
    """A field that is a set of leaves or nodes; an empty one is the default."""
    return field(default=frozenset(), metadata={"fact": Fact(key, **more)})


def _format_field(key: str, **more: Any) -> Any:
    """A field that is the name of a format; None is the default."""
    return field(default=None, metadata={"fact": Fact(key, **more)})


def _flushed_field(key: str, leaves: bool) -> Any:
    """A field that is a set of what becomes zero where it is subnormal."""
    return _numbers_field(key, rare=True, quiet=True, leaves=leaves, cause="flush")


@dataclass(frozen=True)
class Rounding:
    """Where the evaluation of a tree rounds. The default rounds every product and every sum.

    ``fused``: leaves whose exact product enters the addition. ``operand_format``: what both
    operands are rounded to before they are multiplied (``"bfloat16"``, ``"tf32"``), None: left as
    they are. ``input_format``, ``weight_format``: the same of one operand alone.
    ``accumulator_format``: that of partial sums, None: the dtype. ``rounded``: nodes
    whose value is then rounded to the dtype too, where partial sums are wider. ``product_format``:
    what a product that is not fused is rounded to, None: the format of partial sums. ``truncated``:
    nodes that are rounded to the dtype toward zero, not to nearest; the root, -1 in a tree of one
    leaf, if that is the output. ``intermediate_format``: what every sum is rounded to before it is
    rounded to the format of partial sums, None: it is rounded once. (A float16 FMA made of a
    float32 one rounds twice.)

    ``shortened``: nodes whose value is then rounded to ``short_format``, which is narrower than the
    dtype; -1 in a tree of one leaf. ``bias_format``: what the bias is rounded to first.

    What is flushed becomes a zero of its sign where it is subnormal. Of leaves: ``flushed_inputs``
    and ``flushed_weights``, before they are multiplied; ``flushed_products``, whose product is
    rounded before it is added; ``flushed_whole``, whose exact product is. ``flushed_sums``: nodes,
    and the output if the root is among them. ``{EVERY}``: all of that kind. ``tininess``: what
    counts as subnormal: None: what is, rounded as if exponents had no end, below the smallest
    normal number (x86); ``"before"``: the exact value (ARM); ``"grid"``: the value in its format.
    ``zero``: what becomes of a sum of negative zeros, ``ZERO_KEPT`` and the like; None: it is not
    known.
    """

    fused: frozenset[int] = _numbers_field("fused", leaves=True)
    operand_format: str | None = _format_field("products", text="operands rounded to {}")
    accumulator_format: str | None = _format_field("nodes", sums=True, text="partial sums in {}")
    rounded: frozenset[int] = _numbers_field("narrow", sums=True)
    product_format: str | None = _format_field("product_format", sums=True)
    truncated: frozenset[int] = _numbers_field(
        "cut",
        rare=True,
        text="{} truncated (toward zero)",
        apart="one side truncates where the other rounds to nearest",
    )
    intermediate_format: str | None = _format_field(
        "through", rare=True, sums=True, text="every sum rounded to {} first"
    )
    shortened: frozenset[int] = _numbers_field("shortened", rare=True, quiet=True, sums=True)
    short_format: str | None = _format_field(
        "short_format", rare=True, quiet=True, text="some sums rounded to {}"
    )
    bias_format: str | None = _format_field(
        "bias_format", rare=True, quiet=True, text="bias rounded to {}"
    )
    flushed_inputs: frozenset[int] = _flushed_field("flushed_inputs", leaves=True)
    flushed_weights: frozenset[int] = _flushed_field("flushed_weights", leaves=True)
    flushed_products: frozenset[int] = _flushed_field("flushed_products", leaves=True)
    flushed_whole: frozenset[int] = _flushed_field("flushed_whole", leaves=True)
    flushed_sums: frozenset[int] = _flushed_field("flushed_sums", leaves=False)
    tininess: str | None = _format_field("tininess", rare=True, quiet=True, cause="flush")
    zero: str | None = _format_field("zero", rare=True, quiet=True, cause="zero", text="-0: {}")
    input_format: str | None = _format_field(
        "input_format", rare=True, quiet=True, text="inputs rounded to {}"
    )
    weight_format: str | None = _format_field(
        "weight_format", rare=True, quiet=True, text="weights rounded to {}"
    )

    @classmethod
    def fused_everywhere(cls, tree: Tree, accumulator_format: str | None = None) -> Rounding:
        """Every node that can fuse a product does: of two leaves, the one written last."""
        fused: set[int] = set()
        for children in tree.nodes:
            leaves = [child for child in children if 0 <= child < BIAS]
            fused.update(leaves[-1:] if len(children) == 2 else leaves)
        return cls(frozenset(fused), accumulator_format=accumulator_format)

    def facts(self) -> Iterator[tuple[str, Fact, Any]]:
        """The fields with what is known of them: (name, fact, value)."""
        for each in fields(self):
            yield each.name, each.metadata["fact"], getattr(self, each.name)

    def to_json(self) -> Row:
        """Everything that a replay needs beside the tree."""
        return {
            fact.key: _set_as_json(value)
            for _, fact, value in self.facts()
            if value or not fact.rare
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Rounding:
        """The inverse of ``to_json``. ValueError: it has a key that is not known."""
        names = {fact.key: (name, default) for name, fact, default in cls().facts()}
        if unknown := set(given) - set(names):
            raise ValueError(f"rounding={sorted(unknown)}: unknown; known are {sorted(names)}")
        values = {
            names[key][0]: (
                frozenset([EVERY] if value == "all" else value)
                if isinstance(names[key][1], frozenset)
                else value
            )
            for key, value in given.items()
        }
        return cls(**values)  # type: ignore[arg-type]

    @property
    def id(self) -> str:
        """12 hexadecimal digits that name a rounding."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def formats(self) -> dict[str, str | None]:
        """The fields that name a format, by their keys."""
        return {f.key: v for _, f, v in self.facts() if not isinstance(v, frozenset)}

    def sets(self) -> dict[str, frozenset[int]]:
        """The fields that are sets of leaves or nodes, by their keys."""
        return {f.key: v for _, f, v in self.facts() if isinstance(v, frozenset)}

    def rare(self) -> Row:
        """The rare fields, by their keys, as answers show them."""
        return {
            fact.key: _set_as_json(value)
            for _, fact, value in self.facts()
            if fact.rare and (value or not fact.quiet)
        }

    @property
    def by_node(self) -> bool:
        """Whether some nodes round or flush differently, so that their numbers matter."""
        return bool(self.rounded | self.shortened | (self.flushed_sums - {EVERY}))

    @property
    def flushes(self) -> bool:
        """Whether anything subnormal becomes zero."""
        return any(value for _, fact, value in self.facts() if fact.cause == "flush")


class Summation(NamedTuple):
    """A tree and where its evaluation rounds. Equal exactly if both are."""

    tree: Tree
    rounding: Rounding = Rounding()

    def to_json(self, dtype: str) -> Row:
        """As the answers in JSON have it; sums that name no format are kept in ``dtype``."""
        return {
            "id": self.tree.id,
            "tree": self.tree.text,
            "depth": self.tree.depth,
            "fused": sorted(self.rounding.fused),
            "rounding": self.style,
            "accumulator": self.rounding.accumulator_format or dtype,
            **self.rounding.rare(),
        }

    def order_row(self) -> Row:
        """The row of the store's table ``orders``."""
        return {
            "order_id": self.tree.id,
            "tree": self.tree.text,
            "leaves": len(self.tree.leaves),
            "depth": self.tree.depth,
            "children_max": max(map(len, self.tree.nodes), default=0),
        }

    def rounding_row(self) -> Row:
        """The row of ``roundings``; its style is told over the tree that it was found with."""
        fused = np.zeros(
            max([leaf for leaf in self.tree.leaves if leaf < BIAS], default=0) + 1, bool
        )
        fused[list(self.rounding.fused)] = True
        return {
            "rounding_id": self.rounding.id,
            "style": self.style,
            "fused": ranges_of_mask(fused),
            "products": self.rounding.operand_format,
            "accumulator": self.rounding.accumulator_format,
            "json": self.rounding.to_json(),
        }

    @property
    def style(self) -> str:
        """``"none"``; ``"all"``: every node with a product as a child fuses one; or ``"some"``.

        Nodes that add more than two count as fused where all of their products are.
        """
        fused, fusable, fusing = self.rounding.fused, 0, 0
        for children in self.tree.nodes:
            leaves = [child for child in children if 0 <= child < BIAS]
            count = sum(leaf in fused for leaf in leaves)
            fusable += bool(leaves)
            fusing += count > 0 and (len(children) == 2 or count == len(leaves))
        if not fused.intersection(self.tree.leaves):
            return "none"
        return "all" if fusing == fusable else "some"

    @property
    def fused_text(self) -> str:
        """``none``, ``all`` (every addition of a product is fused) or the leaves, ``1 2 5``."""
        return self.style if self.style != "some" else _numbers_text(sorted(self.rounding.fused))

    def text(self, dtype: str, listed: Callable[[Sequence[int]], str] | None = None) -> list[str]:
        """Where it rounds, in phrases. ``listed`` writes the numbers of products."""
        leaves = sorted(leaf for leaf in self.rounding.fused if leaf != BIAS)
        if not self.tree.nodes:
            first = "one product, added to nothing, rounded once"
        elif self.style == "none":
            first = "every product is rounded, then added (no FMA)"
        elif self.style == "all":
            first = "every product is fused into its addition (FMA)"
        else:
            shown = (listed or _numbers_text)(leaves)
            first = f"fused (FMA): products {shown}; the others are rounded first"
        return [first, *self.formats(dtype)]

    def formats(self, dtype: str) -> list[str]:
        """The formats of operands and sums that are not ``dtype``, what is truncated or flushed."""
        phrases = [
            fact.text.format(self._named(value) if isinstance(value, frozenset) else value)
            for _, fact, value in self.rounding.facts()
            if fact.text and value and value != dtype and (self.tree.nodes or not fact.sums)
        ]
        return [*phrases, self.flushed_text] if self.flushed_text else phrases

    @property
    def flushed_text(self) -> str:
        """What becomes zero where it is subnormal, in words; empty if nothing does."""
        rounding, weights = self.rounding, len(self.tree.leaves)
        sets = (
            ("inputs", rounding.flushed_inputs, weights),
            ("weights", rounding.flushed_weights, weights),
            ("products", rounding.flushed_products, weights),
            ("fused products", rounding.flushed_whole, weights),
            ("sums", rounding.flushed_sums, len(self.tree.nodes)),
        )
        words = [
            name if EVERY in flushed else f"{len(flushed)} of {count} {name}"
            for name, flushed, count in sets
            if flushed
        ]
        if words[:2] == ["inputs", "weights"]:
            words[:2] = ["operands"]
        listed = " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
        return f"subnormal {listed} become zero" if words else ""

    def _named(self, nodes: frozenset[int]) -> str:
        """The result, if it is among the nodes, or a sum before it; empty if there are none."""
        root = len(self.tree.nodes) - 1
        return "the result" if root in nodes else "the sum of products" if nodes else ""

    def wider(self, dtype: str) -> bool:
        """Whether partial sums are kept in another format than ``dtype``."""
        return self.rounding.accumulator_format not in (None, dtype)

    def plain(self, dtype: str) -> bool:
        """Whether nothing is told of it but what is fused: all is rounded to ``dtype`` alone."""
        values = {name: value for name, _, value in self.rounding.facts() if name != "fused"}
        return all(value in (None, dtype, frozenset()) for value in values.values())

    def to_dtype(self, values: np.ndarray, nodes: np.ndarray, dtype: str) -> np.ndarray:
        """float64 values (nodes, ...) of some nodes as a container array: how each is rounded."""
        rounding = self.rounding
        if rounding.flushed_sums:
            flushed = np.isin(nodes, list(rounding.flushed_sums)) | (EVERY in rounding.flushed_sums)
            below = np.abs(values) < floats.flushed_below(dtype, rounding.tininess)
            below &= flushed.reshape(-1, *[1] * (values.ndim - 1))
            values = np.where(below, np.copysign(0.0, values), values)
        rounded = floats.round_to(values, dtype)
        truncated = np.isin(nodes, list(self.rounding.truncated))
        rounded[truncated] = floats.cut_to(values[truncated], dtype)
        return rounded

    def output(self, values: np.ndarray, dtype: str) -> np.ndarray:
        """The container array that last sums (float64 values) become."""
        return self.to_dtype(values[None], np.array([len(self.tree.nodes) - 1]), dtype)[0]

    def without_flushing(self) -> Summation:
        """The summation with nothing flushed."""
        names = [name for name, fact, _ in self.rounding.facts() if fact.cause == "flush"]
        nothing: dict[str, Any] = dict.fromkeys(names, frozenset()) | {"tininess": None}
        return self._replace(rounding=replace(self.rounding, **nothing))

    def restricted(self, read: Iterable[int]) -> Summation:
        """The summation over the leaves that a window reads; elsewhere it adds zeros, to no effect.

        Nodes are numbered anew, so of sets of nodes it is only kept whether the root is in them
        and whether another one is (-1). InputError: no leaf is read.
        """
        read = set(read)
        if read.issuperset(self.tree.leaves):
            return self
        left, old_root = self.tree.restricted(read), len(self.tree.nodes) - 1
        changed: dict[str, frozenset[int]] = {"fused": self._still_fused(read)}
        for name, fact, value in self.rounding.facts():
            if isinstance(value, frozenset) and fact.leaves and name != "fused":
                changed[name] = value & (read | {EVERY})
            elif isinstance(value, frozenset) and name != "fused" and EVERY not in value:
                root = {len(left.nodes) - 1} if old_root in value else set()
                changed[name] = frozenset(root | ({-1} if value - {old_root} else set()))
        return Summation(left, replace(self.rounding, **changed))  # type: ignore[arg-type]

    def _still_fused(self, read: set[int]) -> frozenset[int]:
        """Fused leaves that are read and still have something to be added to.

        A product that was fused with a sum of zeros alone is rounded: nothing is added to it.
        """
        fused: set[int] = set()
        present = set(read)
        for node, children in enumerate(self.tree.nodes):
            left = [child for child in children if child in present]
            if left:
                present.add(~node)
            if len(left) > 1:
                fused |= self.rounding.fused.intersection(left)
        return frozenset(fused)

    def causes(self, other: Summation) -> tuple[str, ...]:
        """Which of ``order``, ``rounding``, ``precision`` and ``flush`` differ; () if none.

        Two summations that both fuse wherever they can, or both nowhere, round alike, whatever
        their trees: the tree then decides which leaves are fused.
        """
        names = ["order"] * (self.tree != other.tree)
        names += ["rounding"] * bool(self.rounded_apart(other))
        added = bool(self.tree.nodes or other.tree.nodes)  # else there is one product, rounded once
        pairs = list(zip(self.rounding.facts(), other.rounding.facts(), strict=True))
        signed, further = False, dict.fromkeys(("precision", "flush"), False)
        for (name, fact, value), (_, _, other_value) in pairs:
            if fact.cause == "zero":
                signed |= None not in (value, other_value) and value != other_value
            elif fact.cause == "flush":
                differ = self._flushed(name) != other._flushed(name)
                alike = self.tree == other.tree and self.rounding.fused == other.rounding.fused
                further["flush"] |= differ and (alike or self._kinds(other, name))
            elif isinstance(value, frozenset):
                # the numbers of nodes mean nothing in two different trees
                differ = value != other_value and (not names or bool(value) != bool(other_value))
                further["precision"] |= differ and added and not fact.apart and name != "fused"
            else:
                further["precision"] |= value != other_value and (added or not fact.sums)
        names += [name for name, differ in further.items() if differ]
        return tuple(names) or ("rounding",) * signed

    def _flushed(self, name: str) -> frozenset[int] | str | None:
        """Which leaves or nodes a field of what is flushed names; a tininess is named as it is."""
        value = getattr(self.rounding, name)
        if not isinstance(value, frozenset) or EVERY not in value:
            return value  # type: ignore[no-any-return]
        return frozenset(self._able(name))

    def _able(self, name: str) -> set[int]:
        """What could be in a field of what is flushed."""
        if name == "flushed_sums":
            return set(range(len(self.tree.nodes)))
        leaves, fused = set(self.tree.leaves), self.rounding.fused
        if name in ("flushed_inputs", "flushed_weights"):
            return leaves - {BIAS}
        return set(fused) if name == "flushed_whole" else leaves - fused

    def _kinds(self, other: Summation, name: str) -> bool:
        """Whether two trees flush all, some or none of one kind, and not both the same."""
        if name == "tininess":
            return self.rounding.flushes and other.rounding.flushes
        kinds = []
        for side in (self, other):
            possible = side._able(name)
            flushed = possible & frozenset(side._flushed(name) or ())
            kinds.append("all" if flushed == possible else "some" if flushed else "none")
            if not possible:
                return False
        return kinds[0] != kinds[1]

    def rounded_apart(self, other: Summation) -> str:
        """What sets the ``rounding`` of two summations apart, in words; empty if nothing does."""
        styles = self.style, other.style
        comparable = styles[0] == "some" or self.tree == other.tree
        words = []
        if styles[0] != styles[1] or (comparable and self.rounding.fused != other.rounding.fused):
            words.append("different products are fused with their addition")
        pairs = zip(self.rounding.facts(), other.rounding.facts(), strict=True)
        for (_, fact, value), (_, _, other_value) in pairs:
            if fact.apart and self._named(value) != other._named(other_value):
                words.append(fact.apart)
        return ", and ".join(words)

    def unshared_nodes(self, other: Summation, dtype: str) -> tuple[frozenset[int], frozenset[int]]:
        """The nodes of each tree that the other does not have: (mine, the other's).

        Two nodes are the same if they add the same leaves in the same order and round alike.
        """
        table: dict[Hashable, int] = {}
        numbers, other_numbers = self._numbered(dtype, table), other._numbered(dtype, table)
        shared = set(numbers) & set(other_numbers)
        return (
            frozenset(node for node, number in enumerate(numbers) if number not in shared),
            frozenset(node for node, number in enumerate(other_numbers) if number not in shared),
        )

    def _numbered(self, dtype: str, table: dict[Hashable, int]) -> list[int]:
        """A number for every node; nodes that are evaluated alike have equal ones."""
        rounding = self.rounding
        formats = rounding.formats() | {"nodes": rounding.accumulator_format or dtype}
        sets: dict[bool, list[frozenset[int]]] = {True: [], False: []}
        for _, fact, value in rounding.facts():
            if isinstance(value, frozenset):
                sets[fact.leaves].append(value)
        numbers: list[int] = []
        for node, children in enumerate(self.tree.nodes):
            terms: list[int] = []
            for child in children:
                leaf = (child, *(child in members or EVERY in members for members in sets[True]))
                terms.append(numbers[~child] if child < 0 else table.setdefault(leaf, len(table)))
            alike = (
                *formats.values(),
                *(node in members or EVERY in members for members in sets[False]),
            )
            numbers.append(table.setdefault((alike, *sorted(terms)), len(table)))
        return numbers


def ranges_of_mask(mask: np.ndarray) -> list[int]:
    """Where a mask is True as start, stop, start, stop, ... of its flat indices."""
    flat = mask.reshape(-1).astype(np.int8)
    edges: list[int] = np.flatnonzero(np.diff(flat, prepend=0, append=0)).tolist()
    return edges


def _set_as_json(value: Any) -> Any:
    if isinstance(value, frozenset):
        return "all" if EVERY in value else sorted(value)
    return value


def _numbers_text(leaves: Sequence[int]) -> str:
    return " ".join(map(str, leaves))
