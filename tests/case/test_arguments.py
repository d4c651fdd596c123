"""What people write becomes one checked value, or one line that says what to write."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import probe
from probe.case import arguments
from probe.case.errors import InputError, ProbeError
from probe.case.operation import OPERATIONS
from probe.record.inputs import read_inputs
from probe.report.proof import verify
from probe.ui.lock.checks import read_lock


@pytest.mark.parametrize(
    ("given", "op", "pairs", "text"),
    [
        (2, "conv1d", ((2, 2),), "2"),
        ("0:3", "conv1d", ((0, 3),), "0:3"),
        ("0:1,2:2", "conv2d", ((0, 1), (2, 2)), "0:1,2"),
        ("1,2", "conv2d", ((1, 1), (2, 2)), "1,2"),
        ([[1, 0]], "conv3d", ((1, 0),) * 3, "1:0"),
        ("SAME", "conv1d", "same", "same"),
        ("caffe", "conv1d", "caffe", "caffe"),
    ],
)
def test_padding_has_one_normal_form(given, op, pairs, text):
    found = arguments.padding(given, OPERATIONS[op].spatial_rank)
    assert found == pairs and arguments.padding_text(found) == text
    assert arguments.padding(text, OPERATIONS[op].spatial_rank) == found


@pytest.mark.parametrize(
    ("put", "why"),
    [
        ("x[0]", "names no operand and value"),
        ("x[0]=nought", "is not index=number"),
        ("x[0, 1, 2, 3]=1", "4 numbers, and x has 3 axes"),
    ],
)
def test_what_cannot_be_put_says_why(put, why):
    with pytest.raises(InputError) as told:
        arguments.parse_put(put, {"x": 3, "w": 3})
    assert why in str(told.value) and "x[0, 1]=nan" in str(told.value)


def test_numbers_are_read_as_people_write_them():
    assert arguments.whole_numbers("lengths", "5..8") == [5, 6, 7, 8]
    assert arguments.whole_numbers("lengths", "5..12:3") == [5, 8, 11]
    assert arguments.whole_numbers("lengths", "9..12, 5,7,9") == [5, 7, 9, 10, 11, 12]
    for wrong in ("", "5-8", "5..", "5..8:0", "5..8:-1", "0..3", "1..99999999", "5.5"):
        with pytest.raises(InputError, match=r"lengths="):
            arguments.whole_numbers("lengths", wrong)


READERS = {
    "case.json": probe.Case.from_file,
    "bits.lock": read_lock,
    "x.npz": read_inputs,
    "model.onnx": lambda path: probe.network(path, at=1, against=2),
    "model.keras": lambda path: probe.network(path, at=1, against=2),
    "machine.json": lambda path: verify(path.parent),
    "cases.parquet": lambda path: probe.load(path.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_never_ends_is_refused(tmp_path, name):
    """Reading a FIFO waited for a writer, for ever: a shell's <(...) or a name mistaken."""
    path = tmp_path / name
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.open("wb").close(), daemon=True)
    writer.start()  # so that a reader, which this test forbids, ends
    with pytest.raises(ProbeError, match="it is a FIFO, a socket or a device"):
        READERS[name](path)
    assert writer.is_alive()
    path.open("rb").close()


@pytest.mark.parametrize("text", ["x = {0}1{1}", "[conditions{2}]\ny = 1", "x{2} = 1"])
@pytest.mark.parametrize("depth", [999, 100_000])
def test_a_text_that_is_nested_too_deeply_is_one_line(tmp_path, text, depth):
    """A lock of 100,000 brackets ended in an internal error; dotted keys took minutes."""
    nested = text.format("[" * depth, "]" * depth, ".a" * depth)
    (tmp_path / "bits.lock").write_text(f"format = 1\n{nested}\n# end of bits.lock\n")
    with pytest.raises(InputError, match="nested too deeply|it has a table|last line"):
        read_lock(tmp_path / "bits.lock")


SELF: list = []
SELF.append(SELF)
CASE = probe.Case("conv1d", 3, 2, 2, length=9)


class Unprintable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


WRONG = {
    "load": lambda: probe.load(None),
    "diff": lambda: probe.diff(None, None),
    "merge": lambda: probe.merge(2.5, "out"),
    "target": lambda: probe.Target("reference", switches=2**70),
    "nothing printable": lambda: probe.Target(Unprintable()),
    "time": lambda: probe.examine("model.onnx", time=np.zeros(3)),
    "shard": lambda: probe.sweep(CASE, "5..7", "reference", shard={"a": 1}),
    "progress": lambda: probe.sweep(CASE, "5..7", "reference", progress=1e300),
    "too many inputs": lambda: probe.first_difference(lambda: 1, lambda: 1, inputs=[1]),
    "inputs of pieces": lambda: probe.assert_same_bits(lambda: 1, lambda x: x, inputs=[]),
    "ragged inputs": lambda: probe.network("tests.record.taped:network", inputs=[[[1], 2]]),
    "a list in itself": lambda: probe.assert_same_bits(SELF, SELF),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_is_one_line(call):
    """Of 150 random calls of the public functions 50 ended in an error of Python's own."""
    with pytest.raises(InputError) as caught:
        WRONG[call]()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(tmp_path):
    """``report --out /proc/foo`` was refused after all of the work."""
    with pytest.raises(InputError, match=r"out=/proc/foo: .*; give a folder that can be made"):
        arguments.require_unwritten("out", Path("/proc/foo"))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="give a folder that can be made"):
        arguments.require_unwritten("out", tmp_path / "file" / "below")
    arguments.require_unwritten("out", tmp_path / "new" / "below")
    assert not (tmp_path / "new").exists()
