"""Tables of classes that were altered, or made elsewhere, or are no tables at all."""

from __future__ import annotations

import json

import numpy as np
import pytest

from probe import stable, ulp
from probe.errors import InputError
from probe.invariant.classes import HEARSAY, Entry, Sizes, Table, anew
from tests.invariant.test_classes import Planted, chosen, computed

LARGEST = 200
COUNTS = (*range(1, 40), 64, 99, 100, 130, 199, 200, 333)

pytest.importorskip("torch", reason="a table says which PyTorch it was made with")


def kept(path, planted):
    """The table of a planted library that was used for all counts, as JSON."""
    sizes = chosen(planted, LARGEST)
    for count in COUNTS:
        sizes.plan(count)
    sizes.entry.certified = {"1": "certified: all outputs"}
    Table(
        "largest", {"batch": (1, LARGEST)}, 1, {"library": "torch"}, {"planted": sizes.entry}
    ).save(path)
    return json.loads(path.read_text())


def opened(path, told, planted, home=True):
    """The sizes of a table as a model gets them, and the table; ``home``: it was made here."""
    path.write_text(json.dumps(told))
    table = Table.read(path)
    table.trusted = home
    table.notes.clear()
    sizes = Sizes(planted, table.entries["planted"], 1)
    table.recheck(sizes)
    anew(sizes, LARGEST, "largest", (), table.notes)
    return sizes, table


def right(planted, sizes):
    """Whether every count at every place has the bits of the largest size."""
    truth = planted.added(planted.turn <= LARGEST)
    calls = [computed(planted, sizes, count) for count in COUNTS]
    return all(ulp.equal(y, np.broadcast_to(truth, y.shape), "float32") for y in calls)


@pytest.mark.check
def test_what_was_asked_is_not_asked_again_but_where_it_is_run(tmp_path):
    told = kept(path := tmp_path / "table.json", Planted())
    again = Planted()
    sizes, table = opened(path, told, again)
    assert not table.notes and len(again.asked) < 10 < len(sizes.marks)
    assert right(again, sizes) and not table.notes
    used = {piece.size for count in COUNTS for piece in sizes.plan(count)}
    assert used <= set(again.asked)  # a table's word alone runs nothing


def test_a_class_that_is_claimed_but_false_is_found_and_derived_anew(tmp_path):
    told = kept(path := tmp_path / "table.json", Planted())
    entry = told["operations"]["planted"]
    for size in range(2, 16):  # these add backwards
        entry["marks"]["1"][str(size)] = entry["chosen"]
    planted = Planted()
    sizes, table = opened(path, told, planted)
    assert right(planted, sizes)
    assert any("differs: checked anew" in note for note in table.notes)


def test_random_lies_change_no_bit(tmp_path):
    told = kept(path := tmp_path / "table.json", Planted(tails=(17, 40)))
    rng = np.random.default_rng(5)
    for _ in range(25):
        lie = json.loads(json.dumps(told))
        entry = lie["operations"]["planted"]
        words = [*entry["marks"]["1"].values(), "", "nonsense", entry["chosen"]]
        for size in rng.choice([*entry["marks"]["1"], "1", "7", "17", "40", "999999999"], 6):
            entry["marks"]["1"][str(size)] = words[rng.integers(len(words))]
        if rng.integers(2):
            entry["chosen"] = words[rng.integers(len(words))]
        planted = Planted(tails=(17, 40))
        sizes, _ = opened(path, lie, planted)
        assert right(planted, sizes), lie
        assert max(planted.asked) < 100_000


def test_another_class_than_that_of_the_largest_size_is_not_taken(tmp_path):
    told = kept(path := tmp_path / "table.json", Planted())
    entry = told["operations"]["planted"]
    entry["chosen"] = entry["marks"]["1"]["1"]
    planted = Planted()
    sizes, table = opened(path, told, planted)
    assert any("not that of the largest size: chosen anew" in note for note in table.notes)
    assert right(planted, sizes)


def test_elsewhere_every_size_is_asked_anew_and_the_bits_stay(tmp_path):
    """There the library turns at 24 rows, and the largest size adds the same."""
    told = kept(path := tmp_path / "table.json", Planted(16))
    there = Planted(24)
    sizes, table = opened(path, told, there, home=False)
    assert right(there, sizes) and not any("chosen anew" in note for note in table.notes)
    gone = Planted(10**6)  # no size that is tried gives the bits of the table
    sizes, table = opened(path, told, gone, home=False)
    assert right(gone, sizes) and any("chosen anew" in note for note in table.notes)


def test_certificates_of_a_file_are_hearsay(tmp_path):
    told = kept(path := tmp_path / "table.json", Planted())
    sizes, table = opened(path, told, Planted())
    assert sizes.entry.certified == {"1": HEARSAY + "certified: all outputs"}
    table.save(path)
    again, _ = opened(path, json.loads(path.read_text()), Planted())
    assert again.entry.certified == sizes.entry.certified


def with_(told, *place, to):
    """A copy with another value somewhere."""
    told = json.loads(json.dumps(told))
    at = told
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = to
    return told


HOSTILE = {
    "too deep": "[" * 100_000,
    "huge number": '{"format": 1e999}',
    "a list": "[1, 2]",
    "not text": "\udcff",
    "threads": ("threads", 10**9),
    "no threads": ("threads", 0),
    "infinite threads": ("threads", float("inf")),
    "sizes of text": ("sizes", {"batch": "12"}),
    "fractions": ("sizes", {"batch": [1.0, 200.0]}),
    "nothing": ("sizes", {"batch": [0]}),
    "negative marks": ("operations", "planted", "marks", {"1": {"-4": "x"}}),
    "marks of words": ("operations", "planted", "marks", {"1": {"four": "x"}}),
    "marks of many threads": ("operations", "planted", "marks", {"1000000": {"4": "x"}}),
    "no marks": ("operations", "planted", "marks", None),
    "infinite largest": ("operations", "planted", "largest", float("inf")),
    "operations": ("operations", [1]),
    "environment": ("environment", 7),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line(name, tmp_path):
    given, path = HOSTILE[name], tmp_path / "table.json"
    told = kept(path, Planted())
    if isinstance(given, str):
        path.write_text(given, errors="surrogateescape")
    else:
        path.write_text(json.dumps(with_(told, *given[:-1], to=given[-1])))
    with pytest.raises(InputError) as caught:
        Table.read(path)
    assert str(caught.value).startswith("table=table.json: ") and "\n" not in str(caught.value)


def test_an_entry_saves_what_a_table_needs_and_no_more():
    assert set(Entry().to_json()) == {"chosen", "like", "largest", "marks", "certified"}


def test_a_layer_with_an_altered_table_keeps_the_bits_of_its_largest_batch(tmp_path):
    import torch

    torch.manual_seed(1)
    layer, x = torch.nn.Linear(48, 40).eval(), torch.randn(40, 48)
    model, report = stable.invariant(layer, range(1, 41), example=x)
    wanted = model(x).numpy()
    for count in range(1, 41):
        model(x[:count])
    report.save(path := tmp_path / "table.json")
    told = json.loads(path.read_text())
    for entry in told["operations"].values():
        (threads,) = entry["marks"]
        entry["marks"][threads] = dict.fromkeys(map(str, range(1, 41)), entry["chosen"])
    path.write_text(json.dumps(told))
    model, report = stable.invariant(layer, range(1, 41), table=path)
    for count in range(1, 41):
        assert ulp.equal(model(x[:count]).numpy(), wanted[:count], "float32")
