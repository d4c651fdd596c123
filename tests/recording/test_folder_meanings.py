"""Meanings as JSON has them give the labels of the meanings themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from importlib import import_module

import numpy as np
import pytest

from probe.errors import InputError
from probe.recording import RECORDERS, folder
from probe.semantics import (
    Accumulates,
    Blends,
    Contracts,
    Each,
    Joins,
    Meaning,
    Moves,
    Normalises,
    Pads,
    Picks,
    Reduces,
    Reshapes,
    Same,
    Step,
    Steps,
    Turns,
    Unknown,
    Whole,
    Windows,
    Written,
)
from probe.semantics.labels import of_content, of_digest, tag
from tests.recording.taped import normal


class Folder:
    """Files in memory."""

    def __init__(self, room=True):
        self.kept, self.room = {}, room

    def put(self, array):
        name = str(len(self.kept))
        self.kept[name] = np.ascontiguousarray(array)
        return name if self.room else None

    def file(self, name):
        return self.kept[name].reshape(-1).view(np.uint8)

    def broken(self, why):
        return InputError("recording", "x", why)


X = (2, 3, 4)
PART = np.array([[0, -1], [5, 7]])
CASES = {
    "unknown": (Unknown("why"), [X], [X]),
    "each": (Each("add", "adds", (0.1, float("inf"), None)), [X, (4,)], [X]),
    "same": (Same(), [X], [X]),
    "turns": (Turns((2, 0, 1)), [X], [(4, 2, 3)]),
    "reshapes": (Reshapes(), [X], [(6, 4)]),
    "joins": (Joins(1), [X, X], [(2, 6, 4)]),
    "a slice": (Moves(lambda a: a[:, :2]), [X], [(2, 2, 4)]),
    "padding": (Moves(lambda a: np.pad(a, ((0, 0), (0, 0), (1, 0)))), [X], [(2, 3, 5)]),
    "two outputs": (Moves(lambda a: (a[:1], a[1:])), [X], [(1, 3, 4), (1, 3, 4)]),
    "two inputs": (Moves(lambda a, b: np.concatenate([a, b])), [X, X], [(4, 3, 4)]),
    "a kept axis": (Moves(lambda a: a[:, ::-1], kept=(0, 2)), [X], [X]),
    "kept axes, two inputs": (
        *(Moves(lambda a, b: np.concatenate([b, a], 1), kept=(2,)), [X, X], [(2, 6, 4)]),
    ),
    "nothing left": (Moves(lambda a: a[:, :0]), [X], [(2, 0, 4)]),
    "a part": (
        Written(lambda a: np.append(a, np.float32(0))[PART], index=PART),
        *([X], [(2, 2)]),
    ),
    "picks": (Picks(axis=1, index=np.array([2, 0])), [X], [(2, 2, 4)]),
    "picks one": (Picks(axis=1, index=1), [X], [(2, 4)]),
    "contracts": (Contracts("...k,kn->...n", bias=2), [X, (4, 5), (5,)], [(2, 3, 5)]),
    "reduces": (Reduces((1,), "mean", True), [X], [(2, 1, 4)]),
    "normalises": (Normalises((-1,), "norm", (1e-5,)), [X], [X]),
    "whole": (Whole(((0, 0),)), [X], [(2, 7)]),
    "windows": (
        Windows((1,), 2, (2,), (1,), (1,), ((1, 0),), weights=(0, 1, 2)),
        *([X, (2, 4, 5)], [(2, 3, 5)]),
    ),
    "numbers of every kind": (
        Each("each", "adds", (np.float32(0.1), 1 - 2j, (None, True))),
        *([X], [X]),
    ),
    "pads": (Pads(((1, 0), (0, 0), (0, 0)), 1 - 2j, "complex64"), [X], [(3, 3, 4)]),
    "blends": (
        Blends(((2, np.array([[0, 1], [2, 3]]), np.float32([[0.5, 0.5], [1, 0]])),)),
        *([X], [(2, 3, 2)]),
    ),
    "accumulates": (Accumulates(np.arange(24).reshape(X)), [(24,), X], [(24,)]),
    "steps": (
        Steps(
            (
                Step(Contracts("...k,kn->...n"), (0, 1), (2, 3, 5)),
                Step(Moves(lambda a: a[:1]), (2,), (1, 3, 5)),
                Step(Each("relu", "stays"), (3,), (1, 3, 5)),
            )
        ),
        *([X, (4, 5)], [(1, 3, 5)]),
    ),
}


def again(one, reads, gives, kept):
    text = json.dumps(folder.meaning_to_json(one, reads, gives, kept))
    return folder.meaning_from_json(json.loads(text), kept)


@pytest.mark.parametrize("digested", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_labels_are_the_same(name, digested):
    one, reads, gives = CASES[name]
    found = again(one, reads, gives, Folder())
    assert type(found) is type(one)
    labels = [
        of_digest(shape, str(n)) if digested else of_content(normal(*shape, seed=n))
        for n, shape in enumerate(reads)
    ]
    ours, theirs = (each.labels(labels, gives, tag("op")) for each in (one, found))
    for a, b in zip(ours, theirs, strict=True):
        if name == "a part":  # what was never written has other labels each time
            a, b = (one._replace(array=np.where(PART < 0, 0, one.full())) for one in (a, b))
        assert a.known == b.known and np.array_equal(a.full(), b.full()), name


def test_what_has_no_word_or_no_room_is_unknown():
    class Odd(Meaning):
        def labels(self, reads, shapes, what):
            return []

    assert type(again(Odd(), [X], [X], Folder())) is Unknown
    move, reads, gives = CASES["a slice"]
    assert "left out for its size" in again(move, reads, gives, Folder(room=False)).why


def test_a_move_from_nowhere_is_refused():
    files = Folder()
    move, reads, gives = CASES["a slice"]
    told = folder.meaning_to_json(move, reads, gives, files)
    files.kept["0"] = files.kept["0"] + 1000
    found = folder.meaning_from_json(told, files)
    with pytest.raises(InputError, match="comes from nowhere"):
        found.move(np.zeros(X))


def test_every_class_that_says_what_is_computed_has_a_name_in_a_folder():
    """Also those of recorders: what they compute is said by :mod:`probe.semantics` alone."""
    for name in set(RECORDERS.values()):
        with contextlib.suppress(ImportError):
            import_module(name)
    pending = [Meaning]
    while pending:
        one = pending.pop()
        pending += one.__subclasses__()
        if dataclasses.is_dataclass(one) and one.__module__.startswith("probe."):
            known = folder.VOCABULARY.get(one.__name__) is one
            assert known or "written" in vars(one), one  # it says itself what it is in others
