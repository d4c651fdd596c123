"""The invariant mode of programs that are run whole: a planted library, and the real ones."""

from importlib import import_module

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from probe.sizes.invariant.keeper import NotInvariant
from probe.sizes.invariant.whole import BLIND
from tests.sizes.invariant.models import Planted, W, drawn, same

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def few_more_samples(monkeypatch):
    """So many as take 0.02 seconds, not 0.3: planted orders show in any sample."""
    monkeypatch.setattr("probe.sizes.invariant.whole.SPENT", 0.02)


@pytest.mark.check
def test_a_sample_has_the_bits_of_the_largest_call_everywhere():
    planted, x = Planted(), drawn(70, 33)
    assert not same(planted(x[:3]), planted(x)[:3])
    model, report = stable.invariant(planted.function(), range(1, 33), example=x[:2])
    whole = model(x)
    assert same(whole, Planted.added(x, W, True))
    for count in (1, 2, 3, 4, 5, 31, 32, 33, 64, 70):
        assert same(model(x[:count]), whole[:count]), count
    turned = np.random.default_rng(2).permutation(70)
    assert same(model(x[turned]), whole[turned])
    ((_, sizes),) = report.sizes.items()
    assert sizes == [4, 8, 16, 32] and report.complete and not report.limited


def test_no_size_is_run_that_was_not_checked_or_whose_places_differ():
    planted = Planted(1, tails=(8, 32))
    model, report = stable.invariant(planted.function(), [4, 8, 16, 32], example=drawn(2, 33))
    ((_, sizes),) = report.sizes.items()
    assert sizes == [4, 10, 16, 34] and "32" in report.table.notes[0]
    planted.sizes.clear()
    x = drawn(50, 33)
    whole = Planted.added(x, W, True)
    assert all(same(model(x[:n]), whole[:n]) for n in range(1, 50))
    assert set(planted.sizes) <= {4, 10, 16, 34}


@pytest.mark.slow
def test_a_size_that_rounds_few_numbers_differently_is_not_used(monkeypatch):
    monkeypatch.setattr("probe.sizes.invariant.whole.SPENT", 0.3)

    def rarely(x):
        y = Planted.added(x, W, True)
        rare = y.view(np.uint32) * np.uint32(2654435761) >> 23 == 0  # one of 512 numbers
        return np.nextafter(y, np.float32(9)) if len(x) == 1 and rare.any() else y

    x = drawn(2000, 33)
    assert not same(np.concatenate([rarely(one[None]) for one in x]), rarely(x))
    model, report = stable.invariant(rarely, [1, 2, 8], example=x[:2])
    ((_, sizes),) = report.sizes.items()
    assert sizes == [2, 8]
    assert same(np.concatenate([model(one[None]) for one in x]), rarely(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0),
        lambda x: np.round(x / np.abs(x).max() * 127),  # dynamic quantisation
        lambda x: np.cumsum(x, 0),
        lambda x: x * (1 + np.isnan(x).any()),
        lambda x: x * (1 + (np.abs(x) > 1000).any()),
        lambda x: x * (1 + (np.abs(x) < 1e-3).all(1).any()),
    ],
)
def test_samples_that_read_each_other_are_refused(function):
    with pytest.raises(InputError, match="depends on the values of its neighbours"):
        stable.invariant(function, [1, 8], example=drawn(8, 3))


def test_samples_that_read_each_other_are_refused_from_the_first_sample_on():
    """Hundreds of samples are drawn from this one, of its six numbers: they are no codes."""
    one = np.random.default_rng(0).normal(size=(1, 6)).astype(np.float32)
    with pytest.raises(InputError, match="depends on the values of its neighbours"):
        stable.invariant(lambda x: x / np.abs(x).max())[0](one)


@pytest.mark.parametrize("kind", [np.float32, lambda value: np.array(value, np.float32)])
def test_a_number_that_chooses_a_branch_is_asked_about(kind):
    def scaled(x, limit):
        return x / np.abs(x).max() if limit > 1.5 else x * 2

    x = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    same, _ = stable.invariant(scaled, batched=(0, None))
    same(x, kind(1))
    with pytest.raises(InputError, match="depends on the values of its neighbours"):
        same(x, kind(2))


def test_what_hides_its_bits_is_said_and_refused_when_strict():
    def hidden(x):
        return np.argmax(x @ W, axis=1)

    _, report = stable.invariant(hidden, [1, 8], example=drawn(8, 33))
    assert BLIND in repr(report)
    with pytest.raises(NotInvariant, match=BLIND):
        stable.invariant(hidden, [1, 8], strict=True, example=drawn(8, 33))


def test_samples_stand_along_the_axes_that_are_said():
    def model(state, pair, scale):
        x, w = pair["x"], pair["w"]
        y = Planted()(np.ascontiguousarray(x.T), w) * scale
        rows = np.repeat(y, 3, axis=0)  # three rows of each sample
        return {"y": y[None], "state": state + 1, "rows": rows}

    pair = {"x": drawn(33, 6), "w": W}
    state = drawn(2, 6, 5)
    given = state, pair, np.float32(2)
    made, _ = stable.invariant(
        model, [1, 4, 6], example=given, batched=(1, {"x": 1, "w": None}, None)
    )
    whole = made(*given)
    for count in (1, 3, 5):
        part = made(state[:, :count], {"x": pair["x"][:, :count], "w": W}, np.float32(2))
        assert same(part["y"], whole["y"][:, :count])
        assert same(part["state"], whole["state"][:, :count])
        assert same(part["rows"], whole["rows"][: 3 * count])
    assert same(whole["y"][0], Planted.added(pair["x"].T, W, True) * 2)


def test_another_shape_is_checked_when_it_is_met():
    planted = Planted()
    model, report = stable.invariant(lambda x: planted(x, W[: x.shape[1]]), [1, 8])
    assert "nothing was called yet" in repr(report)
    for width in (33, 20):
        x = drawn(8, width)
        assert same(model(x[:1]), model(x)[:1])
    assert len(report.sizes) == 2


@pytest.mark.parametrize(
    ("given", "words", "why"),
    [
        ((drawn(2, 33), W), {}, "unknown which carry samples"),
        ((drawn(2, 33),), {"batched": (0, None)}, "has 2 entries"),
        ((drawn(2, 33),), {"batched": (3,)}, "has shape"),
        ((drawn(2, 33),), {"batched": (None,)}, "one number of samples"),
        ((drawn(0, 33),), {}, "at least 1"),
        ((3,), {}, ": not an array"),
        ((drawn(2, 33),), {"sizes": {"length": [3]}}, "padded along batches"),
        ((drawn(2, 33),), {"threads": 2}, "of files that are run whole"),
        (
            (drawn(2, 33),),
            {"table": "classes.json"},
            "operations that run one by one",
        ),
        ((drawn(2, 33) + 1j,), {}, "has this format"),
    ],
)
def test_mistakes_are_one_line(given, words, why):
    def function(*args):
        return np.asarray(args[0])

    with pytest.raises(InputError, match=why) as caught:
        stable.invariant(function, **words, example=given)
    assert "\n" not in str(caught.value)


def test_a_state_of_zeros_is_checked_with_numbers():
    """Zeros add alike in every order."""
    planted, x, state = Planted(), drawn(3, 33), np.zeros((3, 33), np.float32)
    model, report = stable.invariant(
        lambda x, state: planted(state), [1, 8], example=(x, state), batched=(0, 0)
    )
    assert list(report.sizes.values()) == [[8]]
    given = drawn(8, 33)
    assert same(model(x[:1], given[:1]), model(np.resize(x, (8, 33)), given)[:1])


def test_what_never_repeats_is_refused():
    drawn_now = np.random.default_rng(3)
    with pytest.raises(InputError, match="two runs of the same"):
        stable.invariant(
            lambda x: x + drawn_now.standard_normal(x.shape), [1, 4], example=drawn(4, 3)
        )


def test_whole_programs_need_no_pytorch():
    """What is imported at the top of these files is NumPy and this project."""
    for name in ("whole", "programs", "classes", "samples"):
        found = vars(import_module(f"probe.sizes.invariant.{name}"))
        assert not {"torch", "jax", "tensorflow", "onnxruntime"} & set(found), name


def test_where_places_differ_at_every_size_samples_are_run_one_by_one():
    def placed(x):
        y = Planted.added(x, W, True)
        y[1:] = np.nextafter(y[1:], np.float32(9))
        return y

    x = drawn(9, 33)
    model, report = stable.invariant(placed, [2, 8], example=x[:2])
    assert list(report.sizes.values()) == [[1]] and "those of size 1 are kept" in repr(report)
    assert same(model(x), np.concatenate([placed(one[None]) for one in x]))


def test_a_function_with_a_tail_is_asked_at_the_samples_that_tell(monkeypatch):
    """Its tail rounds one of ten thousand numbers otherwise: the last three of each call."""
    monkeypatch.setattr("probe.sizes.invariant.whole.SPENT", 1.0)  # rare numbers take samples
    calls = []

    def rarely(x):
        calls.append(len(x))
        y = x * np.float32(1.37)
        rare = y.view(np.uint32) * np.uint32(2654435761) < np.uint32((1 << 32) // 10_000)
        rare[: len(x) * 16 // 64 * 64 // 16] = False  # whole vectors of 64 numbers
        return np.where(rare, np.nextafter(y, np.float32(9)), y)

    model, report = stable.invariant(rarely, [1, 7, 8], example=drawn(2, 16))
    assert list(report.sizes.values()) == [[8]]
    x = drawn(4000, 16)
    assert same(np.concatenate([model(x[at : at + 7]) for at in range(0, 700, 7)]), model(x[:700]))
