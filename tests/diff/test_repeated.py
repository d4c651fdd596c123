"""Other content stands in what the other run lacks, and nowhere else; marks say which elements
change with it, and a repetition's values are not kept."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from probe.diff.repeated import (
    compact,
    contents,
    differing,
    independent,
    repeated,
    repeated_with_others,
    what_is_lacked,
)
from probe.order.semantics import Unknown
from probe.record.recording import record_run
from tests.record.doubles import Doubles, Step


def test_the_rows_of_a_batch_that_one_sample_lacks_are_all_others() -> None:
    x = np.random.default_rng(0).standard_normal((8, 5)).astype("f4")
    where, before = what_is_lacked({"x": x[3:4]}, {"x": x})
    assert np.flatnonzero(where["x"].any(axis=1)).tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert before == Fraction(3, 8)
    assert not what_is_lacked({"x": x}, {"x": x[3:4]})[0][
        "x"
    ].any()  # one sample has nothing beside


def test_a_mask_that_stands_in_many_places_is_where_its_content_is() -> None:
    x, mask = np.arange(12, dtype="f4").reshape(4, 3), np.ones((4, 3), int)
    where, before = what_is_lacked({"x": x[2:3], "mask": mask[2:3]}, {"x": x, "mask": mask})
    assert np.array_equal(where["mask"], where["x"])
    assert before == Fraction(2, 4)


def test_a_sample_without_its_padding_lacks_the_others_and_what_its_mask_hides() -> None:
    x = np.arange(1.0, 41.0, dtype=np.float32).reshape(2, 5, 4)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    whole, alone = {"x": x, "mask": mask}, {"x": x[:1, :3], "mask": mask[:1, :3]}
    where, before = what_is_lacked(alone, whole)
    assert before == 0 and not where["x"][0, :3].any() and where["x"].sum() == 2 * 5 * 4 - 3 * 4
    others = list(contents(whole, where))
    assert all((other["mask"][0] == mask[0]).all() for other in others)  # padding stays hidden
    assert any((other["mask"][1] != mask[1]).any() for other in others)
    assert all((other["x"][0, 3:] != x[0, 3:]).any() for other in others)
    tile = {"x": x[1:, 2:4]}
    where, _ = what_is_lacked(tile, {"x": x})
    assert not where["x"][1, 2:4].any() and where["x"].sum() == x.size - 8
    assert what_is_lacked({"x": x[:1]}, {"x": x[:, :3]}) is None  # neither is a piece of the other


def test_inputs_that_are_no_piece_of_the_others_are_not_taken_for_one() -> None:
    x = np.arange(12, dtype="f4").reshape(4, 3)
    assert what_is_lacked({"x": x[:2] + 1}, {"x": x}) is None
    assert what_is_lacked({"y": x[:2]}, {"x": x}) is None


def test_content_changes_where_it_is_lacked_alone_and_stays_finite() -> None:
    x = np.random.default_rng(0).standard_normal((2, 6)).astype("f2") * 1000
    where = {"x": np.arange(6) >= np.full((2, 1), 4)}
    every = [other["x"] for other in contents({"x": x}, where)]
    assert len(every) == 4
    for other in every:
        assert np.array_equal(other[:, :4], x[:, :4])
        assert np.isfinite(other).all()
        assert (other[:, 4:] != x[:, 4:]).all()


def test_products_of_two_inputs_are_large_of_either_sign_and_none() -> None:
    arrays = {name: np.linspace(1, 2, 6, dtype="f4").reshape(2, 3) for name in "xw"}
    lacking = {name: np.arange(3) + np.zeros((2, 1)) > 1 for name in "xw"}
    products = [float((other["x"] * other["w"])[0, 2]) for other in contents(arrays, lacking)]
    assert products[0] > 9 and products[1] < -9 and 0 in products


def test_what_a_mask_hides_is_no_larger_than_what_it_shows() -> None:
    """A mask may hide by adding -10,000, which large numbers outweigh."""
    x, mask = np.linspace(-1, 1, 10, dtype="f4").reshape(1, 5, 2), np.array([[1, 1, 1, 0, 0]])
    where = {"x": np.broadcast_to(mask[..., None] == 0, x.shape), "mask": mask == 0}
    sizes = [abs(other["x"]).max() for other in contents({"x": x, "mask": mask}, where)]
    assert max(sizes) < 2 and sizes[0] == 1


def test_tokens_stay_in_the_range_that_occurs() -> None:
    ids = np.arange(10, 30).reshape(2, 10)
    for other in contents({"ids": ids}, {"ids": ids >= 20}):
        assert other["ids"].min() >= 10
        assert other["ids"].max() < 30


def test_a_mask_that_says_what_is_padding_stays_and_one_of_content_changes() -> None:
    mask = np.array([[1, 1, 1, 0, 0]])
    lacking = {"mask": np.arange(5)[None] >= 3}
    assert all(np.array_equal(o["mask"], mask) for o in contents({"mask": mask}, lacking))
    mask = np.array([[1, 1, 0, 0, 0]])  # the shorter run is padded, too
    assert all(np.array_equal(o["mask"], mask) for o in contents({"mask": mask}, lacking))
    mask = np.array([[1, 0, 1, 0, 1]])
    assert any((o["mask"] != mask).any() for o in contents({"mask": mask}, lacking))


def test_other_samples_masks_become_those_of_one_another() -> None:
    mask = np.arange(6) < np.array([3, 6, 2, 4])[:, None]
    rows = {"mask": np.arange(4)[:, None] + np.zeros((4, 6)) > 0}
    counts = [other["mask"].sum(axis=1).tolist() for other in contents({"mask": mask}, rows)]
    assert counts == [[3, 6, 2, 4], [3, 6, 2, 4], [3, 6, 2, 2], [3, 4, 6, 2]]


def test_independent_inputs_have_the_same_masks() -> None:
    x, mask = np.ones((2, 3), "f4"), np.array([[1, 1, 0], [1, 0, 0]])
    other = independent({"x": x, "mask": mask})
    assert (other["x"] != x).all()
    assert np.array_equal(other["mask"], mask)


X = np.random.default_rng(0).standard_normal((4, 6)).astype("f4")


def steps(*functions: Callable[..., Any]) -> Sequence[Step]:
    reads = ["x", *range(len(functions) - 1)]
    return [Step(f"op{n}", Unknown(), f, [reads[n]]) for n, f in enumerate(functions)]


def other(rows: slice) -> np.ndarray:
    changed = X.copy()
    changed[rows] *= -3
    return changed


def test_rows_that_change_are_marked_and_a_mark_has_no_size_along_other_axes() -> None:
    program = steps(lambda x: x * 2, lambda y: y.T, lambda y: y.sum())
    run = record_run(Doubles({"x": X}, program))
    marks = repeated(run, [lambda: Doubles({"x": other(slice(1, None))}, program)])
    doubled, turned, total = (marks.of(op.gives[0]) for op in run.operations)
    assert marks.repetitions == 1
    assert doubled.tolist() == [[False], [True], [True], [True]]
    assert turned.tolist() == [[False, True, True, True]]
    assert total.all()


def test_a_batch_is_repeated_until_a_content_reaches_no_further_sample() -> None:
    where, x = {"x": np.arange(4)[:, None] + np.zeros((4, 6)) > 0}, X.copy()
    x[0] = X.min(axis=0) - 1
    seen = list[np.ndarray]()

    def count(*functions: Callable[..., Any]) -> int:
        run = record_run(Doubles({"x": x}, steps(*functions)))

        def again(arrays: dict[str, np.ndarray]) -> Doubles:
            seen.append(arrays["x"])
            return Doubles(arrays, steps(*functions))

        return repeated_with_others(run, again, {"x": x}, where).repetitions

    assert count(lambda x: x * 2, lambda y: np.maximum(y, 0)) == 2
    large = [len(np.unique(np.abs(row))) == 1 for row in seen[1][1:]]
    assert large == [False, True, False]  # in the second, each content stands beside the others
    # the least number of the batch stays beside large ones
    assert count(lambda x: x - x.min(axis=0)) == 4
    assert count(lambda x: x - x.sum()) == 2  # all that it gives is reached at once
    first = {"x": where["x"] & (np.arange(6) > 3)}  # no whole samples
    run = record_run(Doubles({"x": X}, steps(np.tanh)))
    given = lambda arrays: Doubles(arrays, steps(np.tanh))  # noqa: E731
    assert repeated_with_others(run, given, {"x": X}, first).repetitions == 4


def test_what_another_branch_has_not_is_not_known_and_outputs_are_compared_still() -> None:
    def program(x: np.ndarray) -> Doubles:
        more = [lambda y: y + 1] if x[1, 0] < 0 else []
        chain = steps(lambda x: x * 2, *more, lambda y: y - y)
        chain[-1].op = "last"
        return Doubles({"x": x}, chain)

    base = np.abs(X)
    turned = base.copy()
    turned[1:] *= -1
    run = record_run(program(base))
    marks = repeated(run, [lambda: program(turned)])
    assert not marks.of(run.outputs[0]).any()
    run = record_run(program(turned))
    marks = repeated(run, [lambda: program(base)])
    assert marks.of(run.operations[1].gives[0]) is None


def test_a_repetition_that_fails_says_nothing() -> None:
    def fail(_: np.ndarray) -> np.ndarray:
        raise ValueError("no such token")

    run = record_run(Doubles({"x": X}, steps(np.tanh)))
    marks = repeated(run, [lambda: Doubles({"x": X}, steps(fail))])
    assert marks.repetitions == 0


def test_zeros_of_both_signs_are_alike_and_nan_is_itself() -> None:
    left, right = (np.array(v, "f4") for v in ([0.0, np.nan, 1], [-0.0, np.nan, 2]))
    assert differing(left, right, "float32").tolist() == [False, False, True]
    assert compact(np.zeros((3, 4), bool)).shape == (1, 1)
