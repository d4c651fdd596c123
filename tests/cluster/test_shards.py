"""Nodes answer a sweep's questions; who contradicts itself is refused, and nothing is mixed.

Most of this drives the parent with answers of this process in the place of Dask's, so that nodes
can lie, vanish and answer garbage at will; ``test_nodes`` has schedulers and workers.
"""

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

import probe
from probe import Case, load, machine
from probe.campaign import Sessions
from probe.cli import shell
from probe.cluster import nodes, shards
from probe.cluster.nodes import Cluster
from probe.cluster.shards import Wanted
from probe.errors import ClusterError, InputError
from probe.launch import open_session
from probe.schema import column_names

pytestmark = pytest.mark.long

SWITCHING = "reference,algorithm=pairwise,length_switch=9"
CASE = Case("conv1d", 5, 3, 2, operands="cancel")
VARYING = {"seconds", "started", "machine", "path", "git_commit", "git_dirty"}
SAME = ("runs", "cases", "comparisons", "differences")
NEWER = {"library_version": "99.1"}
LENGTHS = range(5, 18)


def rows(folder, table):
    """The rows of a table but for times and the state of the checkout, in a fixed order."""
    frame = getattr(load(folder), table)
    frame = frame.drop(columns=[name for name in frame if name in VARYING])
    return sorted(map(str, frame.to_dict("records")))


class Dask:
    """Dask's client, and what it has done, whose nodes are functions of this process.

    ``behaviours``: by address, ``f(kind, given)`` of what a node says that it is (``said``) and of
    each ``answer``; a node is lost where its function raises ConnectionError.
    """

    status, scheduler = "running", None

    def __init__(self, behaviours):
        self.behaviours, self.there, self.names = behaviours, list(behaviours), {}
        self.pending, self.asked = [], []

    def nthreads(self):
        return dict.fromkeys(self.there, 1)

    def submit(self, answer, text, workers, **how):
        return SimpleNamespace(key=object(), done=lambda: False, ask=(answer, text), may=workers)

    def add(self, future):
        self.pending.append(future)

    def who_has(self, futures):
        return {one.key: [one.holder] for one in futures}

    def cancel(self, futures, force):
        self.pending = [one for one in self.pending if one not in futures]

    def next_batch(self, block):
        for future in self.pending:
            if some := [one for one in future.may if one in self.there]:
                self.pending.remove(future)
                future.holder, future.status = some[len(self.asked) % len(some)], "finished"
                try:
                    return [(future, self._answer(future.holder, *future.ask))]
                except ConnectionError:
                    self.there.remove(future.holder)
                    self.pending.append(future)
                    return []
        return []

    def _answer(self, address, answer, text):
        name = self.names.get(address, address)
        nodes._worker = lambda: SimpleNamespace(name=name, address=address)
        found = answer(text)
        if "said" not in found:
            return self.behaviours[address]("said", json.loads(json.dumps(found)))
        self.asked.append((json.loads(text), address))
        found["said"] = json.loads(json.dumps(found["said"]))
        return self.behaviours[address]("answer", found)


def doubles(behaviours, targets):
    """A cluster of doubles that have joined, with its ``lines`` and what was ``asked``."""
    dask, lines = Dask(behaviours), []
    made = Cluster(dask, dask, targets, lines.append)
    made.gather()
    made.lines, made.asked = lines, dask.asked
    return made


def honest(kind, given):
    """A node that does what it says."""
    return given


@pytest.fixture
def swept(monkeypatch, tmp_path):
    """swept(behaviours, targets=..., folder=...): the answer, and the cluster."""

    def run(
        behaviours, targets=(SWITCHING,), folder=tmp_path / "store", lengths=LENGTHS, keep=None
    ):
        texts = [Wanted.parse(one).target.text for one in targets]
        made = doubles(behaviours, texts)

        @nodes.contextmanager
        def opened(address, targets, note):
            yield made

        monkeypatch.setattr(shards, "connected_nodes", opened)
        monkeypatch.setattr(shards, "PATIENCE", 0.2)
        monkeypatch.setattr(shards, "LEAST", 1)
        here = Sessions(lambda where: open_session(where, inline=True))
        monkeypatch.setattr(nodes, "_OWN", SimpleNamespace(sessions=here))
        found = probe.sweep(CASE, lengths, targets, store=folder, cluster="local:2", keep=keep)
        here.close()
        return found, made

    worker = nodes._worker
    yield run
    nodes._worker = worker


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The store of the same sweep without a cluster, and its report."""
    folder = tmp_path_factory.mktemp("plain")
    return folder, probe.sweep(CASE, LENGTHS, [SWITCHING], store=folder).to_json()


def same(folder, plain):
    for table in SAME:
        assert rows(folder, table) == rows(plain, table), table


def test_the_store_and_the_report_are_those_of_one_process(swept, plain, tmp_path):
    found, made = swept({"a": honest, "b": honest})
    told = found.to_json()
    for name in ("compared", "differing", "max_ulp", "lengths", "comparisons", "failures"):
        assert told[name] == plain[1][name], name
    assert told["differing"] > 0 and told["store"].endswith(machine.label())
    same(tmp_path / "store", plain[0])
    assert {address for _, address in made.asked} == {"a", "b"}


def test_what_is_stored_is_not_asked_again_with_or_without_a_cluster(swept, plain, tmp_path):
    first = probe.sweep(CASE, [*range(5, 10), 17], [SWITCHING], store=tmp_path / "store").to_json()
    found, made = swept({"a": honest})
    asked = {value for question, _ in made.asked for value in question["values"]}
    assert found.to_json()["stored_before"] == first["comparisons"] == 5
    assert asked == {5, *range(10, 17)}, "the first again, to see that the node has its bits"
    same(tmp_path / "store", plain[0])
    again, made = swept({"a": honest})
    assert again.to_json()["stored_before"] == 12 and not made.asked


def later(change, answers=1):
    """A node that is honest at first, and changes what it says from its n-th answer on."""
    count = iter(range(1000))

    def behaves(kind, given):
        if kind == "answer" and next(count) >= answers:
            change(given)
        return given

    return behaves


def rewritten(table="comparisons", **changes):
    """Changes columns of a table of an answer, each by a function of its values."""

    def change(answer):
        rows = pa.ipc.open_stream(answer["tables"][table]).read_all()
        for name, how in changes.items():
            place, field = rows.column_names.index(name), rows.schema.field(name)
            values = pa.array([how(value) for value in rows[name].to_pylist()], field.type)
            rows = rows.set_column(place, field, values)
        answer["tables"][table] = nodes.pack_table(rows)

    return change


def upgraded(answer):
    for target in answer["said"]["targets"].values():
        target["run"].update(NEWER)


def moved(answer):
    answer["said"]["machine"]["cores"] += 1


def bytes_in_place_of_rows(data):
    return lambda answer: answer["tables"].update(comparisons=data)


def a_table_elsewhere(answer):
    answer["tables"]["../../etc"] = answer["tables"]["comparisons"]


def a_further_column(answer):
    rows = pa.ipc.open_stream(answer["tables"]["comparisons"]).read_all()
    answer["tables"]["comparisons"] = nodes.pack_table(rows.append_column("x", pa.nulls(len(rows))))


def without_differences(answer):
    none = dict.fromkeys(("differing", "kept", "max_ulp"), lambda n: 0)
    rewritten(**none, first=lambda n: None)(answer)
    answer["tables"].pop("differences", None)


def rubbish(answer):
    answer.clear()
    answer.update(said=[1], tables=None)


def no_facts(answer):
    answer["said"] = {"address": "b", "machine": "none", "targets": 7}


LIES = {
    "negative counts": (rewritten(differing=lambda n: -n), "contradict each other"),
    "none of several differs": (rewritten(differing=lambda n: 0), "contradict each other"),
    "one less differs": (rewritten(differing=lambda n: n and n - 1), "contradict each other"),
    "a larger distance": (rewritten(max_ulp=lambda n: n and n + 1), "contradict each other"),
    "no differences": (without_differences, "contradict each other"),
    "more were compared": (rewritten(compared=lambda n: n + 1), "it compared"),
    "more were not": (rewritten(not_compared=lambda n: n + 1), "it compared"),
    "rubbish": (rubbish, "can't be read"),
    "no facts": (no_facts, "can't be read"),
    "no target": (lambda a: a["said"]["targets"].update({SWITCHING: 1}), "can't be read"),
    "upgraded": (upgraded, "library_version was"),
    "moved": (moved, "its cores was"),
    "rows of another run": (rewritten("runs", numpy_version=lambda _: "1.0"), "numpy_version was"),
    "zeros": (bytes_in_place_of_rows(b"\x00" * 64), "its comparisons can't be read"),
    "a pickle": (bytes_in_place_of_rows(b"cos\nsystem\n(S'exit 1'\ntR."), "can't be read"),
    "a table elsewhere": (a_table_elsewhere, "which there isn't"),
    "a further column": (a_further_column, "different columns"),
    "other values": (rewritten(at=lambda at: at + 1000), "different values of length"),
    "different bits": (rewritten(digest_at=lambda _: "0" * 32), "its bits differ from"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.slow_at("zeros", "a further column", "a table elsewhere", "other values", "upgraded")
def test_a_node_that_contradicts_itself_is_refused_and_others_do_its_work(
    swept, plain, tmp_path, lie
):
    change, why = LIES[lie]
    found, made = swept({"a": honest, "b": later(change, lie != "different bits")})
    same(tmp_path / "store", plain[0])
    (failure,) = found.to_json()["failures"]
    assert failure["kind"] == "refused" and why in failure["message"]
    assert any(why in line for line in made.lines)
    assert why in load(tmp_path / "store").failures.message[0]


def test_nothing_of_an_answer_that_can_not_be_read_is_stored_though_its_node_is_not_known(
    swept, plain, tmp_path
):
    found, _ = swept({"a": honest, "b": later(rubbish, 2)})
    same(tmp_path / "store", plain[0])
    assert all(failure["kind"] == "refused" for failure in found.to_json()["failures"])


@pytest.mark.parametrize(
    "said",
    [
        7,
        {"error": [1]},
        {"name": "b", "address": "b", "machine": {}, "targets": {}},
        {"name": "b", "address": "b", "machine": {"machine": "../../up"}, "targets": {}},
        {"name": "b", "address": "b", "machine": {"machine": "m"}, "targets": {SWITCHING: None}},
        {"name": "b", "address": "b", "machine": {"machine": "m"}, "targets": {SWITCHING: {}}},
    ],
)
def test_a_node_that_says_nonsense_of_itself_is_left_out(swept, plain, tmp_path, said):
    found, made = swept({"a": honest, "b": lambda kind, given: said if kind == "said" else given})
    same(tmp_path / "store", plain[0])
    assert not found.to_json()["failures"] and set(made.nodes) == {"a"}
    assert any(line.startswith("a node is left out") for line in made.lines)


@pytest.mark.slow
def test_honest_counts_are_believed_whatever_is_kept_or_not_a_number(swept, tmp_path, monkeypatch):
    cases = [
        (CASE.with_(operands="nan"), None),
        (CASE.with_(operands="infinite"), 1),
        (CASE, 0),
        (CASE, 2),
        (CASE.with_(dtype="float64"), None),
    ]
    for number, (case, keep) in enumerate(cases):
        monkeypatch.setattr("tests.cluster.test_shards.CASE", case)
        folder = tmp_path / str(number)
        here = probe.sweep(case, LENGTHS, [SWITCHING], keep=keep).to_json()
        found, _ = swept({"a": honest}, folder=folder, keep=keep)
        told = found.to_json()
        assert not told["failures"] and told["differing"] == here["differing"], (case, keep)


def test_where_no_node_is_believed_the_rest_is_recorded_as_not_run(swept, tmp_path):
    found, _ = swept({"a": later(moved)})
    told, stored = found.to_json(), load(tmp_path / "store")
    lost = {one["at"] for one in told["failures"] if one["kind"] == "lost"}
    assert 0 < told["comparisons"] < 12 and len(lost) == 12 - told["comparisons"]
    assert lost == set(stored.failures[stored.failures.kind == "lost"]["at"].dropna())
    assert not lost & set(stored.comparisons["at"])


def test_values_that_a_node_leaves_out_again_and_again_are_recorded_as_not_run(swept, tmp_path):
    def nothing(answer):
        for name in ("comparisons", "differences"):
            answer["tables"].pop(name, None)

    told = swept({"a": later(nothing, 0)})[0].to_json()
    lost = {
        failure["at"] for failure in told["failures"] if "left out 4 times" in failure["message"]
    }
    assert told["comparisons"] == 0 and lost == {*LENGTHS[:-1]}


def test_a_lost_nodes_values_are_asked_elsewhere(swept, plain, tmp_path):
    def vanishes(answer):
        raise ConnectionError

    found, made = swept({"a": honest, "b": later(vanishes)})
    assert set(made.nodes) == {"a"} and not found.to_json()["failures"]
    same(tmp_path / "store", plain[0])


def test_where_the_scheduler_goes_what_was_measured_is_stored(swept, tmp_path, monkeypatch):
    def last(kind, given):
        if kind == "answer":
            monkeypatch.setattr(Dask, "status", "connecting")
        return given

    with pytest.raises(ClusterError, match="the scheduler is gone"):
        swept({"a": last})
    assert 0 < len(load(tmp_path / "store").comparisons) < 12


def test_what_the_scheduler_no_longer_knows_ends_it_too(swept, monkeypatch):
    answered = Dask.next_batch

    def cancelled(self, block):
        found = answered(self, block)
        for future, _ in found if self.asked else ():
            future.status = "cancelled"
        return found

    monkeypatch.setattr(Dask, "next_batch", cancelled)
    with pytest.raises(ClusterError, match="the scheduler is gone"):
        swept({"a": honest}, folder=None)


def test_a_shard_at_which_every_node_dies_is_recorded_as_lost(swept, monkeypatch):
    answered = Dask.next_batch

    def killed(self, block):
        found = answered(self, block)
        if not self.asked or not found:
            return found
        found[0][0].status = "error"
        return [(found[0][0], type("KilledWorker", (Exception,), {})())]

    monkeypatch.setattr(Dask, "next_batch", killed)
    told = swept({"a": honest}, folder=None)[0].to_json()
    assert told["comparisons"] == 0 and {one["kind"] for one in told["failures"]} == {"lost"}
    assert all("every node that had it was lost" in one["message"] for one in told["failures"])


def of(label, **facts):
    """A node that says that it is another machine, and whose runs are of that machine."""

    def behaves(kind, given):
        said = given if kind == "said" else given["said"]
        said["machine"].update(facts, machine=label)
        for target in said["targets"].values():
            target["run"].update(facts, machine=label, run_id="f" * 16)
        if kind == "answer":
            for name in given["tables"]:
                new = {"run_id": "f" * 16} | ({"machine": label, **facts} if name == "runs" else {})
                columns = {column: lambda _, value=value: value for column, value in new.items()}
                rewritten(name, **{c: columns[c] for c in columns if c in column_names(name)})(
                    given
                )
        return given

    return behaves


OTHER = {
    "cpu_vendor": "AuthenticAMD",
    "cpu_model": "AMD EPYC 9999 8-Core Processor",
    "cpu_family": 99,
    "cpu_model_number": 1,
    "cpu_isa": "avx2",
}
LABEL = "amd-epyc-fam99-model1-avx2"


def test_machines_are_never_mixed_and_machine_asks_for_one(swept, plain, tmp_path):
    both = {"a": honest, "b": of(LABEL, **OTHER)}
    own, other = f"{SWITCHING},machine={machine.label()}", f"{SWITCHING},machine={LABEL}"
    found, made = swept(both, [own, other])
    assert not found.to_json()["failures"] and not made.lines[2:]
    assert {path.name for path in (tmp_path / "store").iterdir()} == {machine.label(), LABEL}
    assert set(load(tmp_path / "store" / LABEL).runs.machine) == {LABEL}
    same(tmp_path / "store" / machine.label(), plain[0])
    assert not any("machine" in question["target"] for question, _ in made.asked)


def test_a_label_that_its_own_facts_contradict_is_refused(swept, plain, tmp_path):
    lies = {**OTHER, "cpu_vendor": "GenuineIntel"}
    found, _ = swept({"a": honest, "b": of(LABEL, **lies)})
    (failure,) = found.to_json()["failures"]
    assert failure["kind"] == "refused" and "are those of intel-epyc-fam99" in failure["message"]
    assert [path.name for path in (tmp_path / "store").iterdir()] == [machine.label()]
    same(tmp_path / "store", plain[0])


def test_a_node_that_comes_back_as_another_is_refused():
    made = doubles({"a": honest, "b": honest, "c": of(LABEL, **OTHER)}, [SWITCHING])
    assert [one.refused for one in made.nodes.values()] == ["", "", ""]
    made.client.there = ["a"]
    made.replies()
    assert set(made.nodes) == {"a"}
    made.client.there, made.client.names = ["a", "b", "c"], {"c": "a"}
    while len(made.nodes) < 3:
        made.replies()
    assert "it came back, and its machine was" in made.nodes["c"].refused
    assert not made.nodes["b"].refused


def test_a_machine_that_no_node_is_is_an_input_error(swept):
    with pytest.raises(InputError, match=r"machine=amd-none.*use one of"):
        swept({"a": honest}, [f"{SWITCHING},machine=amd-none"])


def test_a_target_that_no_node_has_is_a_failure_as_without_a_cluster(swept, tmp_path):
    found, _ = swept({"a": honest}, ["reference==9.9"])
    plain = probe.sweep(CASE, LENGTHS, ["reference==9.9"], store=tmp_path / "plain").to_json()
    told = found.to_json()
    assert told["failures"] == plain["failures"] and told["comparisons"] == 0
    assert rows(tmp_path / "store", "failures") == rows(tmp_path / "plain", "failures")


def test_what_is_no_machine_or_no_place_for_one_is_refused():
    assert Wanted.parse("reference , machine=a ,algorithm=pairwise").text.endswith(",machine=a")
    assert Wanted.parse("reference").label is None
    for text in ("reference,machine=a,machine=b", "reference,machine="):
        with pytest.raises(InputError, match="machine=LABEL once"):
            Wanted.parse(text)
    with pytest.raises(InputError, match="cluster"):
        probe.Target.parse("reference,machine=a")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--cluster nowhere", "cluster=nowhere"),
        ("--cluster local:0", "cluster=local:0"),
        ("--cluster tcp://host", "cluster=tcp://host"),
        ("--cluster ucx://host:1", "cluster=ucx://host:1"),
        ("--cluster local:2 --by order", "--shard i/n"),
        ("--cluster local:2 --workers 2", "workers=2"),
    ],
)
def test_what_a_cluster_can_not_do_is_said_in_one_line(words, why, capsys, tmp_path):
    line = "sweep --op sum --in-channels 4 --lengths 1..9 --target numpy --store"
    assert shell.run([*line.split(), str(tmp_path), *words.split()]) == 2
    told = capsys.readouterr().err
    assert why in told and len(told.strip().splitlines()) == 1


def test_values_are_dealt_evenly_and_in_shards_of_some_size(swept, plain, tmp_path, monkeypatch):
    found, made = swept({"a": honest, "b": honest})
    asked = [question["values"] for question, _ in made.asked]
    assert len(asked) == 8 and all(values[0] == 5 for values in asked), "two nodes, four for each"
    assert sorted(value for values in asked for value in values if value != 5) == [*range(6, 17)]
    monkeypatch.setattr(shards, "MOST", 1)
    found, made = swept({"a": honest}, folder=None)
    assert len(made.asked) == 12 and found.to_json()["comparisons"] == 12


def test_rows_of_other_values_are_cut_off():
    table = pa.table({"at": [1, 2, None, 3]})
    assert shards.rows_of_values({"failures": table}, [2])["failures"]["at"].to_pylist() == [
        2,
        None,
    ]


def test_an_experiments_parts_are_kept_where_shards_are(monkeypatch, tmp_path):
    script = tmp_path / "small.py"
    script.write_text("'''A script.'''\n")
    made, asked = doubles({"a": honest, "b": honest}, ["*"]), []

    def script_of(text):
        question = json.loads(text)
        asked.append(question["shard"])
        with probe.Store(tmp_path / "node" / question["shard"].replace("/", "-")) as store:
            store.append("cases", sweeps_row(int(question["shard"][0])))
            store.flush()
            tables = nodes._packed_tables(store.path)
        said = nodes.node_facts('["*"]')
        failed = question["shard"].startswith("3/")
        stderr = "shard=3/8: no such thing; do another"
        return {"said": said, "status": 2 * failed, "stderr": stderr, "tables": tables}

    @nodes.contextmanager
    def opened(address, targets, note):
        yield made

    worker = nodes._worker
    monkeypatch.setattr(shards, "connected_nodes", opened)
    monkeypatch.setattr(shards, "answer_script", script_of)
    with pytest.raises(ClusterError, match=r"1 parts were not run: shard=3/8: no such thing"):
        shards.run_on_nodes("local:2", script, tmp_path / "out", True, lambda *_: None, made.note)
    there = sorted(path.parent.parent.name for path in (tmp_path / "out").rglob(shards.DONE))
    assert there == [f"shard-{n}-of-8" for n in (1, 2, 4, 5, 6, 7, 8)]
    assert len(load(tmp_path / "out").cases) == 7
    del asked[:]
    with pytest.raises(ClusterError):
        shards.run_on_nodes("local:2", script, tmp_path / "out", True, lambda *_: None, made.note)
    assert asked == ["3/8"], "parts that are there are not run again"
    nodes._worker = worker


def sweeps_row(number):
    """A row of ``cases``."""
    from probe.campaign import case_row

    return case_row(Case("conv1d", 3 + number, 1, 1, length=64))


def test_dask_is_not_imported_before_it_is_needed():
    import subprocess
    import sys

    code = "import sys, probe.answers.sweep; sys.exit('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
