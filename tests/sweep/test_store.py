"""The store: atomic, resumable, mergeable, and one-line errors that lose nothing."""

import datetime
import errno
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import probe
from probe.case.errors import StoreError
from probe.sweep import files
from probe.sweep.store import Store, merge
from probe.sweep.stored import load
from probe.targets import machine

PAIR = {"run_id": "r", "case_id": "c", "target": "reference", "vary": "length", "at": 5}
PAIR |= {"against": 9}


def comparison(at=5, kept=0, **changes):
    row = dict(PAIR, at=at, compared=8, not_compared=0, differing=kept, kept=kept)
    return {**row, "digest_at": "0a", "digest_against": "0b", **changes}


def differences(indices, at=5, ulp=1):
    indices = np.asarray(indices)
    places = {"batch": 0, "row": 0, "position": indices, "channel": 0}
    bits = {"bits_at": np.uint32(7) + np.zeros_like(indices), "bits_against": 2**63}
    return {**PAIR, **places, **bits, "at": at, "index": indices, "ulp": ulp, "scaled": 0.5}


def run_row():
    started = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    row = dict(machine.facts(), run_id="r", started=started, target="reference", device="cpu")
    return {**row, "switches": {"b": 1, "a": 2}, "environment": {}}


def test_what_is_appended_is_loaded(folder):
    with Store(folder) as store:
        store.append("runs", run_row())
        store.append("comparisons", [comparison(5), comparison(6, max_ulp=3)])
    results = probe.load(folder)
    assert results.comparisons["at"].tolist() == [5, 6]
    assert results.comparisons["max_ulp"].isna().tolist() == [True, False]
    assert results.comparisons["machine"].tolist() == ["machine-a"] * 2
    assert results.runs["switches"].tolist() == ['{"a":2,"b":1}']
    assert [path.name for path in files.table_files(folder, "comparisons")] == [
        "comparisons.parquet"
    ]


def test_a_later_comparison_takes_the_older_ones_differences_with_it(folder):
    store = Store(folder)
    for indices in ([0, 1, 2], [1]):
        store.extend("differences", differences(indices))
        store.append("comparisons", comparison(kept=len(indices)))
        store.extend("differences", differences([7], at=6))
        store.append("comparisons", comparison(at=6, kept=1))
        store.flush()
    assert load(folder).differences["index"].tolist() == [1, 7]
    store.append("comparisons", comparison(kept=0))
    store.compact()
    assert load(folder).differences["index"].tolist() == [7]


def test_causes_found_again_replace_the_older_set(folder):
    cause = dict(PAIR, cause="order", outputs=3, replayed=3, ranges=[0, 3])
    with Store(folder) as store:
        store.append("causes", cause)
        store.append("causes", dict(cause, at=6))
        store.flush()
        again = [dict(cause, cause="rounding"), dict(cause, cause="order+rounding")]
        store.append("causes", again)
    frame = load(folder).causes
    assert frame["cause"].tolist() == ["order", "rounding", "order+rounding"]
    assert frame["ranges"][1].tolist() == [0, 3]


def test_a_comparison_and_its_differences_are_not_parted(folder):
    store = Store(folder, flush_rows=2)
    store.extend("differences", differences(range(5)))
    assert not list(folder.glob("*.parquet"))
    store.append("comparisons", comparison(kept=5))
    assert len(load(folder).differences) == 5


def test_a_killed_process_leaves_a_store_that_can_be_read(folder, tmp_path):
    script = (
        "import sys, itertools; from probe.sweep.store import Store\n"
        f"row = {comparison()!r}; store = Store(sys.argv[1], flush_rows=50)\n"
        "for at in itertools.count(): store.append('comparisons', dict(row, at=at))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(folder)])
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.parquet"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    written = len(load(folder).comparisons)
    assert written >= 250 and written % 50 == 0
    with Store(folder) as store:
        assert len(store.done_keys()) == written
    assert len(load(folder).comparisons) == written


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EFBIG, "limit on the size"),
        (errno.EACCES, "no permission"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_failed_writes_are_one_line_and_lose_nothing(folder, monkeypatch, number, why):
    store = Store(folder)
    store.append("comparisons", comparison(5))
    store.flush()
    store.append("comparisons", comparison(6))
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "fsync", lambda _: (_ for _ in ()).throw(OSError(number, os.strerror(number)))
        )
        with pytest.raises(StoreError, match=f"store=.*{why}.*run the same command again"):
            store.flush()
    assert load(folder).comparisons["at"].tolist() == [5]
    assert not list(folder.glob(".*"))
    store.flush()
    assert load(folder).comparisons["at"].tolist() == [5, 6]


def test_a_store_below_a_file_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="a part of the path is a file"):
        Store(tmp_path / "file" / "machine")
    with pytest.raises(StoreError, match="there is a file of that name"):
        Store(tmp_path / "file")


def test_bad_rows_are_named(folder):
    store = Store(folder)
    with pytest.raises(StoreError, match="comparisons: has no column speed"):
        store.append("comparisons", comparison(speed=1))
    with pytest.raises(StoreError, match="comparisons: no value for .*digest_at"):
        store.append("comparisons", PAIR)
    with pytest.raises(StoreError, match=r"differences: columns of \[2, 3\] rows"):
        store.extend("differences", {**differences([1, 2]), "row": [0, 0, 0]})
    with pytest.raises(StoreError, match="differences.batch=None: this column may not be null"):
        store.extend("differences", {**differences([1, 2]), "batch": None})
    with pytest.raises(StoreError, match="differences.ulp: .*int64"):
        store.extend("differences", {**differences([1, 2]), "ulp": "much"})


def test_merge_lets_the_later_folder_count(tmp_path):
    for name, indices in (("one", [0, 1]), ("two", [4])):
        with Store(tmp_path / name / "machine-a") as store:
            store.extend("differences", differences(indices))
            store.append("comparisons", [comparison(kept=len(indices)), comparison(len(name) + 9)])
    with Store(tmp_path / "two" / "machine-b") as store:
        store.append("comparisons", comparison(50))
    out = merge([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    assert [path.name for path in out] == ["machine-a", "machine-b"]
    results = load(tmp_path / "out")
    assert results.comparisons["at"].tolist() == [5, 12, 50]
    assert results.differences["index"].tolist() == [4]
    with pytest.raises(StoreError, match="is one of the merged folders"):
        merge([tmp_path / "out"], tmp_path / "out")


def test_messages_of_libraries_are_stored_without_paths(folder):
    failure = {"run_id": "r", "target": "reference", "kind": "crash"}
    with Store(folder) as store:
        store.append("failures", {**failure, "message": "x", "stderr": "in /a/b/c.py line 3"})
    assert load(folder).failures["stderr"].tolist() == ["in .../c.py line 3"]


def test_two_writers_of_one_folder_keep_both(folder):
    first, second = Store(folder), Store(folder)
    for at in range(6):
        store = (first, second)[at % 2]
        store.append("comparisons", comparison(at))
        store.flush()
    first.compact()
    second.append("comparisons", comparison(6))
    second.compact()
    assert load(folder).comparisons["at"].tolist() == list(range(7))
