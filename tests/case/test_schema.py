"""The schema is complete, consistent, and what ``results/README.md`` says."""

from pathlib import Path

from probe.case import schema
from probe.case.schema import ABOUT, TABLES, TYPES

README = Path(__file__).parents[2] / "results" / "README.md"


def test_readme_of_results_is_generated_from_the_schema():
    assert README.read_text() == schema.readme(), "run .ci/describe.py"


def test_every_column_says_its_type_and_meaning_once():
    for table, columns in TABLES.items():
        assert ABOUT[table]
        assert len(set(schema.column_names(table))) == len(columns)
        for column in columns:
            assert column.type in TYPES and column.meaning
            assert column.null != "", f"{table}.{column.name}: null without a meaning"
            assert 1 <= column.since <= schema.VERSION


def test_run_id_changes_with_what_may_change_bits_only():
    run = dict.fromkeys(schema.RUN_IDENTITY, "x")
    assert set(schema.RUN_IDENTITY) < set(schema.column_names("runs"))
    assert schema.run_id(run) == schema.run_id({**run, "started": 1, "git_commit": "abc"})
    ids = {schema.run_id({**run, name: "y"}) for name in schema.RUN_IDENTITY}
    assert len(ids | {schema.run_id(run)}) == len(schema.RUN_IDENTITY) + 1


def test_run_id_is_the_same_for_all_time():
    assert schema.run_id({"target": "reference"}) == "973ba32980e9ffe6"


def test_files_say_what_their_columns_are(tmp_path):
    import pyarrow.parquet as pq

    from probe.sweep.store import Store

    row = dict.fromkeys(schema.column_names("failures"))
    row |= {"run_id": "r", "target": "numpy", "kind": "crash", "message": "signal 11"}
    with Store(tmp_path / "some-machine") as store:
        store.append("failures", row)
    found = pq.read_schema(tmp_path / "some-machine" / "failures.parquet")
    assert found.metadata[b"probe.machine"] == b"some-machine"
    assert found.metadata[b"probe.about"].decode() == ABOUT["failures"]
    for column in TABLES["failures"]:
        told = found.field(column.name).metadata
        assert told[b"description"].decode() == column.meaning
        assert told.get(b"null", b"").decode() == (column.null or "")


def test_committed_files_have_the_descriptions_of_today():
    import pyarrow.parquet as pq

    results = README.parent
    scripts = [script.stem for script in (results.parent / "experiments").glob("*.py")]
    committed = [path for name in scripts for path in (results / name).glob("*/*.parquet")]
    assert committed
    for path in committed:  # a sweep of one's own may have been measured by an earlier version
        found = pq.read_schema(path)
        wanted = schema.described_schema(found.metadata[b"probe.table"].decode())
        same = [one.metadata == wanted.field(one.name).metadata for one in found]
        assert all(same), f"{path.relative_to(results)}: run .ci/describe.py"
