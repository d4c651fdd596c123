"""The nine layers on targets: where short and full part, how far to pad, what is stored of it."""

import numpy as np
import pytest

import probe
from lib import nine_layers
from lib.nine_layers import NineLayers
from lib.padding import Request, content, graph_of, measure, padded
from probe import Store, Target, load, ulp
from probe.comparison import decisions
from probe.errors import InputError
from probe.invariant.mitigated_models import MitigatedGraph
from probe.invariant.mitigations import RemedySessions
from probe.launch import InlineSession, Session
from probe.layout import CHANNELS_LAST, CONTIGUOUS
from probe.padding.plan import CUT, SETS, sought_between, spliced
from probe.padding.positions import box_index
from probe.recording.replayed import Port, There
from probe.target import why_unavailable

pytestmark = pytest.mark.long

pytest.importorskip("onnxruntime")

SWITCHING = "reference,algorithm=pairwise,length_switch=9"
"""Adds in sequence where it gives fewer than 9 outputs, in pairs from there on."""

SOURCE = "nine-layers:width=3,blocks=2"
SMALL = NineLayers(3, blocks=2, fixed=80)


@pytest.fixture(scope="module")
def switching():
    with InlineSession(Target.parse(SWITCHING)) as session:
        yield session


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_the_exact_output_is_that_of_the_file(padding, tmp_path):
    library = pytest.importorskip("onnxruntime")
    network = NineLayers(3, seed=1, blocks=2, padding=padding)
    words = {"width": 3, "seed": 1, "blocks": 2, "padding": padding}
    path = nine_layers.onnx_model(tmp_path / "small.onnx", **words)
    session = library.InferenceSession(path)
    for length in (37, 38, 39, 40):
        x = content(length)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, network.exact(x), rtol=1e-5, atol=1e-5)


def test_field_and_jump_are_those_of_the_windows():
    row = NineLayers(1).row("nine-layers:width=1")
    assert (row["field"], row["jump"], row["layers"]) == (2300, 256, 25)
    assert NineLayers.parse(SOURCE, 80) == SMALL and SMALL.id != NineLayers(3, blocks=3).id
    with pytest.raises(InputError, match="'kernal=3' is not a part of this name"):
        NineLayers.parse("nine-layers:kernal=3")


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.slow_at("same")
def test_safe_sizes_are_the_shortest_at_which_no_layer_changes_its_order(
    switching, padding, tmp_path
):
    network = NineLayers(2, seed=3, blocks=2, padding=padding, fixed=96)
    graph = graph_of(network, switching, tmp_path)

    def behind(size):
        """How many outputs each convolution gives."""
        found = []
        for layer in network.layers:
            same = padding == "same"
            if layer.op == "conv2d":
                size -= 0 if same else 4
                found.append(size)
            elif layer.op == "max_pool2d":
                size = -(-size // 2) if same else size // 2
        return [one < 9 for one in found]

    for length in (1, 11, 30):
        found = graph.sized(length)
        alike = [to for to in range(found.least, 97) if behind(to) == behind(96)]
        assert found.safe == alike[0] and found.at_safe.by_order == "same"


@pytest.mark.slow
def test_safe_sizes_hold_in_channels_last_memory_too(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    words = {"width": 16, "blocks": 3}
    with Session(Target.parse("torch")) as session:
        graph = graph_of(NineLayers(**words, fixed=300), session, tmp_path)
        safe = {length: graph.sized(length).safe for length in (1, 40, 120)}
    module = nine_layers.torch_module(**words)
    for memory in (torch.contiguous_format, torch.channels_last):
        model = module.to(memory_format=memory)
        for length, size in safe.items():
            (box,) = graph.boxes(length)
            (part,) = box
            for seed in range(6):
                x = torch.from_numpy(content(300, seed))
                x[..., length:] = 0
                x = x.contiguous(memory_format=memory)
                short, whole = (
                    model(x[..., :to].contiguous(memory_format=memory)) for to in (size, 300)
                )
                assert torch.equal(short[..., : part.stop], whole[..., : part.stop]), (
                    memory,
                    length,
                )


@pytest.mark.parametrize("cut", [0, 100, CUT])
@pytest.mark.slow_at("0", "500000")
def test_padding_between_the_layers_gives_the_same_bits(switching, cut, tmp_path):
    graph = graph_of(SMALL, switching, tmp_path)
    for length in (1, 13, 40):
        found = sought_between(graph, length, graph.sized(length).safe, cut)
        assert found is not None and found.proved == SETS and found.by_order == "same"
        assert not found.contiguous  # there is one memory format
        x = content(length, length)
        (short,) = spliced(graph, found, padded(x, found.size)).results
        (whole,) = graph.opened.plain(padded(x, 80))
        (box,) = found.boxes
        mine, theirs = short[box_index(box, True, 4)], whole[box_index(box, False, 4)]
        assert mine.size and np.ascontiguousarray(mine).tobytes() == theirs.tobytes()
    # a receptive field of 16 takes 64 positions here; a cut behind each operation takes few more
    assert found.size < 60 and any(one.size > one.start for one in found.splices)


def test_constants_between_keep_the_bits_in_channels_last_memory_too(
    switching, monkeypatch, tmp_path
):
    """There convolutions of less than 15 outputs round otherwise here."""
    plain, turned = Port.call, [False]

    def call(port, one, reads, keep=True, word=CONTIGUOUS):
        y = plain(port, one, reads, keep)
        narrow = one.spec["op"] == "conv2d" and y.shape[3] < 15
        return np.nextafter(y, np.float32(9)) if narrow and (turned[0] or word != CONTIGUOUS) else y

    monkeypatch.setattr(Port, "call", call)
    monkeypatch.setattr(There, "words", (CONTIGUOUS, CHANNELS_LAST))
    graph = graph_of(SMALL, switching, tmp_path)
    safe = graph.sized(13).safe
    found = sought_between(graph, 13, safe, 0)
    assert found is not None and found.size < safe
    turned[0] = True
    x = content(13, 3)
    (short,) = spliced(graph, found, padded(x, found.size)).results
    (whole,) = graph.opened.plain(padded(x, 80))
    (box,) = found.boxes
    assert ulp.equal(short[box_index(box, True, 4)], whole[box_index(box, False, 4)], "float32")


def test_constants_that_channels_last_memory_computes_otherwise_are_said_to_be_of_contiguous(
    switching, monkeypatch, tmp_path
):
    """Every size rounds alike there, but not as contiguous memory, whose constants they are."""
    plain = Port.call

    def call(port, one, reads, keep=True, word=CONTIGUOUS):
        y = plain(port, one, reads, keep)
        return y if word == CONTIGUOUS else np.nextafter(y, np.float32(9))

    monkeypatch.setattr(Port, "call", call)
    monkeypatch.setattr(There, "words", (CONTIGUOUS, CHANNELS_LAST))
    graph = graph_of(SMALL, switching, tmp_path)
    found = sought_between(graph, 13, graph.sized(13).safe, 0)
    assert found is not None and found.contiguous and found.proved == SETS


@pytest.mark.slow
@pytest.mark.parametrize("text", ["torch", "tensorflow,onednn=0", "onnxruntime", "litert"])
def test_a_librarys_program_has_constants_between_its_layers(text, tmp_path, started):
    if why := why_unavailable(Target.parse(text)):
        pytest.skip(why)
    graph = graph_of(SMALL, started(text), tmp_path)
    found = sought_between(graph, 13, graph.sized(13).safe, 100)
    x = content(13, 5)
    run = spliced(graph, found, padded(x, found.size))
    output, seconds, why = graph.opened.port.end_to_end(run, 2)
    assert not why and len(seconds) == 2
    assert ulp.equal(output, run.results[0], "float32")


def test_decisions_and_errors_are_counted():
    fixed = np.array([[3.0, 1.0, 2.0, 0.5, 0.25, -1.0]], np.float32)
    other = fixed.copy()
    other[0, 0] = 1.5
    told = {one.decision: one for one in decisions.decisions(other, fixed, "float32")}
    assert told["argmax"].crossed == 1 and told["top-5"].crossed == 0
    assert told["threshold"].crossed == 0 and told["threshold"].taken == 6
    assert decisions.error(other, fixed, "float32") == pytest.approx(0.5 * 2**23)


@pytest.mark.slow
def test_measurements_are_stored_and_not_repeated(tmp_path):
    wanted = [(Target.parse(SWITCHING), [Request(SOURCE, 80, (1, 9, 17), 1, (9,), True, (9,), 1)])]
    with Store.here(tmp_path) as store:
        first = measure(wanted, store, "test")
        again = measure(wanted, store, "test")
    assert (first.found, again.found, again.before) == (1, 0, 1)
    assert first.comparisons == 3 and first.explained == first.diverging > 0
    found = load(tmp_path)
    assert found.networks.network_id.tolist() == [SMALL.id]
    assert (found.padded_lengths.differing_safe == 0).all()
    assert set(found.decisions.variant) == {"least", "safe", "layerwise"}
    exact = found.decisions[found.decisions.variant != "least"]
    assert (exact.differing == 0).all() and (exact.crossed == 0).all()
    own = found.activations[found.activations.own > 0]
    assert (own.replayed == own.own).all() and set(own.cause) == {"order"}


@pytest.mark.slow
def test_programs_are_stored_and_made_up_for_where_they_are_missing(tmp_path):
    where = Target.parse("torch")
    if why := why_unavailable(where):
        pytest.skip(why)
    wanted = [(where, [Request(SOURCE, 80, (1, 9, 17), 1, (9,), True)])]
    with Store.here(tmp_path) as store:
        first = measure(wanted, store, "test")
    found = load(tmp_path).programs
    assert first.programs == 3 and first.otherwise == 0
    assert found.groupby("variant").size().to_dict() == {"layerwise": 1, "least": 3, "safe": 3}
    assert (found[found.variant != "least"].differing == 0).all()
    assert found.other_than_layers.notna().sum() == 3
    for file in tmp_path.rglob("programs.parquet"):
        file.unlink()
    with Store.here(tmp_path) as store:
        again = measure(wanted, store, "test")
        last = measure(wanted, store, "test")
    assert (again.found, again.comparisons, again.programs) == (1, 0, 3)
    assert (last.found, last.before) == (0, 1)
    assert load(tmp_path).programs.drop(columns="run_id").equals(found.drop(columns="run_id"))


@pytest.mark.slow
def test_a_model_is_judged_with_what_is_done_about_it(switching, tmp_path):
    """Two pools and three convolutions: short content leaves the last one fewer than 9 outputs."""
    network = NineLayers(2, blocks=2, fixed=120)
    graph = graph_of(network, switching, tmp_path)
    true = network.exact(padded(content(120), 120)["x"])
    with RemedySessions(inline=True) as sessions:
        only = ["pad", "layerwise", "chunks=12", "float64"]
        work = MitigatedGraph(graph, (1, 5, 12), 12, sessions, only, true)
        found = {one.remedy.name: one for one in work.measured((12,), None)}
    verdicts = {name: one.verdict for name, one in found.items()}
    assert verdicts.pop("float64") in ("differs", "not known")
    exact = dict.fromkeys(("pad", "layerwise", "chunks=12"), "exact")
    assert verdicts == {"default": "differs"} | exact
    pairs = zip(found["default"].sizes, found["pad"].sizes, strict=True)
    assert all(least < safe for least, safe in pairs)
    assert found["float64"].error_rms < found["default"].error_rms


@pytest.mark.slow
def test_users_try_what_their_target_has_on_a_model(tmp_path):
    path = nine_layers.onnx_model(tmp_path / "small.onnx", width=2, blocks=2)
    words = {"fixed": 120, "shapes": {"x": (1, 1, 1, 120)}, "content": 12}
    only = ["chunks=12", "layerwise"]
    told = probe.remedies(str(path), [1, 12], SWITCHING, only=only, **words).to_json()
    found = {one["name"]: one for one in told["remedies"]}
    assert set(found) == {"default", *only} and told["invariant"] is None
    assert found["default"]["verdict"] == "differs"
    tried = [found[name] for name in only]
    assert all(one["verdict"] == "exact" for one in tried)
    assert all(one["of_fixed"] > 0 and one["keeps"] for one in tried)
    with pytest.raises(InputError, match="only=onednn=1: there is no such remedy of reference"):
        probe.remedies(str(path), [1], SWITCHING, only=["onednn=1"], **words)
