"""The rows that count: merged, recalled, read by other tools in one line, and as exact frames."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probe.case import schema
from probe.case.errors import InputError, StoreError
from probe.sweep import files, stored
from probe.sweep.store import Store, merge
from probe.sweep.stored import load

TARGETS = (
    "tensorflow,onednn=0,isa=avx2",
    "torch@cuda:0",
    "keras==3.1,backend=jax",
    "odd 100%25+ a/b?*[x]#",
)
DIGESTS = {"digest_at": "0a", "digest_against": "0b"}


def pair(target, case="c", at=5):
    return {"run_id": "r", "case_id": case, "target": target, "vary": "length", "at": at, **NINE}


NINE = {"against": 9}


def comparison(target, case="c", at=5, kept=0, **changes):
    counts = {"compared": 8, "not_compared": 0, "differing": kept, "kept": kept}
    return {**pair(target, case, at), **counts, **DIGESTS, **changes}  # kept: all that differ


def differences(target, indices, case="c", at=5):
    indices = np.asarray(indices)
    places = {"batch": 0, "row": 0, "position": indices, "channel": 0}
    bits = {"bits_at": np.full(len(indices), 7, np.uint64), "bits_against": 9}
    return {**pair(target, case, at), **places, **bits, "index": indices, "ulp": 1, "scaled": 0.5}


def case_row(name):
    ones = dict.fromkeys(("in_channels", "filters", "groups", "batch", "summands"), 1)
    ones |= dict.fromkeys(("kernel", "stride", "dilation"), "1")
    words = {"op": "sum", "padding": "valid", "dtype": "float32", "operands": "normal"}
    return {**ones, **words, "case_id": name, "seed": 0, "json": {}}


def rows(path):
    """The rows of every table, in a fixed order."""
    found = load(path)
    return {table: sorted(map(str, found.arrow(table).to_pylist())) for table in schema.TABLES}


@pytest.fixture
def flat(tmp_path):
    """Two machines, four targets, differences and a content table."""
    for machine in ("machine-a", "machine=b c"):
        with Store(tmp_path / "flat" / machine) as store:
            for number, target in enumerate(TARGETS):
                store.extend("differences", differences(target, range(number)))
                store.append("comparisons", comparison(target, kept=number))
                store.append("comparisons", comparison(target, "d", max_ulp=number))
            store.append("cases", [case_row("c"), case_row("d")])
    return tmp_path / "flat"


def test_the_rows_are_those_of_the_merged_stores(flat):
    out = flat.parent / "out"
    merge([flat], out)
    assert rows(flat) == rows(out) and load(out).machines == ["machine-a", "machine=b c"]
    merge([out / "machine-a"], flat.parent / "one")
    assert load(flat.parent / "one").machines == ["machine-a"]


def said(path):
    """What a file says of where its rows come from."""
    told = pq.read_schema(path).metadata
    names = ("experiment", "machine", "library", "version")
    keys = {name: f"probe.{name}".encode() for name in names}
    return {name: told[key].decode() for name, key in keys.items() if key in told}


ROOT = Path(__file__).parents[2]
COMMITTED = [ROOT / "results" / path.stem for path in sorted((ROOT / "experiments").glob("*.py"))]


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda path: path.name)
def test_committed_results_say_what_they_are_and_are_not_mixed(folder):
    with pytest.raises(pa.ArrowInvalid, match=r"README\.md"):
        pd.read_parquet(folder)
    for path in folder.glob("*/*.parquet"):
        found, told = pq.read_schema(path), said(path)
        assert (told["machine"], told["experiment"]) == (path.parent.name, folder.name)
        assert told["version"]
        assert told.get("library") or path.stem == "failures"  # of libraries that did not start
        version = int(found.metadata[b"probe.schema_version"])
        for column in schema.TABLES[path.stem]:
            if column.since <= version or column.name in found.names:  # younger ones read as null
                assert found.field(column.name).metadata[b"description"].decode()


def random_store(folder, seed):
    """A store in parts, with rows measured again, and what counts of it by a plain dictionary."""
    random = np.random.default_rng(seed)
    store, counts, causes = Store(folder), {}, {}
    for _ in range(4):
        for _ in range(12):
            target, at = TARGETS[random.integers(2)], int(random.integers(10))
            kept = int(random.integers(3))
            store.extend("differences", differences(target, range(kept), at=at))
            store.append("comparisons", comparison(target, at=at, kept=kept))
            counts[target, at] = kept
        target, at = TARGETS[random.integers(2)], int(random.integers(3))
        names = [name for name in ("order", "rounding", "window") if random.integers(2)]
        cause = {**pair(target, at=at), "outputs": 1, "replayed": 1, "ranges": [0, 1]}
        store.append("causes", [{**cause, "cause": name} for name in names])
        causes |= {(target, at): set(names)} if names else {}
        store.flush()
    return store, counts, causes


def check_random(folder, counts, causes):
    found = load(folder)
    there = found.comparisons.set_index(["target", "at"])["kept"].to_dict()
    assert there == counts and len(found.comparisons) == len(counts)
    kept = found.differences.groupby(["target", "at"]).size().to_dict()
    assert kept == {key: n for key, n in counts.items() if n}
    sets = found.causes.groupby(["target", "at"])["cause"].agg(set).to_dict()
    assert sets == causes and len(found.causes) == sum(map(len, causes.values()))


@pytest.mark.slow
def test_rows_that_count_are_found_a_share_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROW_GROUP", 9)
    store, counts, causes = random_store(tmp_path / "root" / "m", 1)
    check_random(tmp_path / "root", counts, causes)
    merge([tmp_path / "root"], tmp_path / "out")
    check_random(tmp_path / "out", counts, causes)
    store.compact()
    check_random(tmp_path / "root", counts, causes)


GROUP = ("r", TARGETS[0], "length", 9)


def test_what_is_done_is_recalled(tmp_path):
    folder, values = tmp_path / "m", range(5, 9)
    with Store(folder) as store:
        for case in "abc":
            rows = [comparison(TARGETS[0], case, at, kept=int(case == "b")) for at in values]
            for row in rows:
                store.extend(
                    "differences", differences(TARGETS[0], range(row["kept"]), case, row["at"])
                )
            store.append("comparisons", [{**row, "control": "equal"} for row in rows])
    found = Store(folder).recall(*GROUP, controlled=True)
    done, sums = found.case("a", values)
    assert done == set(values) and sums[0]["rows"] == 4 and sums[0]["compared"] == 32
    assert found.case("nothing", values) == (set(), []) and found.rows == 12
    done, rows = found.case("b", values)  # rows that differ are listed one by one
    assert [row["at"] for row in rows] == list(values) == sorted(done)
    done, rows = found.case("c", [6, 20])  # in part
    assert done == {6} and [row["compared"] for row in rows] == [8]
    assert stored.Recalled(folder, ("other", *GROUP[1:]), False).rows == 0


def test_integers_stay_exact_beside_nulls(folder):
    far = 2**62 + 1
    with Store(folder) as store:
        ulps = np.array([far, schema.NULL_INT, -far])
        store.extend(
            "differences",
            {**differences(TARGETS[0], [0, 1, 2]), "ulp": ulps, "bits_against": 2**63},
        )
        store.append("comparisons", comparison(TARGETS[0], kept=3))
    frame = load(folder).differences
    assert frame["ulp"].isna().tolist() == [False, True, False]
    assert frame["ulp"][0] == far and frame["ulp"][2] == -far
    assert frame["bits_against"].tolist() == [2**63] * 3


def rewrite(path, change, **metadata):
    rows = pq.read_table(path)
    text = {key.decode(): value.decode() for key, value in rows.schema.metadata.items()}
    pq.write_table(change(rows).replace_schema_metadata({**text, **metadata}), path)


def test_a_newer_format_is_refused_by_name_and_version(folder):
    with Store(folder) as store:
        store.append("comparisons", comparison(TARGETS[0]))
    rewrite(folder / "comparisons.parquet", lambda rows: rows, **{"probe.schema_version": "99"})
    for reader in (load, Store):
        with pytest.raises(StoreError, match=r"schema_version=99: comparisons.parquet.*update"):
            reader(folder)


def test_a_folder_that_is_no_store_is_told(tmp_path):
    with pytest.raises(StoreError, match="path=.*there is no such folder"):
        load(tmp_path / "absent")
    with pytest.raises(StoreError, match="path=.*there are no stored results"):
        load(tmp_path)


def test_machines_merge_by_copying_folders(folder):
    order = {"order_id": "o", "tree": "(0+1)", "leaves": 2, "depth": 1, "children_max": 2}
    with Store(folder) as store:
        store.append("comparisons", comparison(TARGETS[0]))
        store.append("orders", order)
    shutil.copytree(folder, folder.parent / "machine-b")
    results = load(folder.parent)
    assert results.machines == ["machine-a", "machine-b"]
    assert results.comparisons["machine"].tolist() == ["machine-a", "machine-b"]
    assert len(results.orders) == 1 and "machine" not in results.orders
    assert load(folder, folder.parent).machines == ["machine-a", "machine-b"]


def test_a_query_sees_all_machines_and_a_wrong_one_is_one_line(tmp_path):
    for machine, far in (("one", 3), ("two", 5)):
        with Store(tmp_path / machine) as store:
            store.append("comparisons", comparison(TARGETS[0], max_ulp=far))
    results = load(tmp_path / "one", tmp_path / "two")
    found = results.query("SELECT machine, sum(max_ulp) AS s FROM comparisons GROUP BY ALL")
    assert sorted(zip(found["machine"], found["s"], strict=True)) == [("one", 3), ("two", 5)]
    for sql, todo in (
        ("SELECT nonsense FROM comparisons", "change it"),
        ("SELECT 1 FROM nonsense", "use one of runs, cases"),
    ):
        with pytest.raises(InputError, match=todo) as wrong:
            results.query(sql)
        assert "\n" not in str(wrong.value)
