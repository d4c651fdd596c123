"""Sums that are too long for their whole order: asked at some pairs, and said to be."""

from __future__ import annotations

import json

import pytest

import probe
from probe.case.errors import NotAsked
from probe.order import masks
from probe.order.orders import reveal
from probe.targets.launch import InlineSession
from probe.targets.target import Target
from probe.ui.cli import shell


def session(algorithm: str) -> InlineSession:
    return InlineSession(Target.parse(f"reference,algorithm={algorithm}"))


def sum_of(products: int, length: int = 1) -> probe.Case:
    return probe.Case(op="sum", in_channels=products, length=length)


def test_two_orders_are_told_apart_and_one_is_not_told_from_itself():
    both = []
    for algorithm in ("sequential", "pairwise"):
        with session(algorithm) as running:
            both.append(masks.meeting_sizes(running, sum_of(64))[:, 0])
    text = masks.answers_apart(*both, 64)
    assert text.startswith("the orders differ: at ") and "p7 and p8 meet in a sum of 9" in text
    assert "both sides answer alike" in masks.answers_apart(both[0], both[0], 64)


def test_a_sum_beyond_the_longest_is_not_asked_whole(monkeypatch):
    """It took hours, and --time did not end it."""
    monkeypatch.setattr(masks, "LONGEST", 100)
    with session("pairwise") as running, pytest.raises(NotAsked, match="not asked beyond 100"):
        reveal(running, sum_of(101))
    with session("pairwise") as running:
        assert reveal(running, sum_of(100)).replayed.all()


@pytest.mark.slow
def test_an_explanation_says_that_the_orders_differ_and_that_nothing_was_replayed(
    capsys, monkeypatch
):
    monkeypatch.setattr(masks, "LONGEST", 100)
    words = "explain --op sum --in-channels 640 --length 40 --target reference,algorithm=pairwise"
    words += " --against-target reference,algorithm=sequential"
    assert shell.run([*words.split(), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["differing"] and set(report["causes"]) == {"unexplained"}
    assert not report["replayed"] and report["example"] is None
    assert report["sampled"].startswith("the orders differ: at ")
    assert shell.run(words.split()) == 0
    out = capsys.readouterr().out.replace("\n", " ")
    assert "not asked beyond 100" in out and "the orders differ" in out
