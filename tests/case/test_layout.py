"""How operands lie in memory: words, numbers, strides, and the kernels that follow from them."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe import Case
from probe.case import layout
from probe.case.errors import InputError
from probe.case.schema import LAYOUTS
from probe.explain.comparison import Comparison, OutputPairs, compare_shapes
from probe.explain.runs import ComparedShapes, Revealer, run_case
from probe.order.functions import FunctionSession, Own
from probe.targets import backends
from probe.targets.backends import rewritten
from probe.targets.backends.contract import Backend, Operator, Unsupported
from probe.targets.target import Target


def test_the_schema_says_which_number_is_which_word():
    for word in layout.WORDS:
        assert f"{layout.layout_number(word)} `{word}`" in LAYOUTS
    assert f"{layout.layout_number('offset:0')} + N `offset:N`" in LAYOUTS


def test_a_case_without_a_layout_is_stored_as_it_was():
    case = Case("conv1d", 3, filters=4, length=9)
    turned = case.with_(layout="transposed")
    assert "layout" not in {**case.to_json(), **case.spec()}
    assert turned.to_json()["layout"] == turned.spec()["layout"] == "transposed"
    assert Case.from_json(turned.to_json()) == turned and turned.id != case.id
    assert turned.label == "conv1d 3, 1 -> 4, length 9, transposed"
    assert Case("conv1d", 3, filters=4, length=9, layout="contiguous") == case


@pytest.mark.parametrize(
    ("word", "given", "said"),
    [
        ("rows", {}, "unknown; use contiguous"),
        ("offset:", {}, "not a number of bytes"),
        ("offset:-4", {}, "not a number of bytes"),
        ("offset:5000", {}, "not a number of bytes from 0 to 4096"),
        ("offset:6", {}, "elements of float32 have 4 bytes; use a multiple of 4"),
        ("offset:4", {"dtype": "float64"}, "elements of float64 have 8 bytes"),
        ("channels_last", {}, "2 or 3 spatial axes, and conv1d has fewer; use transposed"),
    ],
)
def test_what_is_no_layout_is_refused_in_one_line(word, given, said):
    with pytest.raises(InputError, match=f"layout={word}: .*{said}"):
        Case("conv1d", 3, layout=word, **given)


@pytest.mark.parametrize("text", ["tensorflow", "jax", "litert", "keras", "reference"])
def test_a_library_that_copies_its_operands_says_so(text):
    made = backends.get(text)()
    spec = Case("conv1d", 3, length=9, layout="transposed").spec()
    with pytest.raises(Unsupported, match=r"layout=transposed: .* row by row; use contiguous"):
        rewritten.spec_operator(made, spec)


class Seen:
    """Stands for ``torch.nn.functional``, and keeps what a call is given."""

    def __init__(self, functions):
        self.functions = functions

    def __getattr__(self, name):
        def call(x, w, *more, **words):
            self.x, self.w = x, w
            return getattr(self.functions, name)(x, w, *more, **words)

        return call


@pytest.fixture
def given():
    """f(case): x and w as PyTorch's function gets them from the lines that the worker runs."""
    torch = pytest.importorskip("torch")
    enabled = torch.is_grad_enabled()
    backend = backends.get("torch")()
    backend.start({}, "cpu")

    def given(case):
        seen = Seen(torch.nn.functional)
        shapes = {"x": case.input_shape(), "w": case.weight_shape}
        backend.watched(case.spec(), shapes, F=seen)
        return seen.x, seen.w

    yield given
    torch.set_grad_enabled(enabled)


LINE = {"op": "conv1d", "kernel": 2, "filters": 8, "length": 9}
IMAGE = {"op": "conv2d", "kernel": 3, "in_channels": 3, "filters": 6, "length": 9, "height": 4}
LAYER = {"op": "dense", "in_channels": 5}


@pytest.mark.parametrize(
    ("case", "word", "x", "w"),
    [
        (LINE, "contiguous", (9, 9, 1), (2, 2, 1)),
        (LINE, "transposed", (9, 1, 1), (2, 2, 1)),  # contiguous, says PyTorch
        (LINE, "strided", (18, 18, 2), (2, 2, 1)),
        (IMAGE, "contiguous", (108, 36, 9, 1), (27, 9, 3, 1)),
        (IMAGE, "transposed", (108, 1, 27, 3), (27, 9, 3, 1)),
        (IMAGE, "channels_last", (108, 1, 27, 3), (27, 1, 9, 3)),
        (LAYER | {"batch": 3}, "contiguous", (5, 1), (5, 1)),
        (LAYER | {"batch": 3}, "transposed", (1, 3), (1, 1)),
        (LAYER, "transposed", (1, 1), (1, 1)),
        (LAYER, "strided", (10, 2), (10, 2)),
    ],
)
def test_pytorch_is_given_the_strides_that_a_word_stands_for(given, case, word, x, w):
    found = given(Case(**case, layout=word))
    assert [one.stride() for one in found] == [x, w]
    assert case is not LINE or word == "strided" or found[0].is_contiguous()


@pytest.mark.parametrize("count", [0, 4, 16, 36])
def test_an_offset_is_where_the_storage_starts(given, count):
    x, w = given(Case(**LINE, layout=f"offset:{count}"))
    assert x.data_ptr() % 64 == count % 64 and x.stride() == (9, 9, 1)
    x, w = given(Case(**LAYER, layout=f"offset:{count}"))
    assert [one.data_ptr() % 64 for one in (x, w)] == [count % 64] * 2


def pair(session, case, word):
    """A case in a layout against contiguous, revealed and judged."""
    found = compare_shapes(
        ComparedShapes.named(case, "layout", word, "contiguous"), session, session
    )
    return found.reveal(session, session, Revealer())


def test_numpy_adds_the_columns_of_a_turned_array_in_another_order(started):
    # along the last axis in pairs, along the first row by row: NumPy's own loops, on every machine
    found = pair(started("numpy"), Case("sum", in_channels=300, length=5), "transposed")
    assert found.causes == {"order": len(found.differing)} and found.by_order == found.compared == 5
    assert found.replayed == 5 and len(found.differing) > 0
    told = found.to_json()
    assert (told["left"]["layout"], "layout" in told["right"]) == ("transposed", False)
    assert "layout transposed" in found.lines()[0] and "layout contiguous" in found.lines()[0]


class Addressed(Backend):
    """Adds downwards where its input begins off a multiple of 16 bytes; keeps offsets."""

    layouts = (layout.CONTIGUOUS, "offset:N")

    def start(self, switches, device):
        return {}

    def operator(self, spec):
        return AddressedSum(spec)


class AddressedSum(Operator):
    def call(self, x, w, b):
        order = range(x.shape[-1])[:: 1 if x.ctypes.data % 16 == 0 else -1]
        total = x[..., order[0]]
        with np.errstate(all="ignore"):  # of operands near the largest number
            for n in order[1:]:
                total = total + x[..., n]
        return total[..., None]

    def input(self, x):
        count = layout.offset(layout.layout_of_spec(self.spec))
        return x if count < 0 else layout.copied(x, count)

    def weights(self, w):
        return w

    def bias(self, b):
        return b

    def output(self, y):
        return y


def test_a_control_that_finds_the_address_is_pinned_or_says_alignment():
    case = Case("sum", in_channels=40, length=3, operands="cancel")
    found = []
    for target in (Target.parse("numpy"), Own("a function")):
        session = FunctionSession(sum, case)
        session._worker.backend, session.target = Addressed(), target
        one, two = (run_case(session, case.with_(length=n)) for n in (2, 3))
        found.append(Comparison(case, one, two, OutputPairs.of_blocks(one.case, two.case, BOTH)))
        found[-1].reveal(session, session, Revealer())
    pinned, refused = found  # NumPy's layouts have offsets, a function of one's own has none
    assert pinned.left.case.layout == "offset:0" and pinned.left.control == "equal"
    assert pinned.replayed == pinned.compared == 2 and not pinned.causes
    assert refused.left.refusal == "alignment"
    assert "different memory address" in refused.left.evidence
    y = refused.left.operands.y
    y[0] += 1
    assert refused.causes == {"alignment": 1}


BOTH = ((slice(0, 1), slice(0, 2)),)


@pytest.mark.slow
def test_a_sweep_compares_layouts_with_contiguous_and_goes_on_from_its_store(tmp_path):
    case = Case("sum", in_channels=300, length=5)
    for _ in range(2):
        words = ["transposed", "strided", "offset:4"]
        found = probe.sweep(case, words, "numpy", vary="layout", store=tmp_path).to_json()
        assert found["against"] == "contiguous" and found["comparisons"] == 3
        assert [one["layout"] for one in found["lengths"]][:1] == ["transposed"]
    assert found["stored_before"] == 3
    stored = probe.load(tmp_path)
    assert set(stored.comparisons["against"]) == {1} and 2 in set(stored.comparisons["at"])
    assert set(stored.comparisons["vary"]) == {"layout"}
    told = probe.sweep(case, ["offset:8", "transposed"], "numpy", vary="layout", by="order")
    told = told.to_json()
    assert [one["layout"] for one in told["lengths"]] == ["transposed"] and not told["unknown"]
    with pytest.raises(InputError, match="each layout with contiguous"):
        probe.sweep(case, ["contiguous"], "numpy", vary="layout")
