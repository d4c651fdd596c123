"""probe shrink, reproduce and verify: what they print, write, and exit with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probe.case import Case
from probe.cli import shell
from probe.store import Store
from probe.sweeps import sweep_cases
from probe.target import Target

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("elsewhere")]

SWITCHES = "reference,algorithm=pairwise,length_switch=8"
CASE = "--op conv1d --kernel 5 --operands cancel"


def printed(capsys, command, status=0):
    assert shell.run([*command.split(), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def refused(capsys, command, status=2):
    assert shell.run(command.split()) == status
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize("by", ["bits", "order"])
@pytest.mark.slow_at("order")
def test_shrink_says_the_smallest_case_with_its_operands(capsys, by):
    command = f"shrink {CASE} --length 6 --against 20 --target {SWITCHES} --by {by}"
    found = printed(capsys, command)
    assert found["label"] == "conv1d 4, 1 -> 1, length 4 against 11"
    assert found["ended"] == "minimal" and found["calls"] <= 300 and found["shown"]
    assert found["causes"] == {"order": 1} and found["near"]["step"] == "pair"
    assert len(found["operands"]["x"][0]) == 11
    assert shell.run(command.split()) == 0
    text = capsys.readouterr().out
    assert "conv1d 4, 1 -> 1, length 4 against 11" in text and "minimal" in text


def test_a_budget_ends_it(capsys):
    command = f"shrink {CASE} --at 6 --against 20 --target {SWITCHES} --most 4"
    found = printed(capsys, command)
    assert found["ended"] == "budget" and found["calls"] == 4


def test_reproduce_writes_the_folder_and_verify_reads_it(capsys):
    command = f"reproduce {CASE} --at 6 --against 20 --target {SWITCHES} --times 1 --out out/deep"
    found = printed(capsys, f"{command} --form torch --also reference")
    assert found["files"] and found["proof"]["status"] == 1 and found["out"] == "out/deep"
    assert found["elsewhere"][0]["said"] == "does not differ"
    assert shell.run("verify out/deep --times 1".split()) == 0
    assert capsys.readouterr().out.startswith("still there: 1 of 1 outputs differ")
    there = printed(capsys, "verify out/deep --times 1 --fail-on there", 1)
    assert there["verdict"] == "still there" and there["same_bits"]
    printed(capsys, "verify out/deep --times 1 --fail-on gone", 0)
    Path("out/deep/reproduce.py").write_text("import no_such_thing\n")
    told = printed(capsys, "verify out/deep --times 1", 3)
    assert told["verdict"] == "can't tell"


@pytest.mark.slow
def test_a_store_s_worst_finding_or_a_row(capsys, tmp_path):
    with Store.here(tmp_path / "store") as store:
        targets = [Target.parse(SWITCHES), Target.parse("reference")]
        sweep_cases([Case(op="conv1d", kernel=5, operands="cancel")], targets, [6, 20], store=store)
    found = printed(capsys, "reproduce --from store --times 1 --out one")
    assert found["targets"][0] == SWITCHES and found["elsewhere"]
    assert "row=99" in refused(capsys, "reproduce --from store --row 99 --out two")
    assert "leave out" in refused(capsys, "reproduce --from store --op conv1d --out two")


def test_wrong_input_is_one_line(capsys):
    there = f"{CASE} --at 6 --target reference"
    assert "nothing to compare" in refused(capsys, f"shrink {there}")
    assert "bit for bit" in refused(capsys, f"shrink {there} --against 20")
    assert "kernels=some" in refused(
        capsys, f"reproduce {there} --against 20 --kernels some --out out"
    )
    assert "by=luck" in refused(capsys, f"shrink {there} --against 20 --by luck")
    assert "same run" in refused(capsys, f"shrink {there} --against 6")
    assert "form=none" in refused(
        capsys, f"reproduce {CASE} --at 6 --against 20 --target {SWITCHES} --form none --out out"
    )
    assert "row=1" in refused(capsys, "reproduce --op conv1d --row 1 --out out")
    assert "machine.json" in refused(capsys, "verify .")
