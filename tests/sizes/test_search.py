"""Padded sizes of models that are run: those that serve are what brute force finds."""

import numpy as np
import pytest

import probe
from lib import nine_layers
from probe.case.errors import InputError
from probe.diff.apart import WholeFile
from probe.order.semantics import Contracts, Reduces, Unknown
from probe.record.ndarray import operation
from probe.sizes.fixes import advise
from probe.sizes.model_fixes import ModelQuestion
from probe.sizes.search import PaddedModel
from probe.targets import budget
from tests.sizes import graphs
from tests.sizes.graphs import BIAS, FIXED, ONE, TWO, WIDE, X, answered, conv, convolved, graph


def brute(model, content):
    """The least size at which all outputs that read content come out, by numbers alone."""

    def run(content, size):
        x = np.zeros((1, size, graphs.CHANNELS), np.float32)
        x[:, :content] = X[:, :content]
        return np.asarray(model(x))

    whole = run(content, FIXED)
    read = np.flatnonzero((whole != run(0, FIXED)).any(axis=(0, 2)))
    for size in range(content, FIXED):
        short = run(content, size)
        if short.shape[1] > read[-1] and np.array_equal(
            short[:, read[0] : read[-1] + 1], whole[:, read[0] : read[-1] + 1]
        ):
            return size
    return FIXED


@pytest.mark.parametrize("content", [5, 23])
def test_the_least_size_of_a_residual_graph_is_that_of_brute_force(content):
    found = graph(graphs.residual()).sized(content)
    assert found.least == found.safe == brute(graphs.residual(), content)
    assert found.at_safe.by_order == "same" and (found.at_safe.sets > 10 or found.safe == FIXED)


def test_a_size_that_adds_otherwise_is_passed_over_and_the_operation_named():
    model = graph(graphs.residual(lambda size: size in (8, 9)))
    found = model.sized(5)
    assert (found.least, found.safe) == (8, 10)
    assert (found.at_least.by_order, found.at_least.name) == ("differs", "second")
    assert "added differently" in found.at_least.why and found.at_safe.by_order == "same"


def test_bits_that_no_set_tells_apart_are_told_by_order():
    """Small whole numbers add exactly in any order."""
    dense = operation("dense", Contracts("mk,kn->mn"))(graphs.added_in_sequence)
    w = np.random.default_rng(4).integers(-3, 3, (6, 5)).astype(np.float32)
    rows = graphs.rng.integers(-3, 3, (8, 6)).astype(np.float32)
    model = graph(lambda x: dense(np.rint(np.clip(x, -9, 9)), w), {"x": rows}, {"x": 0}, 8)
    found = model.sized(3)
    assert (found.at_least.by_order, found.safe) == ("differs", 4)


def test_a_difference_that_reaches_nothing_that_is_kept_is_none():
    """In the short run the last entry alone is added otherwise, and it reads padding."""

    def tail(x, w):
        y = convolved(x, w)
        if x.shape[1] == 9:
            y[:, -1] = convolved(x, w, lambda size: True)[:, -1]
        return y

    first, second = conv("first"), operation("second", WIDE)(tail)
    found = graph(lambda x: second(first(x, ONE), TWO)).serves(5, 9)
    assert found.serves and found.boxes[0][0].stop == 7


def test_what_reads_all_of_the_axis_is_named():
    mean = operation("mean", Reduces((1,), "mean"))(
        lambda y: np.asarray(y).mean(axis=1, keepdims=True)
    )
    found = graph(lambda x: mean(graphs.residual()(x))).sized(4)
    assert (found.least, found.safe) == (FIXED, FIXED)
    assert found.at_least.name == "mean" and "read the whole padded axis" in found.at_least.why


def test_a_state_that_is_carried_keeps_the_places_of_content():
    carried = operation("scan", Unknown("a scan"))(lambda x: np.cumsum(np.asarray(x), axis=1))
    model = graph(lambda x: carried(x))
    found = model.sized(4)
    assert model.carried and (found.least, found.safe) == (4, 4)
    assert (found.at_safe.boxes[0][0].start, found.at_safe.boxes[0][0].stop) == (0, 4)
    assert (found.at_safe.by_order, found.at_safe.name) == ("unknown", "scan")
    assert "held on 8 sets of operands" in found.at_safe.why


def test_sizes_that_a_stride_leaves_out_are_lacking():
    def halved(x):
        x = np.asarray(x)
        if x.shape[1] % 4:
            raise ValueError("only multiples of 4")
        return x.reshape(1, -1, 4, graphs.CHANNELS)[:, :, 0]

    model = graph(lambda x: operation("halved", Unknown("a scan"))(halved)(x))
    found = model.sized(5)
    assert (found.least, found.safe) == (8, 8)
    told = model.serves(5, 7)
    assert told.lacking and "only multiples of 4" in told.why


def test_two_inputs_are_padded_together_and_batches_have_safe_sizes():
    def product(x, w):
        x, w = np.asarray(x), np.asarray(w)
        order = range(w.shape[0])[::-1] if len(x) < 4 else range(w.shape[0])
        y = np.zeros((len(x), w.shape[1]), np.float32)
        for k in order:
            y = y + x[:, k : k + 1] * w[k]
        return y

    dense = operation("dense", Contracts("mk,kn->mn"))(product)
    a, b = (graphs.rng.standard_normal((8, 6)).astype(np.float32) for _ in range(2))
    w = graphs.rng.standard_normal((6, 5)).astype(np.float32)
    model = graph(lambda a, b: (dense(a, w) - b[:, :5], b), {"a": a, "b": b}, {"a": 0, "b": 0}, 8)
    found = model.sized(2)
    assert (found.least, found.safe) == (2, 4) and found.at_safe.sets
    assert [box[0].stop for box in found.at_safe.boxes] == [2, 2]


def test_a_mask_keeps_padding_out_of_what_is_kept():
    torch = pytest.importorskip("torch")

    class Masked(torch.nn.Module):
        def forward(self, x, mask):
            kept = mask[..., None].to(x.dtype)
            return (x * kept).sum(1) / kept.sum(1)

    arrays = {"x": np.random.default_rng(1).standard_normal((2, 16, 3)).astype(np.float32)}
    arrays["mask"] = np.ones((2, 16), bool)
    answer = probe.network(
        Masked().eval(), inputs=arrays, vary="x:1,mask:1", lengths=[5], explain=False
    )
    (size,) = answer.found
    assert not size.at_least.lacking and size.least == 5
    model = Masked()
    for number in range(40):  # the safe size has the full one's bits, called directly
        x = np.zeros((2, 16, 3), np.float32)
        x[:, :5] = np.random.default_rng(number).standard_normal((2, 5, 3))
        mask = np.arange(16)[None].repeat(2, 0) < 5
        whole, short = (
            model(torch.from_numpy(x[:, :n].copy()), torch.from_numpy(mask[:, :n].copy()))
            for n in (16, size.safe)
        )
        assert torch.equal(whole, short)


def test_a_file_on_another_target_is_run_whole(monkeypatch):
    class Session:
        """Runs a file that computes the residual graph."""

        class target:  # noqa: N801
            text = "elsewhere==1"

        def request(self, header, arrays):
            assert (header["do"], header["path"], header["names"]) == ("file", "m.onnx", ["x"])
            model = graphs.residual(lambda size: size in (8, 9))
            return {}, {"0": np.asarray(model(arrays["0"]))}

    opened = WholeFile(Session(), "m.onnx")
    model = PaddedModel(opened, {"x": X}, {"x": 1}, FIXED)
    found = model.sized(5)
    assert model.text == "elsewhere==1" and (found.least, found.safe) == (9, 10)
    assert (found.at_least.by_order, found.at_least.name) == ("differs", "")
    assert (found.at_safe.by_order, found.at_safe.name) == ("unknown", "the whole run")
    assert found.at_safe.why.endswith("can't be asked on this target: held on 8 sets of operands")


def test_answers_say_the_same_in_lines_json_and_the_command():
    found = answered(graphs.residual(), lengths=[1])
    told = found.to_json()
    assert told["verdict"] == "equal" and told["examined"] == told["operations_total"]
    assert [one["least"] for one in told["contents"]] == [brute(graphs.residual(), 1)]
    assert "sets of operands" in repr(found) and found.picture() is not None
    given = {"inputs": {"x": X, "z": np.concatenate([X, X], 1)}, "vary": "x:1,z:1"}
    with pytest.raises(InputError, match="x has 24, z has 48 entries.*name one of these axes: x:1"):
        probe.network(lambda x, z: (x + BIAS, z + BIAS), lengths=[3], **given)
    with pytest.raises(InputError, match="content=25: the full size is 24"):
        answered(graphs.residual(), lengths=[25])


def test_ways_of_padding_are_judged_and_timed():
    rows = np.random.default_rng(3).standard_normal((1, 12, 2)).astype(np.float32)

    wide = conv("conv", lambda size: size == 5)
    w = np.random.default_rng(4).standard_normal((3, 2, 2)).astype(np.float32)
    model = PaddedModel(graphs.Opened(lambda x: wide(x, w)), {"x": rows}, {"x": 1}, 12)
    measured = ModelQuestion(model, [model.sized(4)], 4).measured("conv", "length")
    ways = {each.remedy.name: each for each in measured.found}
    assert ways["default"].verdict != "exact" and ways["default"].sizes == (5,)
    assert ways["pad"].verdict == "exact" and ways["pad"].sizes == (6,)
    assert advise(measured).name == "pad" and measured.of_fixed(ways["fixed"]) == 1


@pytest.mark.slow
def test_a_graph_runs_on_a_target_in_a_process_of_its_own(tmp_path):
    pytest.importorskip("onnxruntime")
    path = str(nine_layers.onnx_model(tmp_path / "small.onnx", width=3, blocks=2))
    words = {"shapes": {"x": (1, 1, 1, 80)}, "fixed": 80, "lengths": [1, 7]}
    here = probe.network(path, **words)
    there = probe.network(path, "onnxruntime,threads=1", vary="length", **words)
    assert there.graph.text.startswith("onnxruntime")
    assert [one.least for one in here.found] == [one.least for one in there.found] == [32, 36]
    assert here.plan.failed == there.plan.failed == []


def test_where_time_ends_while_orders_are_asked_the_bits_are_told(monkeypatch):
    """It had no answer at all: asking takes longer than running."""

    def late(*_):
        raise budget.TimeOver("the 60 s of --time were over")

    monkeypatch.setattr("probe.sizes.orders.by_order", late)
    with budget.within("60s", whole=False):
        found = graph(graphs.residual(lambda size: size in (8, 9))).serves(5, 10)
        assert budget.spent()
    assert found.serves and (found.by_order, found.name) == ("unknown", "the whole run")
    assert "time was over" in found.why and "held on 8 sets" in found.why
