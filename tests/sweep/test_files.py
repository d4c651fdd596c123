"""What a store survives: damage, limits, crashes at any moment, several processes at once."""

from __future__ import annotations

import json
import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import probe
from probe import Case
from probe.case import schema
from probe.case.errors import StoreError
from probe.sweep import files
from probe.sweep.store import Store, compact, merge
from probe.sweep.stored import load
from probe.ui.cli import shell
from tests.sweep.test_stored import (
    TARGETS,
    check_random,
    comparison,
    differences,
    random_store,
)


def filled(folder, count=60):
    with Store(folder) as store:
        store.append("comparisons", [comparison(TARGETS[0], at=at) for at in range(count)])
    return folder / "comparisons.parquet"


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    path = filled(tmp_path / "m", 8)
    good, before = path.read_bytes(), load(tmp_path).arrow("comparisons")
    marker = good.index(files.SEAL)
    for bit in range(0, 8 * len(good), 211):
        content = bytearray(good)
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        os.utime(path, ns=(bit, bit))
        if marker <= bit // 8 < marker + len(files.SEAL):  # it reads as a file without a seal
            assert load(tmp_path).arrow("comparisons").equals(before)
            continue
        with pytest.raises(StoreError, match=r"file=comparisons.parquet: damaged"):
            files.verify_file(path)


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)


def damaged_store(root):
    """Three parts of a machine's comparisons, of which the second is damaged, and another one's."""
    store = Store(root / "machine-a")
    for target in TARGETS[:3]:
        store.extend("differences", differences(target, [0]))
        store.append("comparisons", comparison(target, kept=1))
        store.flush()
    filled(root / "machine-b", 5)
    part = files.table_files(root / "machine-a", "comparisons")[1]
    flipped(part)
    return part


def test_results_go_on_with_what_can_be_read(tmp_path, capsys):
    part = damaged_store(tmp_path)
    for words in ([], ["--json"]):
        assert shell.run(["results", str(tmp_path), *words]) == 2
        out, err = capsys.readouterr()
        assert err == f"probe: file={part.name}: damaged, {err.split('damaged, ')[1]}"
        assert err.count("\n") == 1 and "left out" in err
    found = json.loads(out)
    assert [len(found[name]) for name in ("machines", "left_out")] == [2, 1]
    assert sum(one["comparisons"] for one in found["targets"]) == 7 and found["differing"] == 2
    with pytest.raises(StoreError, match=f"file={part.name}: damaged"):
        load(tmp_path).arrow("comparisons")


CASE = Case("conv1d", 5, 3, 2, operands="cancel")
TARGET = "reference,algorithm=pairwise,length_switch=9"


@pytest.fixture(scope="module")
def _swept(tmp_path_factory):
    root = tmp_path_factory.mktemp("swept")
    probe.sweep(CASE, range(5, 18), TARGET, store=root)
    probe.sweep(CASE, [8, 12], TARGET, by="order", store=root)
    return root


@pytest.fixture
def swept(_swept, tmp_path):
    """The store of a sweep by bits and one by order, and its folder."""
    shutil.copytree(_swept, tmp_path / "swept")
    (folder,) = load(tmp_path / "swept").folders
    return tmp_path / "swept", folder


def refusals(root):
    """What each says that reads a store or goes on with it."""
    for reader in (
        lambda: load(root).differences,
        lambda: probe.sweep(CASE, range(5, 18), TARGET, store=root),
        lambda: merge([root], root.parent / "merged"),
    ):
        with pytest.raises(StoreError) as caught:
            reader()
        yield str(caught.value)
    assert shell.run(["results", str(root)]) == 2


@pytest.mark.parametrize("parts", [False, True])
def test_differences_that_were_deleted_are_noticed(swept, capsys, parts):
    root, folder = swept
    rows = load(root).arrow("differences")
    if parts:  # as after a kill: one of them is lost
        for place, part in enumerate((rows[:5], rows[5:])):
            path = folder / f"differences.{place}.parquet"
            files.write_file(path, "differences", part.drop_columns("machine"))
    (folder / "differences.parquet").unlink()
    if parts:
        assert len(load(root).differences) == len(rows)
        (folder / "differences.0.parquet").unlink()
    loaded, gone_on, _ = refusals(root)
    assert "put the missing files of differences back" in loaded
    assert "differing outputs" in gone_on and "its comparisons list" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["comparisons", "causes", "reveals", "failures"])
def test_tables_that_no_row_names_can_not_be_deleted_unnoticed(tmp_path, table):
    """A store without its comparisons or failures was read as one that had found nothing."""
    store = Store(tmp_path / "machine")
    store.extend("differences", differences(TARGETS[0], [0]))
    store.append("comparisons", comparison(TARGETS[0], kept=1))
    for name in {"causes", "reveals", "failures"} & {table}:
        no_row = schema.arrow_schema(name).empty_table()
        files.write_file(store.path / f"{name}.parquet", name, no_row)
    store.flush()
    store.compact()
    readers = {
        "load": lambda: load(tmp_path).tables,
        "go on": lambda: Store(tmp_path / "machine").append("runs", {}),
        "merge": lambda: merge([tmp_path], tmp_path.parent / f"merged-{table}"),
    }
    for path in files.table_files(tmp_path / "machine", table):
        path.unlink()
    if table == "comparisons":
        for path in files.table_files(tmp_path / "machine", "differences"):
            path.unlink()
    for reader in readers.values():
        with pytest.raises(StoreError, match=f"its {table} aren't there"):
            reader()


@pytest.mark.parametrize("table", ["runs", "cases", "orders", "roundings"])
def test_rows_that_others_name_are_missed_by_every_reader(swept, capsys, table):
    """Without these nobody can say what was computed, or where; the sweep took all for done."""
    root, folder = swept
    (folder / f"{table}.parquet").unlink()
    for why in refusals(root):
        assert f"rows of {table} that aren't there; put the missing files" in why
    assert capsys.readouterr().err.count(f"rows of {table} that aren't there") == 1


@pytest.mark.parametrize("table", ["runs", "cases", "comparisons", "reveals"])
def test_a_flipped_bit_is_refused_by_every_reader(swept, capsys, table):
    """`results` refused it; a sweep went on and `probe.load` gave the other tables' rows."""
    root, folder = swept
    flipped(folder / f"{table}.parquet")
    for why in refusals(root):
        assert why.startswith(f"file={table}.parquet: damaged")
    err = capsys.readouterr().err
    assert f"file={table}.parquet: damaged" in err and err.count("\n") == 1


class Crash(BaseException):
    """Stands for a kill: nothing is tidied up after it."""


def crashing(monkeypatch, at):
    """From the ``at``-th change of the disk on, nothing is done any more; how many there were."""
    calls = []

    def wrapped(real):
        def call(*arguments, **options):
            calls.append(real)
            if at is not None and len(calls) > at:
                raise Crash
            return real(*arguments, **options)

        return call

    for name in ("replace", "fsync", "unlink"):
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
    monkeypatch.setattr(Path, "unlink", wrapped(Path.unlink))
    monkeypatch.setattr(files.Writer, "discard", left)
    return calls


def left(writer):
    """An unfinished file stays behind."""
    with suppress(OSError, ValueError):
        writer._parquet.close()
    writer._stream.close()


@pytest.mark.slow
def test_a_crash_at_any_write_of_a_compaction_changes_no_row(tmp_path, monkeypatch):
    root = tmp_path / "root"
    _, counts, causes = random_store(root / "m", 3)
    shutil.copytree(root, tmp_path / "copy")
    with monkeypatch.context() as patch:
        calls = crashing(patch, None)
        compact(root / "m")
    moments = random.Random(1).sample(range(len(calls)), 3)
    assert len(calls) > 10
    for at in moments:
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "copy", root)
        with monkeypatch.context() as patch:
            crashing(patch, at)
            with pytest.raises(Crash):
                compact(root / "m")
        check_random(root, counts, causes)
        Store(root / "m").compact()
        check_random(root, counts, causes)
        assert not list(root.rglob(".*.tmp"))
