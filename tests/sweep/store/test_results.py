"""Stored results as frames: exact, of every format that was ever written, and one-line errors."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from probe.case import schema
from probe.case.errors import InputError, StoreError
from probe.sweep.store import Store
from probe.sweep.store.results import load
from tests.sweep.store.test_folder import comparison, differences


def test_integers_stay_exact_beside_nulls(folder):
    far = 2**62 + 1
    with Store(folder) as store:
        ulps = np.array([far, schema.NULL_INT, -far])
        store.extend("differences", differences([0, 1, 2], ulp=ulps))
        store.append("comparisons", comparison(kept=3))
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
        store.append("comparisons", comparison())
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
        store.append("comparisons", comparison())
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
            store.append("comparisons", comparison(max_ulp=far))
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
