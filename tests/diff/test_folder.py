"""A recording on disk: as good as the run itself, small where it must be, and data alone."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from probe.case import layout
from probe.case.errors import InputError, Nondeterministic
from probe.diff import folder
from probe.diff.apart import RunnableRecording
from probe.diff.folder import FILE, read_recording
from probe.diff.match import RunningMatch
from probe.diff.running import watch
from probe.diff.walk import compare_and_explain, walk
from probe.order.semantics import (
    Meaning,
    Moves,
    Unknown,
)
from tests.record.doubles import Doubles, Step
from tests.record.taped import Taped, apart, network, normal

X = normal(6, 32)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Recordings of two runs that differ."""
    root = tmp_path_factory.mktemp("runs")
    left, right = apart(X)
    for name, one in (("left", left), ("right", right)):
        written(one, root / name, "a:network")
    return root


def written(recorder, out, subject="", most=folder.MOST_BYTES):
    """Watches something, and keeps it in a folder."""
    with folder.begin_recording(out) as store:
        run, notes = watch(recorder, "the run", store)
        folder.write_recording(run, out, subject, most, notes)
    return read_recording(out)


def _stopped(out):
    with folder.begin_recording(out) as store:
        store.put(X)
        assert len(list(out.iterdir())) == 1
        raise ZeroDivisionError


def test_values_are_recorded_into_the_folder_and_what_is_not_finished_goes_again(tmp_path):
    run, notes = watch(network(X), "it")
    for most in (folder.MOST_BYTES, 3000):  # what there is no room for goes again, too
        into, later = tmp_path / f"into{most}", tmp_path / f"later{most}"
        written(network(X), into, most=most)
        folder.write_recording(run, later, "", most, notes)
        both = [{one.name: one.read_bytes() for one in each.iterdir()} for each in (into, later)]
        assert both[0] == both[1] and len(both[0]) > 2

    for out in (tmp_path / "new", tmp_path / "empty"):
        if out.name == "empty":
            out.mkdir()
        with pytest.raises(ZeroDivisionError):
            _stopped(out)
        assert out.exists() == (out.name == "empty") and not (out.exists() and any(out.iterdir()))


def compared(*sides):
    """Two runs, or their folders, which are not explained."""
    runs = (read_recording(one) if isinstance(one, Path) else one for one in sides)
    return compare_and_explain(RunningMatch.of(*runs), explain=False)


def told(found):
    return [one.to_json() for one in found.operations]


def test_two_recordings_and_a_recording_with_a_run_compare_as_the_runs_do(runs):
    left, right = apart(X)
    live = told(walk(left, right, explain=False))
    stored = compared(runs / "left", runs / "right")
    assert live == told(stored) and stored.verdict == "differs" and stored.same_inputs
    assert live == told(compared(runs / "left", watch(right, "it")[0]))


def test_every_meaning_survives(runs):
    live = watch(apart(X)[0], "it")[0].operations
    stored = read_recording(runs / "left").operations
    assert [one.meaning for one in stored] == [one.meaning for one in live]


def test_every_value_is_kept_once_and_says_no_name_of_anybody(runs):
    files = {one.name for one in (runs / "left").iterdir()} - {FILE}
    side = read_recording(runs / "left")
    assert files == {f"{one.digest}.npy" for one in side.values}
    text = (runs / "left" / FILE).read_text()
    assert str(runs) not in text and os.path.expanduser("~") + "/" not in text
    assert (
        side.made.made["libraries"]["numpy"] == np.__version__ and side.made.subject == "a:network"
    )


def test_what_is_beyond_the_limit_is_left_out_and_said(tmp_path):
    left, right = apart(X)
    written(left, tmp_path / "whole")
    whole = folder.size_of_values(tmp_path / "whole")
    kept = written(left, tmp_path / "left", most=X.nbytes)
    written(right, tmp_path / "right", most=X.nbytes)
    left_out = kept.made.left_out
    assert folder.size_of_values(tmp_path / "left") == X.nbytes == whole - left_out["bytes"]
    sides = [read_recording(tmp_path / name) for name in ("left", "right")]
    assert sides[0].made.left_out == left_out and left_out["values"] > 1
    found = compared(*sides)
    assert found.operations[0].verdict == "source" and found.operations[0].max_ulp is None


def test_a_run_that_does_not_repeat_is_not_kept(tmp_path):
    with pytest.raises(Nondeterministic, match="the run gives different bits"):
        written(Taped(lambda tape: tape.noise(X)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_memory_that_nobody_wrote_is_known_from_disk_too(tmp_path):
    def program(tape):
        tape.noise(X)
        return tape.relu(X)

    for name in ("a", "b"):
        written(Taped(program), tmp_path / name)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert [one.verdict for one in found.operations] == ["unknown", "equal"]


def test_a_folder_that_is_there_is_left_alone(runs):
    with pytest.raises(InputError, match="it exists already"):
        written(network(X), runs / "left")


def damaged(runs, tmp_path, change):
    """A copy of a recording whose JSON is changed."""
    shutil.copytree(runs / "left", tmp_path / "bad")
    path = tmp_path / "bad" / FILE
    text = json.loads(path.read_text())
    change(text)
    path.write_text(json.dumps(text))
    return tmp_path / "bad"


def _set(*where):
    *path, last, value = where

    def change(text):
        for name in path:
            text = text[name]
        text[last] = value

    return change


CHANGES = {
    "another format": _set("format", 99),
    "no values": _set("values", []),
    "a path out of the folder": _set("values", 0, "digest", "../../../../etc/passwd"),
    "a shape beyond the file": _set("values", 0, "shape", [600000, 3200]),
    "a huge shape": _set("values", 0, "shape", [1 << 40, 1 << 40]),
    "a negative shape": _set("values", 0, "shape", [-6, 32]),
    "an object dtype": _set("values", 0, "dtype", "object"),
    "no dtype": _set("values", 0, "dtype", "colour"),
    "a value read before it is there": _set("operations", 0, "reads", [0, 9]),
    "a value that isn't there": _set("operations", 0, "reads", [0, 900]),
    "a negative value": _set("outputs", [-1]),
    "no operations": _set("operations", [{}]),
    "words for numbers": _set("outputs", ["all"]),
    "a meaning without its fields": _set("operations", 0, "meaning", {"is": "Windows"}),
    "an array elsewhere": _set(
        *("operations", 0, "attributes"),
        {"dict": [["a", {"file": "../x.npy", "shape": [1], "dtype": "<f4"}]]},
    ),
    "a list": lambda text: text.update(values=7),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_damaged_folder_is_one_line(name, runs, tmp_path):
    with pytest.raises(InputError) as caught:
        read_recording(damaged(runs, tmp_path, CHANGES[name]))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_word_that_this_release_lacks_is_unknown(runs, tmp_path):
    change = _set("operations", 0, "meaning", {"is": "Convolves"})
    side = read_recording(damaged(runs, tmp_path, change))
    assert type(side.operations[0].meaning).__name__ == "Unknown"
    for name in ("Meaning", "Callable", "np"):  # names of the module that are no meanings
        assert type(folder.plain_from_json({"is": name})).__name__ == "Unknown"


def npy(runs):
    side = read_recording(runs / "left")
    return f"{side.values[0].digest}.npy"


def test_a_pickle_in_the_place_of_a_value_is_never_read(runs, tmp_path):
    bad = damaged(runs, tmp_path, lambda text: None)

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "made"),))

    (bad / npy(runs)).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match="is not an array"):
        read_recording(bad)
    np.save(bad / npy(runs), np.array([Evil()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="is not an array"):
        read_recording(bad)
    assert not (tmp_path / "made").exists()


def test_other_bits_a_shorter_file_and_a_link_are_refused(runs, tmp_path):
    bad = damaged(runs, tmp_path, lambda text: None)
    path = bad / npy(runs)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="different bits from when it was recorded"):
        read_recording(bad)
    path.write_bytes(whole[:-9])
    with pytest.raises(InputError, match="is not an array"):
        read_recording(bad)
    path.unlink()
    path.symlink_to(runs / "left" / npy(runs))
    with pytest.raises(InputError, match="it is a link"):
        read_recording(bad)


def test_lines_are_kept_and_run_where_that_is_asked_for_alone(runs):
    plain = read_recording(runs / "left")
    assert (
        plain.store.lines == {1: (["y = np.maximum(x0, 0)"], [])}
        and plain.operations[1].again is None
    )
    assert all(one.lines is None for one in plain.operations)  # no stranger's text
    with RunnableRecording(runs / "left") as side:
        assert side.operations[0].again is None and not side.made.notes
        arrays = side.arrays({1, 2, 3})
        one = side.operations[1]
        (found,) = side.operations[1].again([arrays[n] for n in one.reads])
        assert found.tobytes() == arrays[one.gives[0]].tobytes()
        assert side.operations[1].lines(["a"], "x0") == ["x0 = np.maximum(a, 0)"]
        assert side.operations[0].lines is None


def test_addresses_are_kept_and_folders_without_them_are_read(runs, tmp_path):
    inputs = {"x": layout.copied(normal(3, 4), 20)}
    step = Step("double", Moves(), np.negative, ["x"])
    written(Doubles(inputs, [step]), tmp_path / "one")
    assert read_recording(tmp_path / "one").values[0].address == 20
    assert {one.address for one in read_recording(runs / "left").values} == {None}
    path = tmp_path / "one" / FILE
    path.write_text(path.read_text().replace('"address": 20', '"address": 64'))
    with pytest.raises(InputError, match="64 is not an address modulo 64"):
        read_recording(tmp_path / "one")


def test_a_target_that_is_not_here_runs_nothing_and_says_so(runs, tmp_path):
    with RunnableRecording(damaged(runs, tmp_path, _set("target", "abacus"))) as side:
        assert (
            side.operations[1].again is None
            and "operations can't be run again" in side.made.notes[0]
        )


def test_every_value_of_attributes_comes_back_as_it_was(tmp_path):
    given = {
        "tuple": (1, [2.5, None], "x"),
        "numbers": (np.float32(0.1), np.int64(3), 1 - 2j, float("inf"), True),
        "slice": slice(1, None, -1),
        3: {"inner": ()},
    }
    array = {"array": np.arange(6, dtype=np.uint8).reshape(2, 3)}

    def program(tape):
        call = lambda a: a[1:]  # noqa: E731
        return tape.ran("Slice", Moves(), call, X, attributes={**given, **array})

    found = written(Taped(program), tmp_path / "a").operations[0].attributes
    assert np.array_equal(found.pop("array"), array["array"])
    assert found == given and list(map(type, found["numbers"])) == list(map(type, given["numbers"]))


def test_what_has_no_word_is_unknown_or_moves(runs):
    class Odd(Meaning):
        pass

    class Turned(Moves):
        pass

    every = [folder.plain_to_json(each) for each in (Odd(), Turned())]
    odd, moves = (folder.plain_from_json(each) for each in every)
    assert type(odd) is Unknown and moves == Moves()


def test_every_class_that_says_what_is_computed_has_a_name_in_a_folder():
    pending = [Meaning]
    while pending:
        one = pending.pop()
        pending += one.__subclasses__()
        if dataclasses.is_dataclass(one) and one.__module__.startswith("probe."):
            assert folder.VOCABULARY.get(one.__name__) is one or issubclass(one, Moves)


@pytest.mark.parametrize(
    ("variables", "enabled", "said"),
    [
        ({}, False, "off (the processor's default)"),
        ({}, True, "on (the processor's default)"),
        ({"TF_ENABLE_ONEDNN_OPTS": "0"}, False, "off (TF_ENABLE_ONEDNN_OPTS)"),
    ],
)
def test_a_recording_says_whether_tensorflow_took_onednn(variables, enabled, said, monkeypatch):
    """Two machines of one release may differ in this alone, and `probe diff` says it then."""
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    port = SimpleNamespace(IsMklEnabled=lambda: enabled)
    monkeypatch.setitem(sys.modules, "tensorflow.python.util._pywrap_util_port", port)
    assert folder.environment_facts()["tensorflow_onednn"] == said
