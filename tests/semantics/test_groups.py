"""Operations over groups of places: attention, and what its masks hide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from probe import floats
from probe.semantics import groups
from probe.semantics import operations as o
from probe.semantics.elementwise import fitted
from probe.semantics.groups import Attends, Encodes, Recurs, lowest
from probe.semantics.labels import Labels, of_content, tag
from tests.semantics.formulas import POOL, drawn, one_to_one, result


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_a_mask_hides_by_minus_infinity_and_by_the_lowest_number(dtype: str) -> None:
    least = floats.largest_finite(dtype)
    held = floats.round_to(np.array([-np.inf, -least, least, np.inf, -least / 2]), dtype)
    hides = np.isin(of_content(held).array, lowest(dtype))
    assert hides.tolist() == [True, True, False, False, False]


def _attended(*given: np.ndarray, **how: object) -> np.ndarray:
    """Labels of what attention gives: queries, keys, values and perhaps a mask."""
    shape = (*given[0].shape[:-1], given[2].shape[-1])
    found = Attends(**how).labels([of_content(one) for one in given], [shape], tag("test"))
    return found[0].full()


def _qkv(queries: int = 4, heads: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    sizes = [(2, queries, 3), (heads, 5, 3), (heads, 5, 2)]
    return [rng.normal(size=size).astype(np.float32) for size in sizes]


def test_a_causal_query_sees_the_keys_up_to_its_own_as_masks_of_each_kind_say() -> None:
    given = _qkv()
    seen = np.tril(np.ones((4, 5), bool))
    causal = _attended(*given, causal=True)
    assert np.array_equal(causal, _attended(*given, seen, boolean=True))
    minus = np.where(seen, np.float32(0), np.float32(-np.inf))
    assert np.array_equal(causal, _attended(*given, minus))
    assert not np.isin(causal, _attended(*given)).any()
    for query in range(4):  # what is behind its own key changes nothing, its own key does
        later, own = ([one.copy() for one in given] for _ in range(2))
        later[1][:, query + 1 :], later[2][:, query + 1 :] = 7, 8
        own[1][:, query] = 7
        assert np.array_equal(_attended(*later, causal=True)[:, query], causal[:, query])
        assert not np.isin(_attended(*own, causal=True)[:, query], causal[:, query]).any()


def _normed(word: str, x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    mean, power = (one.mean(axes, keepdims=True) for one in (x, x**2))
    total = np.exp(x).sum(axes, keepdims=True)
    if "softmax" in word:
        return x - np.log(total) if word == "log_softmax" else np.exp(x) / total
    if word == "lrn":
        return x * power**eps
    mean = mean * (word != "rms_norm")
    return (x - mean) / np.sqrt(power - mean**2 + eps)


NORMED = {
    "layer_norm": ((1, 2), None, lambda eps, *has: o.norm((-1, 1), eps, *has)),
    "rms_norm": ((2,), None, lambda eps, *has: o.norm((2,), eps, *has, "rms_norm")),
    "instance_norm": ((2,), 1, lambda eps, *has: o.instance_norm(3, eps, *has)),
    "group_norm": ((2, 3), 1, lambda eps, *has: o.norm((1, 2), eps, *has, "group_norm", (1, 2))),
    "training": ((0, 2), 1, lambda eps, *has: o.batch_norm_in_training(3, eps, *has)),
    "softmax": ((0, 1), None, lambda eps, *_: o.softmax((0, -2), eps)),
    "log_softmax": ((1,), None, lambda *_: o.log_softmax((-2,))),
    "lrn": ((1,), None, lambda eps, *_: o.lrn(1, 5, 0.1, eps)),
}


@pytest.mark.parametrize("word", NORMED)
def test_a_norm_reads_its_group_and_its_own_place(word: str) -> None:
    """Numbers that stand elsewhere are equal where the group and the scale at the place are."""
    axes, along, build = NORMED[word]
    rng, base = np.random.default_rng(41), np.random.default_rng(4).normal(size=(2, 4, 3))

    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        for _ in range(15):
            x = base
            for axis in range(3):
                x = x.take(rng.permutation(x.shape[axis]), axis)
            eps, has = float(rng.choice([0.25, 0.5])), rng.integers(2, size=2) * (axes[0] >= 0)
            line = 4 if along == 1 else 3
            wide = x.reshape(2, 2, 2, 3) if word == "group_norm" else x
            wide = wide * eps if word == "softmax" else wide
            wanted = _normed(word, wide, axes, eps).reshape(x.shape)
            has = has * (word in groups.NORMS or word == "training")
            scale, shift = rng.choice([1.7, 1.5], line), rng.choice([0.3, 0.5], line)
            at = (slice(None), None) if along == 1 else slice(None)
            wanted = wanted * scale[at] if has[0] else wanted
            wanted = wanted + shift[at] if has[1] else wanted
            sides = [one for one, there in zip((scale, shift), has, strict=True) if there]
            meaning = build(eps, *has.tolist())
            made = meaning.labels([*map(of_content, (x, *sides))], [x.shape] * 3, tag(meaning.word))
            if len(made) > 1:
                assert not {*made[1].full().flat, *made[2].full().flat} & {*made[0].full().flat}
            yield made[0], wanted

    one_to_one(found(), back=word != "training")


def test_a_norm_gives_its_means_beside_and_ones_and_zeros_are_no_scale_and_shift() -> None:
    x, ones = of_content(np.random.default_rng(1).normal(size=(3, 4))), of_content(np.ones(4))
    made = o.norm((1,), 0.5, False, False).labels([x], [(3, 4), (3, 1), (3, 1)], tag("layer_norm"))
    assert len(np.unique(np.concatenate([one.full().reshape(-1) for one in made]))) == 18
    both = o.norm((1,), 0.5).labels([x, ones, of_content(np.zeros(4))], [(3, 4)], tag("layer_norm"))
    (shifted,) = o.norm((1,), 0.5, False, True).labels([x, ones], [(3, 4)], tag("layer_norm"))
    assert np.array_equal(both[0].array, made[0].array)
    assert not (shifted.array == both[0].array).any()
    again = o.norm((1,), 0.5, False, False).labels([x], [(3, 4), (3, 1)], tag("layer_norm"))
    assert np.array_equal(again[1].array, made[1].array)
    assert o.softmax((0,)).notices and not o.log_softmax((0,)).notices


def test_attention_has_equal_labels_where_it_is_equal() -> None:
    """Of queries, keys and values that stand elsewhere, behind masks, with shared heads."""

    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng, base = np.random.default_rng(42), [one.astype(float) for one in _qkv()]
        for _ in range(25):
            heads, causal, kind = *rng.integers(1, 3, 2).tolist(), int(rng.integers(3))
            order = rng.permutation(5)
            q = np.concatenate([base[0], base[0] * 0.7])[:, rng.permutation(4)]
            k, v = (one[:heads, order] for one in base[1:])
            seen = rng.integers(0, 3, (4, 4, 5)) > 0
            scale = (0.5,) * int(rng.integers(2))
            scores = q @ np.swapaxes(np.repeat(k, 4 // heads, 0), 1, 2) * (scale or (1,))[0]
            shown = seen | (kind == 0)
            mask = shown & np.tril(np.ones((4, 5), bool)) if causal == 2 else shown
            mask = mask | ~mask.any(-1, keepdims=True)
            powers = np.where(mask, np.exp(scores.astype(float)), 0)
            wanted = powers / powers.sum(-1, keepdims=True) @ np.repeat(v, 4 // heads, 0)
            given = [*map(of_content, (q, k, v))]
            added = np.where(shown, 0, np.float32(-np.inf))
            given += [of_content(shown if kind == 1 else added)] * (kind > 0)
            meaning = Attends(causal == 2, scale, boolean=kind == 1)
            made = meaning.labels(given, [wanted.shape, (4, 4), (3,)], tag("attention"))
            assert made[1].shape == (4, 4) and len(np.unique(made[2].full())) == 3
            yield made[0], wanted

    one_to_one(found(), back=False)


@pytest.mark.parametrize("kind", ["none", "rows", "pairs", "float rows", "float pairs"])
def test_an_encoder_reads_its_own_position_and_those_that_are_seen(kind: str) -> None:
    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(43)
        for _ in range(15):
            x, w = drawn(rng, 2, 3, 2), drawn(rng, 1)
            rows = "rows" in kind
            hidden = rng.choice(POOL[:3] if "float" in kind else [0, 1], (2, 3) if rows else (3, 3))
            hidden = np.where(hidden == POOL[1], -np.inf, hidden).astype(np.float32)
            mask = hidden if "float" in kind else hidden == 1
            dtype = "float32" if "float" in kind else "bool"
            meaning = Encodes("e", (1,), None if kind == "none" else 2, rows, dtype)
            reads = [*map(of_content, (x, w, mask))][: 2 if kind == "none" else 3]
            wanted = np.empty(x.shape, object)
            for b, at, f in np.ndindex(*x.shape):
                own = np.zeros(3) if kind == "none" else mask[b] if rows else mask[at]
                others = [(x[b, n].tolist(), own[n]) for n in range(3) if own[n] in (0, POOL[2])]
                wanted[b, at, f] = repr((f, w, x[b, at].tolist(), sorted(others)))
            yield meaning.labels(reads, [x.shape], tag("e"))[0], wanted

    one_to_one(found())


class Spelled(NamedTuple):
    """Labels of what a library computes one by one, by functions, products and sums."""

    labels: Labels

    def by(self, word: str, *others: Spelled) -> Spelled:
        reads = [self.labels, *(one.labels for one in others)]
        to = np.broadcast_shapes(*(one.shape for one in reads))
        return Spelled(o.function(word).labels(reads, [to], tag(word))[0])

    def along(self, word: str, axes: tuple[int, ...]) -> Spelled:
        to = np.zeros(self.labels.shape).sum(axes, keepdims=True).shape
        return Spelled(o.reduced(word, axes, True).labels([self.labels], [to], tag(word))[0])

    def times(self, weights: Spelled, bias: Spelled) -> Spelled:
        reads, to = [self.labels, weights.labels], (self.labels.shape[0], weights.labels.shape[0])
        return Spelled(o.dense().labels(reads, [to], tag("product"))[0]).by("add", bias)

    def gates(self, letters: str, axis: int = -1) -> dict[str, Spelled]:
        size = list(self.labels.shape)
        size[axis] //= len(letters)
        sizes = [tuple(size)] * len(letters)
        made = o.split(axis, sizes).labels([self.labels], sizes, tag(""))
        return dict(zip(letters, map(Spelled, made), strict=True))


def _spelled(array: Any) -> Spelled:
    return Spelled(of_content(np.float32(array)))


def test_norms_and_softmax_are_what_their_steps_are() -> None:
    x, eps = _spelled(np.random.default_rng(1).normal(size=(3, 4))), _spelled(0.5)
    less = x.by("subtract", x.along("mean", (1,)))
    below = x.by("subtract", x.along("max", (1,)))
    powers = below.by("exp")
    total = powers.along("sum", (1,))
    scaled = x.by("multiply", _spelled(2.0))
    roots = [of.by("square").along("mean", (1,)).by("add", eps).by("rsqrt") for of in (less, x)]
    ways = {
        o.softmax((1,)): powers.by("divide", total),
        o.log_softmax((-1,)): below.by("subtract", total.by("log")),
        o.norm((1,), 0.5, False, False): less.by("multiply", roots[0]),
        o.norm((1,), 0.5, False, False, "rms_norm"): x.by("multiply", roots[1]),
    }
    beside = [x.along("mean", (1,)), roots[0]], [roots[1]]
    for (meaning, _), wanted in zip([*ways.items()][2:], beside, strict=True):
        sizes = [(3, 4), *[(3, 1)] * len(wanted)]
        made = meaning.labels([x.labels], sizes, tag(meaning.word))[1:]
        for n, (one, other) in enumerate(zip(made, wanted, strict=True), 1):
            assert np.array_equal(one.full(), fitted(other.labels, (3, 1), n).full())
    for meaning, wanted in ways.items():
        assert np.array_equal(result(meaning, x.labels).full(), wanted.labels.full()), meaning
    twice = result(o.softmax((1,), 2.0), x.labels)
    once = result(o.softmax((1,)), scaled.labels)
    assert np.array_equal(twice.array, once.array)


def _layer(word: str, letters: str, after: bool, steps: list[Spelled], given: list[Spelled]) -> Any:
    """All states, and the last cells."""
    (w, u, b, c, h, cell), every = given, []
    for step in steps:
        now, before = step.times(w, b).gates(letters), h.times(u, c).gates(letters)
        both = step.times(w, b).by("add", h.times(u, c)).gates(letters)
        if word == "gru":
            reset, update = (both[x].by("sigmoid") for x in "rz")
            inner = reset.by("multiply", before["n"])
            if not after:
                rows, bias = u.gates(letters, 0)["n"], c.gates(letters)["n"]
                inner = reset.by("multiply", h).times(rows, bias)
            new = now["n"].by("add", inner).by("tanh")
            h = h.by("subtract", new).by("multiply", update).by("add", new)
        elif word == "lstm":
            i, f, out = (both[x].by("sigmoid") for x in "ifo")
            cell = f.by("multiply", cell).by("add", i.by("multiply", both["g"].by("tanh")))
            h = out.by("multiply", cell.by("tanh"))
        else:
            h = both["n"].by("tanh")
        every.append(h)
    return every, cell


CELLS = [("rnn", "n", True), ("lstm", "ifgo", True), ("lstm", "ogif", True)]
CELLS += [("gru", gates, after) for gates in ("rzn", "znr") for after in (True, False)]


@pytest.mark.parametrize(("word", "letters", "after"), CELLS)
def test_a_recurrent_layer_is_what_its_steps_are(word: str, letters: str, after: bool) -> None:
    """Whatever the order of its gates, its direction, which axis is first and what is left out."""
    rng, rows = np.random.default_rng(44), 2 * len(letters)
    sizes = [(rows, 2), (rows, 2), (rows,), (rows,), (2, 2), (2, 2)]
    for _ in range(4):
        there = np.array([1, 1, *rng.integers(2, size=3), rng.integers(2) * (word == "lstm")])
        given = [rng.normal(size=size) * has for size, has in zip(sizes, there, strict=True)]
        x, axis, reverse = rng.normal(size=(3, 2, 2)), int(rng.integers(2)), bool(rng.integers(2))
        order = -1 if reverse else 1
        inputs = [*map(_spelled, x[::order])]
        steps, cell = _layer(word, letters, after, inputs, [*map(_spelled, given)])
        reads = [np.swapaxes(x, 0, axis)]
        reads += [one for one, has in zip(given, there, strict=True) if has]
        places = np.where(there, np.cumsum(there), -1)[: 6 if word == "lstm" else 5]
        meaning = Recurs(word, letters, (0, *places.tolist()), axis, reverse, after)
        shapes = [(3, 2, 2) if axis == 0 else (2, 3, 2), (2, 2), (2, 2), (5,)]
        every = [_spelled(np.ascontiguousarray(one)).labels for one in reads]
        made = meaning.labels(every, shapes, tag(word))
        wanted = np.stack([one.labels.full() for one in steps[::order]], axis)
        assert np.array_equal(made[0].full(), wanted)
        assert np.array_equal(made[1].full(), steps[-1].labels.full())
        assert word != "lstm" or np.array_equal(made[2].full(), cell.labels.full())
        assert len(np.unique(made[3].full())) == 5 and all(one.known for one in made)


def test_a_large_layer_is_known_by_all_that_says_how_it_computes(monkeypatch) -> None:
    monkeypatch.setattr(groups, "MOST_WEIGHTS", 15)
    rng = np.random.default_rng(5)
    reads = [of_content(rng.normal(size=n)) for n in ((3, 2, 2), (4, 2), (4, 4), (4,), (2, 4))]
    ways: list[dict[str, Any]] = [{}, {"word": "other"}, {"gates": "z"}, {"resets_after": False}]
    ways += [{"activation": "relu"}, {"reverse": True}, {"reads": (0, 1, 2, -1, 3)}]
    ways += [{"reads": (0, 1, 2, 3, -1, 4)}, {"reads": (0, 1, 2, -1, -1, 4)}]
    labels = [Recurs(**way).labels(reads, [(3, 2, 4)], tag("rnn"))[0].full() for way in ways]
    assert len(np.unique(np.concatenate(labels))) == 24 * len(ways)
    meaning, own = Recurs(reads=(0, 1, 2, -1, -1, 4)), rng.normal(size=(2, 4))
    other = [[*reads[:4], of_content(own + change)] for change in (0, [[0], [1]])]
    made = [meaning.labels(some, [(3, 2, 4), (2, 4)], tag("rnn")) for some in other]
    every, last = (one.full() != two.full() for one, two in zip(*made, strict=True))
    assert not every[:, 0].any() and every[:, 1].all() and last.all(1).tolist() == [False, True]
    assert not last[0].any()  # a first state is read by its own sample alone
    for name, most in (("MOST_WEIGHTS", 16), ("MOST_STEPS", 2)):  # or it has many steps
        monkeypatch.setattr(groups, name, most)
    assert np.array_equal(Recurs().labels(reads, [(3, 2, 4)], tag("rnn"))[0].full(), labels[0])
    reads[1] = reads[1]._replace(known=False)
    assert not Recurs().labels(reads, [(3, 2, 4)], tag("rnn"))[0].known
