"""Why recorded operations differ: planted differences are named, and what has no word stays so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import probe
from probe.case import layout
from probe.diff import source
from probe.diff.difference import Difference, compare_runs
from probe.diff.match import Repetitions, RunningMatch
from probe.diff.repeated import Marks
from probe.diff.running import by_running
from probe.diff.walk import compare_and_explain
from probe.order.semantics import (
    Contracts,
    Each,
    Meaning,
    Moves,
    Normalises,
    Reduces,
    Reshapes,
    Steps,
    Turns,
    Unknown,
    Windows,
)
from probe.order.semantics import Step as Part
from probe.record.recording import Run, record_run
from tests.record.doubles import Doubles, Step, added, either_way, product
from tests.record.taped import Taped

RANDOM = np.random.default_rng(0)


def behind(*steps: tuple[Meaning, tuple[int, ...]]) -> Callable[..., Steps]:
    """Returns what an operation is that has these behind a product, as recorders have it, by what
    is read; with each step what else it reads."""

    def meaning(given: dict[str, np.ndarray]) -> Steps:
        shape = (len(given["x"]), given["w"].shape[1])
        made = [Part(Contracts("mk,kn->mn"), (0, 1), shape)]
        made += [Part(one, (len(given) + n, *more), shape) for n, (one, more) in enumerate(steps)]
        return Steps(tuple(made))

    return meaning


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def first_cause(
    left: Run, right: Run, match: RunningMatch | None = None, **more: Any
) -> tuple[Difference, source.Cause]:
    """The first source of two runs, and its cause."""
    found = compare_runs(match or RunningMatch.of(left, right))
    assert found.first is not None
    return found, source.find_cause(left, right, found.first, **more)


def explained(
    meaning: Meaning | Callable[..., Meaning],
    function: Callable[..., Any],
    left: dict[str, np.ndarray],
    right: dict[str, np.ndarray],
    again: Callable[..., Any] | None = None,
    **more: Any,
) -> tuple[Difference, source.Cause]:
    """The first source of one operation on two sets of inputs, of which ``left`` has what is other
    than on the right; and its cause."""

    def recorder(given: Mapping[str, np.ndarray]) -> Doubles:
        own = meaning if isinstance(meaning, Meaning) else meaning(dict(given))
        return Doubles(dict(given), [Step("double", own, function, list(given), again=again)])

    inputs = right | left, right
    runs = record_run(recorder(inputs[0])), record_run(recorder(inputs[1]))
    return first_cause(*runs, match=by_running(recorder, inputs)(*runs), **more)


def order_is_named(
    meaning: Meaning | Callable[..., Meaning],
    function: Callable[..., Any],
    left: dict[str, np.ndarray],
    **right: np.ndarray,
) -> source.Cause:
    """The cause of what is added upwards on the left and downwards on the right."""
    _, cause = explained(meaning, function, left, right)
    assert cause.kind == "order" and cause.alone and cause.explained
    assert cause.replayed == cause.examined > 0
    return cause


@pytest.mark.long
class TestSums:
    def test_another_order_is_named_and_replayed_with_both_trees(self) -> None:
        x, w, b = normal(8, 24), normal(24, 16), normal(16)
        meaning = Contracts("...k,kn->...n", (0, 1), 2)
        found, cause = explained(meaning, product, {"x": x[:1]}, {"x": x, "w": w, "b": b})
        assert cause.differing == found.first.differing > 0  # type: ignore[union-attr]
        assert cause.kind == "order" and cause.explained
        assert cause.causes == {"order": cause.replayed} and cause.examined == cause.differing
        x, w = normal(4, 3), normal(3, 40)
        told = order_is_named(Contracts("mk,kn->mn"), product, {"x": x[:1]}, x=x, w=w).to_json()
        trees = [told[f"{side}_orders"][0]["tree"] for side in ("left", "right")]
        assert trees == ["((0+1)+2)", "(0+(1+2))"]

    def test_weights_may_stand_on_the_left(self) -> None:
        x, w = normal(24, 8), normal(16, 24)
        turned = lambda w, x: product(np.ascontiguousarray(x.T), w.T).T  # noqa: E731
        order_is_named(Contracts("nk,km->nm"), turned, {"x": x[:, :1]}, w=w, x=x)

    def test_what_is_turned_behind_a_product_is_the_products_sum(self) -> None:
        """As the keys of a cached step are, which lie the other way round."""
        x, w = normal(8, 24), normal(24, 16)

        def turned(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            return product(x, w).reshape(-1, 1, 4, 4).transpose(3, 1, 2, 0)

        def meaning(given: dict[str, np.ndarray]) -> Steps:
            rows = len(given["x"])
            made = Part(Contracts("mk,kn->mn"), (0, 1), (rows, 16))
            split = Part(Reshapes(), (2,), (rows, 1, 4, 4))
            return Steps((made, split, Part(Turns((3, 1, 2, 0)), (3,), (4, 1, 4, rows))))

        order_is_named(meaning, turned, {"x": x[:1]}, x=x, w=w)

    def test_products_of_two_activations_are_groups(self) -> None:
        q, k = normal(4, 6, 16), normal(4, 16, 5)
        order_is_named(Contracts("bmk,bkn->bmn"), product, {"q": q[:1], "k": k[:1]}, q=q, k=k)

    def test_zeros_behind_a_shorter_sum_change_nothing(self) -> None:
        """As attention has them behind a mask: what is padded with is multiplied by zeros."""
        x, w = normal(1, 16), normal(16, 40)
        masked = lambda x: np.where(np.arange(x.shape[1]) < 12, x, np.float32(0))  # noqa: E731
        halves = lambda x, w: either_way(x[:, :, None] * w, len(w) == 12)  # noqa: E731
        steps = [
            Step("mask", Each("mask"), masked, ["x"]),
            Step("product", Contracts("mk,kn->mn"), halves, [0, "w"]),
        ]
        inputs = {"x": x[:, :12], "w": w[:12]}, {"x": x, "w": w}
        recorder = lambda given: Doubles(dict(given), steps)  # noqa: E731
        runs = [record_run(recorder(given)) for given in inputs]
        _, cause = first_cause(*runs, match=by_running(recorder, inputs)(*runs))
        assert cause.kind == "order" and cause.explained
        assert cause.replayed == cause.examined == 40 - (cause.compared - cause.differing)

    @pytest.mark.parametrize("groups", [1, 2])
    def test_convolutions_are_cases_of_their_layout(self, groups: int) -> None:
        x, w = normal(2, 4, 7), normal(6, 4 // groups, 3)

        def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
            per, read = w.shape[0] // groups, w.shape[1]
            y = np.zeros((len(x), len(w), 7), np.float32)
            for f in range(len(w)):
                rows = padded[:, f // per * read : f // per * read + read]
                taps = np.stack([rows[:, c, k : k + 7] for c in range(read) for k in range(3)], 1)
                y[:, f] = either_way(taps * w[f].reshape(-1)[:, None], len(x) == 1)
            return y

        meaning = Windows((2,), 1, (3,), (1,), (1,), ((1, 1),), groups=groups, weights=(2, 1, 0))
        order_is_named(meaning, convolved, {"x": x[:1]}, x=x, w=w)

    @pytest.mark.parametrize(
        ("kernel", "stride", "pad", "flipped", "groups"),
        [(4, 2, 1, 0, 1), (3, 2, 0, 0, 1), (2, 2, 0, 0, 1), (3, 2, 1, 1, 1), (3, 2, 1, 0, 2)],
    )
    def test_transposed_convolutions_read_what_each_output_meets(
        self, kernel: int, stride: int, pad: int, flipped: int, groups: int
    ) -> None:
        x, w = normal(2, 4, 6), normal(4, 3, kernel)

        def spread(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            y = np.zeros((len(x), 3 * groups, (6 - 1) * stride + kernel), np.float32)
            terms = [(c, i, k) for c in range(4) for i in range(6) for k in range(kernel)]
            for c, i, k in terms if len(x) == 1 else terms[::-1]:
                tap, first = kernel - 1 - k if flipped else k, c * groups // 4 * 3
                y[:, first : first + 3, i * stride + k] += x[:, c, i, None] * w[c, :, tap]
            return y[..., pad : y.shape[-1] - pad]

        more: Any = {"kind": "transposed", "weights": (2, 0, 1), "flipped": bool(flipped)}
        more |= {"groups": groups}
        meaning = Windows((2,), 1, (kernel,), (stride,), (1,), ((pad, pad),), **more)
        cause = order_is_named(meaning, spread, {"x": x[:1]}, x=x, w=w)
        assert cause.examined == cause.differing

    @pytest.mark.parametrize(
        ("word", "count", "divisor"),
        [("sum", 16, 1), ("mean", 16, 16), ("mean", 6, 6)],
        ids=["a sum", "exactly", "by another number"],
    )
    def test_sums_and_means_are_asked_through_their_input(
        self, word: str, count: int, divisor: int
    ) -> None:
        x = normal(9, 30, count)
        reduced = lambda x: either_way(x[..., None], len(x) == 1)[..., 0] / np.float32(divisor)  # noqa: E731
        order_is_named(Reduces((2,), word), reduced, {"x": x[:1]}, x=x)

    def test_a_side_that_mixes_before_it_multiplies_is_another_algorithm(self) -> None:
        x, w = normal(3, 8), normal(8, 6)

        def mixed(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            if len(x) == 1:
                return product(x, w)
            half = np.float32(3) * x  # products of other numbers than the operands
            return product(half, w) - product(x + x, w)

        _, cause = explained(Contracts("mk,kn->mn"), mixed, {"x": x[:1]}, {"x": x, "w": w})
        assert cause.kind in ("algorithm", "") and not cause.kind.startswith("order")

    def test_many_differences_are_replayed_beyond_those_revealed(self) -> None:
        given = {"x": normal(8, 24), "w": normal(24, 64)}
        left = {"x": given["x"][:1]}
        _, cause = explained(Contracts("mk,kn->mn"), product, left, given, most=4)
        assert cause.examined == cause.differing > 4
        assert cause.replayed == cause.examined and cause.kind == "order"

    @pytest.mark.parametrize("counts", [False, True])
    @pytest.mark.parametrize("stride", [1, 2])
    def test_means_of_windows_that_overlap_are_asked_apart(self, stride: int, counts: bool) -> None:
        x = normal(3, 5, 9)

        def pooled(x: np.ndarray) -> np.ndarray:
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
            outputs = (9 + 2 - 4) // stride + 1
            taps = [padded[..., k : k + (outputs - 1) * stride + 1 : stride] for k in range(4)]
            ones = np.pad(np.ones(9), 1, constant_values=counts)
            size = [ones[k * stride : k * stride + 4].sum() for k in range(outputs)]
            return (either_way(np.stack(taps, -2), len(x) == 1) / size).astype(np.float32)

        more: Any = {"kind": "average", "reads": (0,), "counts_padding": counts}
        meaning = Windows((2,), 1, (4,), (stride,), (1,), ((1, 1),), **more)
        order_is_named(meaning, pooled, {"x": x[:1]}, x=x)

    @pytest.mark.parametrize("word", ["relu", "relu6"])
    def test_a_sum_goes_through_a_fused_activation(self, word: str) -> None:
        x, w, b = normal(8, 20), normal(20, 16), normal(16)

        def fused(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
            high = np.float32(6 if word == "relu6" else np.inf)
            return np.clip(product(x, w, b), np.float32(0), high)

        meaning = behind((Each("add"), (2,)), (Each(word), ()))
        order_is_named(meaning, fused, {"x": x[:1]}, x=x, w=w, b=b)

    def test_what_is_added_to_a_sum_is_its_last_addition(self) -> None:
        x, w, b, z = np.ones((8, 20), np.float32), normal(20, 16), normal(16), normal(8, 16)
        w[:], w[0] = np.clip(abs(w), 0.5, 1.5), 2**25  # the others are lost behind it, not before
        residual = lambda x, w, b, z: np.maximum(product(x, w, b) + z, np.float32(0))  # noqa: E731
        adds = ((Each("add"), (n,)) for n in (2, 3))
        meaning = behind(*adds, (Each("relu"), ()))
        order_is_named(meaning, residual, {"x": x[:1], "z": z[:1]}, x=x, w=w, b=b, z=z)

    def test_an_unknown_function_behind_a_sum_is_said(self) -> None:
        x, given = normal(8, 20), {"w": normal(20, 16)}
        function = lambda x, w: np.tanh(product(x, w))  # noqa: E731
        _, cause = explained(behind((Each("tanh"), ())), function, {"x": x[:1]}, {"x": x, **given})
        assert cause.kind == "" and "after the sum" in cause.why

    def test_a_librarys_own_products_are_explained(self) -> None:
        torch = pytest.importorskip("torch")

        def linear(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Any:
            with torch.no_grad():
                return torch.nn.functional.linear(*map(torch.from_numpy, (x, w, b))).numpy()

        for k in (24, 65, 384):
            given = {"x": normal(8, k), "w": normal(40, k), "b": normal(40)}
            left = {"x": given["x"][:1]}
            if (linear(**(given | left)) != linear(**given)[:1]).any():
                break
        else:
            pytest.skip("one row and eight have the same bits here")
        _, cause = explained(Contracts("mk,nk->mn", (0, 1), 2), linear, left, given)
        assert cause.kind in ("order", "rounding", "order+rounding")
        assert cause.replayed == cause.examined == cause.differing > 0


def by_address(x: np.ndarray, w: np.ndarray, after: Any = None) -> np.ndarray:
    """A product that is added downwards where the weights begin off a multiple of 16 bytes."""
    y = either_way(x[..., :, None] * w, w.ctypes.data % 16 == 0)
    return y if after is None else after(y)


@pytest.mark.long
class TestAddresses:
    @pytest.mark.parametrize("offset", [4, 8, 12, 20, 60])
    def test_where_operands_begin_is_a_cause_which_replays(self, offset: int) -> None:
        x, w = normal(3, 40), normal(40, 30)
        left, right = ({"x": x, "w": layout.copied(w, at)} for at in (0, offset))
        _, cause = explained(Contracts("mk,kn->mn"), by_address, left, right)
        assert cause.kind == "alignment" and cause.alone
        assert cause.causes == {"alignment": cause.differing}
        assert cause.replayed == cause.examined == cause.differing > 0
        assert f"w at 0 on the left and {offset} on the right" in cause.why
        assert "different orders" in cause.why and cause.comparison is not None

    def test_of_what_is_no_sum_the_exchanged_addresses_are_the_proof(self) -> None:
        x, w = normal(3, 40), normal(40, 30)
        left, right = ({"x": x, "w": layout.copied(w, at)} for at in (12, 32))
        meaning = behind((Each("tanh"), ()))
        function = lambda x, w: by_address(x, w, np.tanh)  # noqa: E731
        for one in (meaning, Unknown("a double")):
            _, cause = explained(one, function, left, right)
            assert cause.kind == "alignment" and cause.explained
            assert cause.causes == {"alignment": cause.differing}

    def test_addresses_that_change_nothing_are_no_cause(self) -> None:
        x, w = normal(8, 20), normal(20, 16)
        left, right = ({"x": one, "w": layout.copied(w, at)} for one, at in ((x[:1], 0), (x, 4)))
        _, cause = explained(Contracts("mk,kn->mn"), product, left, right)
        assert cause.kind == "order" and "address" not in cause.why

    def test_what_is_not_run_says_where_operands_begin(self) -> None:
        x, w = normal(3, 40), normal(40, 30)
        step = Step("double", Contracts("mk,kn->mn"), by_address, ["x", "w"])
        left, right = (
            record_run(Doubles({"x": layout.copied(x), "w": layout.copied(w, at)}, [step]))
            for at in (0, 8)
        )
        (one,) = right.operations
        _, cause = first_cause(left, replace(right, operations=[replace(one, again=None)]))
        assert not cause.kind and "w at 0 on the left and 8 on the right" in cause.why


@pytest.mark.long
class TestAlone:
    def test_what_varies_from_run_to_run_is_not_deterministic(self) -> None:
        count = [0]

        def drawn(x: np.ndarray) -> np.ndarray:
            count[0] += 1
            return x + np.float32(len(x) * 1e-3 * count[0])

        x, noise = normal(4, 50), lambda x: x * np.float32(1 + len(x) * 2**-20)
        _, cause = explained(Each("noise"), noise, {"x": x[:1]}, {"x": x}, again=drawn)
        assert cause.kind == "nondeterministic"

    def test_what_follows_from_freed_memory_is_not_deterministic(self) -> None:
        held = np.full(800, 0x3F, np.uint8)
        del held
        if not (np.empty(800, np.uint8)[64:] == 0x3F).all():
            pytest.skip("freed memory does not come back here")

        def unwritten(x: np.ndarray) -> np.ndarray:
            y = np.empty(x.shape, np.float32)
            y[:, 1:] = x[:, 1:]  # the first column is left as it was
            return y

        given, runs = {"x": normal(4, 50)}, []
        for function in (np.copy, unwritten):
            held = np.full(800, 0x3F, np.uint8)  # what the next array of this size has in it
            del held
            runs.append(record_run(Doubles(given, [Step("f", Each("copied"), function, ["x"])])))
        _, cause = first_cause(*runs)
        assert cause.kind == "nondeterministic" and "right" in cause.why

    def test_what_gives_other_bits_alone_has_no_class(self) -> None:
        x = normal(4, 50)
        function = lambda x: x * np.float32(1 + len(x) * 2**-20)  # noqa: E731
        _, cause = explained(Each("f"), function, {"x": x[:1]}, {"x": x}, again=np.negative)
        assert cause.kind == "" and not cause.alone and "alone" in cause.why

    def test_what_reads_more_than_repetitions_have_shown_is_no_source(self) -> None:
        x, w = normal(4, 6), normal(6, 30)
        function = lambda x, w: product(x + x[-1:] * np.float32(2**-16), w)  # noqa: E731
        step = Step("double", Contracts("mk,kn->mn"), function, ["x", "w"])
        runs = [record_run(Doubles({"x": rows, "w": w}, [step])) for rows in (x[:1], x)]
        unchanged = Repetitions((None, Marks(runs[1], repetitions=4)))
        _, cause = first_cause(*runs, match=RunningMatch((runs[0], runs[1]), unchanged))
        assert cause.kind == "" and "not expected to read" in cause.why and not cause.alone


@pytest.mark.long
class TestNoWord:
    @pytest.mark.parametrize(
        ("meaning", "why"),
        [
            (Unknown("nobody said what it computes"), "nobody said"),
            (Normalises((1,)), "no test for it"),
        ],
    )
    def test_nothing_is_guessed(self, meaning: Meaning, why: str) -> None:
        x = normal(4, 6)
        left, right = (
            record_run(Doubles({"x": x}, [Step("double", meaning, function, ["x"])]))
            for function in (lambda x: x * np.float32(1.1), lambda x: x * np.float32(1.2))
        )
        _, cause = first_cause(left, right)
        assert cause.kind == "" and why in cause.why and not cause.explained


# Two formulas of the same, replayed one operation after the other; sums of a few whole arrays.


DRAWN = np.random.default_rng(4)
TERMS = {n: DRAWN.standard_normal((4, 60)) for n in "abcd"}
ADDS = Each("add")


def steps(*reads: tuple[int, ...], meaning: Meaning = ADDS) -> Steps:
    """Additions one after the other; numbers: of operands, then of sums."""
    return Steps(tuple(Part(meaning, one, (4, 60)) for one in reads))


def cause(
    left: tuple[Meaning, Any], right: tuple[Meaning, Any], dtype: str = "float32"
) -> source.Cause:
    """Of two sums of a, b, c and d in one operation each."""
    given = {n: one.astype(dtype) for n, one in TERMS.items()}
    runs = [record_run(Doubles(given, [Step("sum", *one, list("abcd"))])) for one in (left, right)]
    found = compare_runs(RunningMatch.of(*runs))
    found.operations[0].by_value = found.operations[0].grouped = True
    return source.find_cause(runs[0], runs[1], found.operations[0])


ROW = steps((0, 1), (4, 2), (5, 3)), lambda a, b, c, d: ((a + b) + c) + d
PAIRS = steps((0, 1), (2, 3), (4, 5)), lambda a, b, c, d: (a + b) + (c + d)
BACK = steps((3, 2), (4, 1), (5, 0)), lambda a, b, c, d: ((d + c) + b) + a
AT_ONCE = Each("add_n"), lambda a, b, c, d: ((a + b) + c) + d


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (ROW, PAIRS, "(((p0+p1)+p2)+p3) on the left, ((p0+p1)+(p2+p3)) on the right"),
        (BACK, AT_ONCE, "(p0+(p1+(p2+p3))) on the left, (((p0+p1)+p2)+p3) on the right"),
    ],
)
def test_orders_are_read_off_and_replayed(left, right, said, dtype) -> None:
    found = cause(left, right, dtype)
    assert found.kind == "order" and said in found.why
    assert found.examined == found.replayed == found.differing > 0 and found.alone


OTHERS = {
    "of which one side rounds otherwise": (ROW, (ROW[0], lambda *x: np.float64(PAIRS[1](*x)))),
    "said to be in one order, but in another": ((ROW[0], PAIRS[1]), (PAIRS[0], BACK[1])),
    "of differences": (ROW, (steps((0, 1), (4, 2), (5, 3), meaning=Each("subtract")), PAIRS[1])),
    "of multiples": (
        ROW,
        (
            steps((0, 1), (4, 2), meaning=Each("add", (("alpha", 2.0),))),
            lambda a, b, c, d: (a + b) + 2 * (c + d),
        ),
    ),
    "of other terms": (ROW, (steps((0, 1), (2, 2), (4, 5)), lambda a, b, c, d: (a + b) + (c + c))),
}


@pytest.mark.parametrize("one", ["float16", "int32", None])
def test_no_order_is_said_of_sums_in_formats_that_are_not_added_as_numpy_adds_them(one) -> None:
    """float16 is added in float32 by some; ``None``: one operand of another format."""
    given = {n: (64 * each).astype(one or "float32") for n, each in TERMS.items()}
    given["d"] = given["d"].astype(one or "float64")
    into = np.dtype(one or "float32")
    sums = [(kind, lambda *x, f=f: f(*x).astype(into)) for kind, f in (ROW, PAIRS)]
    runs = [record_run(Doubles(given, [Step("sum", *each, list("abcd"))])) for each in sums]
    found = compare_runs(RunningMatch.of(*runs)).operations[0]
    found.by_value = found.grouped = True
    if found.differing:  # whole numbers have the same sum in every order
        assert source.find_cause(*runs, found).kind != "order"
    assert bool(found.differing) == (one != "int32")


@pytest.mark.parametrize("name", OTHERS)
def test_no_order_is_said_of_what_is_not_known_to_be_a_sum_of_the_same(name) -> None:
    assert cause(*OTHERS[name]).kind != "order"


X, W = (DRAWN.standard_normal(shape).astype(np.float32) for shape in ((6, 20), (20, 3)))
SCALE, SHIFT = DRAWN.standard_normal((2, 3)).astype(np.float32)
GIVEN = {"x": X, "w": W, "s": SCALE, "b": SHIFT, "folded": W * SCALE}
GIVEN |= {
    "ones": np.ones(3, np.float32),
    "doubled": W * SCALE * np.float32(2),
    "half": np.full(3, 0.5, np.float32),
    "w3": W[None],
    "other": np.nextafter(W, np.float32(9))[None],
}


def rows_times_weights(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return added(x[:, :, None] * w, list(range(len(w))))


MATMUL = Contracts("mk,kn->mn")
PRODUCT = Step("product", MATMUL, rows_times_weights, ["x", "w"])
FOLDED = Step("product", MATMUL, rows_times_weights, ["x", "folded"])
SCALED = Step("scale", Each("multiply"), np.multiply, [0, "s"])
ONCE = Step("scale", Each("multiply"), np.multiply, [0, "ones"])  # changes nothing


def shifted(number: int) -> Step:
    return Step("shift", ADDS, np.add, [number, "b"])


def formulas(left: list[Step], right: list[Step]) -> source.Cause:
    """Of two formulas of ``x``, whose results are taken for the same."""
    weights = GIVEN.keys() - {"x"}
    sides = [
        lambda x, steps=steps: Doubles(GIVEN | dict(x), steps, weights) for steps in (left, right)
    ]
    inputs = {"x": X}
    runs = [record_run(side(inputs)) for side in sides]
    found = compare_runs(by_running((sides[0], sides[1]), (inputs, inputs))(*runs))
    assert found.first is not None and found.first.grouped and found.first.by_value
    return source.find_cause(*runs, found.first)


def test_a_product_that_is_scaled_behind_against_scaled_weights_is_another_formula() -> None:
    cause = formulas([PRODUCT, SCALED, shifted(1)], [FOLDED, shifted(0)])
    assert cause.kind == "algorithm" and cause.explained and "two formulas: " in cause.why
    assert cause.examined == cause.replayed == cause.differing > 0


def test_two_sides_of_one_formula_are_not_two() -> None:
    doubled = [
        Step("matmul", MATMUL, rows_times_weights, ["x", "doubled"]),
        Step("rescale", Each("multiply"), np.multiply, [0, "half"]),
    ]
    cause = formulas([PRODUCT, SCALED], doubled)
    assert "formulas:" not in cause.why and cause.kind != "algorithm"


@pytest.mark.slow
def test_what_grapplers_addn_does_to_a_residual_is_an_order() -> None:
    """(x + bias) + rest becomes AddN([x, rest]) + bias when a Keras model is compiled."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    x, rest = (DRAWN.standard_normal((2, 8, 8, 6)).astype(np.float32) for _ in range(2))
    scale, bias = DRAWN.standard_normal((2, 6)).astype(np.float32)

    def model(x: Any, rest: Any) -> Any:
        return tf.nn.relu((x * scale + bias) + tf.sqrt(abs(rest)))

    compiled = tf.function(model)
    found = probe.first_difference(
        lambda: model(tf.constant(x), tf.constant(rest)),
        lambda: compiled(tf.constant(x), tf.constant(rest)),
    )
    first = found.found.first
    if first is None:  # grappler left the sum as it was
        assert found.verdict == "equal"
        return
    (cause,) = found.found.causes.values()
    assert first.grouped and cause.kind == "order" and "((p0+p1)+p2)" in cause.why


def drawing(op: str, numbers: Any, state: str | None) -> Run:
    """A run that draws these numbers, from a state that it noted or from the key that it reads."""
    attributes: dict[str, Any] = {"size": [3]} | ({"drawn": ["[(3,)]", state]} if state else {})
    key = [] if state else [np.zeros(2, np.uint32)]

    def program(tape: Any) -> Any:
        drawn = lambda *key: np.float16(numbers)  # noqa: E731
        return tape.ran(op, Unknown("it draws"), drawn, *key, attributes=attributes)

    return record_run(Taped(program))


@pytest.mark.parametrize(("op", "state"), [("aten.randn", "a state"), ("random_bits", None)])
def test_a_stream_that_is_drawn_differently_is_its_own_cause(op: str, state: str | None) -> None:
    """PyTorch 2.12 draws float16 otherwise than 2.11 from the same seed: no order explains it."""
    left, right = drawing(op, [0.1, 0.2, 0.3], state), drawing(op, [0.1, 0.5, 0.7], state)
    _, cause = first_cause(left, right)
    assert (cause.kind, cause.causes) == ("generator", {"generator": 2})
    assert f"{op} draws different numbers from the same" in cause.why
    seeded = drawing("aten.randn", [0.1, 0.5, 0.7], "another state")
    begun = drawing("aten.randn", [0.1, 0.2, 0.3], "a state")
    first = compare_runs(RunningMatch.of(begun, seeded)).first
    assert first is not None and "a state" in first.arguments


def two_programs(given: dict[str, np.ndarray], *both: list[Step]) -> tuple[Difference, Any]:
    """The first source of two programs of the same inputs, and its cause."""
    return first_cause(*(record_run(Doubles(given, steps)) for steps in both))


def test_means_over_different_counts_are_no_order_of_the_same_products() -> None:
    """An average pool with SAME padding against one of zeros that were padded before it."""

    def pooled(counts: bool) -> Callable[[np.ndarray], np.ndarray]:
        def average(x: np.ndarray) -> np.ndarray:
            padded = np.pad(x, [(0, 0), (1, 1), (0, 0)])
            total = (padded[:, :-2] + padded[:, 1:-1]) + padded[:, 2:]
            count = np.full((1, x.shape[1], 1), 3, np.float32)
            count[:, [0, -1]] -= 0 if counts else 1
            return total / count

        return average

    window = Windows((1,), 2, (3,), (1,), (1,), ((1, 1),), kind="average", reads=(0,))
    both = ([Step("pool", window, pooled(counts), ["x"])] for counts in (False, True))
    found, cause = two_programs({"x": normal(2, 9, 4)}, *both)
    assert cause.kind == "algorithm" and "divided by other counts" in cause.why
    assert "2 on the left, 3 on the right" in cause.why
    assert found.first is not None and found.first.differing == 16 and not cause.rounding.explained


def test_the_same_in_another_format_is_a_matter_of_precision() -> None:
    half, single = (lambda x: x.astype(np.float16)), (lambda x: x.astype(np.float32))
    multiplied, cast = Contracts("mk,kn->mn"), Each("cast")
    left = [Step("product", multiplied, product, ["x", "w"]), Step("relu", Each("relu"), relu, [0])]
    right = [Step("cast", cast, half, ["x"]), Step("cast", cast, half, ["w"])]
    right += [Step("product", multiplied, product, [0, 1]), Step("cast", cast, single, [2])]
    right += [Step("relu", Each("relu"), relu, [3])]
    _, cause = two_programs({"x": normal(5, 20), "w": normal(20, 6)}, left, right)
    assert cause.kind == "precision" and cause.alone and not cause.rounding.explained


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def test_two_functions_in_one_place_are_a_source_however_far_apart() -> None:
    # of two draws in a hundred the products behind are joined to what they read
    rng, sizes = np.random.default_rng(0), {"x": (6, 8), "w": (8, 5), "v": (5, 4)}
    given = {name: rng.normal(size=size).astype("f4") for name, size in sizes.items()}
    multiplied = Contracts("mk,kn->mn")
    programs = []
    for function in (relu, silu):
        steps = [Step("product", multiplied, product, ["x", "w"])]
        steps += [Step(function.__name__, Each(function.__name__), function, [0])]
        programs.append([*steps, Step("last", multiplied, product, [1, "v"])])
    found, cause = two_programs(given, *programs)
    assert found.first is not None and found.first.op == "relu against silu"
    assert cause.kind == "algorithm" and [r.verdict for r in found.operations][-1] == "carried"


def test_sums_of_inputs_in_another_order_are_one_though_each_step_reads_others() -> None:
    """Both sides' first addition reads two inputs, and the other side reads these elsewhere."""
    given = {n: each.astype("f4") for n, each in TERMS.items()}
    left = [Step("add", ADDS, np.add, ["a", "b"]), Step("add", ADDS, np.add, [0, "c"])]
    right = [Step("add", ADDS, np.add, ["b", "c"]), Step("add", ADDS, np.add, ["a", 0])]
    _, cause = two_programs(
        given, *([*s, Step("tanh", Each("tanh"), np.tanh, [1])] for s in (left, right))
    )
    assert cause.kind == "order" and cause.explained


def test_a_mode_around_a_call_that_makes_subnormals_zero_is_named() -> None:
    x = np.linspace(1, 9, 40, dtype=np.float32) * np.float32(1e-38)
    quarter = lambda x: x * np.float32(0.25)  # noqa: E731
    flushed = lambda x: np.where(np.abs(quarter(x)) < 1.1754944e-38, np.float32(0), quarter(x))  # noqa: E731
    both = (
        [Step("mul", Each("f"), function, ["x"], again=quarter)] for function in (quarter, flushed)
    )
    _, cause = two_programs({"x": x}, *both)
    assert cause.kind == "flush" and "right" in cause.why and not cause.refuted


def test_an_index_of_other_numbers_is_named() -> None:
    x, at = normal(9, 5), np.array([0, 2, 4])
    runs = []
    for index in (at, np.array([0, 2, 5])):
        step = Step("take", Moves(), lambda x, i: x[i], ["x", "i"])
        steps = [step, Step("tanh", Each("tanh"), np.tanh, [0])]
        runs.append(record_run(Doubles({"x": x, "i": index}, steps)))
    found = compare_and_explain(RunningMatch.of(*runs))
    assert found.first is None and found.verdict == "differs"
    assert found.different_constants == "take at layers.0 is given other numbers, i: 1 of 3 differ"


def test_inputs_that_are_exchanged_are_an_argument_and_none_is_within_rounding() -> None:
    """``exp(a) * sin(b)`` against ``exp(b) * sin(a)``, some of which are close to each other."""
    a = normal(511).astype("f4")
    given = {"a": a, "b": np.where(np.arange(511) % 7, -a, np.nextafter(a, np.float32(9)))}
    programs = []
    for first, second in ("ab", "ba"):
        steps = [Step("exp", Each("exp"), np.exp, [first])]
        steps += [Step("sin", Each("sin"), np.sin, [second])]
        programs.append([*steps, Step("multiply", Each("multiply"), np.multiply, [0, 1])])
    found, cause = two_programs(given, *programs)
    assert found.first is not None and found.first.op == "exp"
    assert (cause.kind, cause.why) == ("argument", "operand 1 a against b")
    assert cause.rounding.unknown == cause.rounding.total == found.first.differing > 0


def test_operands_in_each_others_places_are_an_argument() -> None:
    subtract = Each("subtract")
    programs = [
        [Step("subtract", subtract, np.subtract, [*both]), Step("exp", Each("exp"), np.exp, [0])]
        for both in ("ab", "ba")
    ]
    _, cause = two_programs({"a": normal(40), "b": normal(40, 1)[:, 0]}, *programs)
    assert (cause.kind, cause.why) == ("argument", "operands 1 and 2 exchanged")
