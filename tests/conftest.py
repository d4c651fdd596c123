"""Child processes that the tests of a module share."""

from __future__ import annotations

import gc
import os
import signal
import sys

import pytest

from probe import launch, progress, target
from probe.target import Target

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell put behind
    signal.signal(signal.SIGINT, signal.default_int_handler)

# OpenMP's threads (PyTorch's) otherwise spin while they wait, and take the processor from the
# tests of the other processes: a PyTorch test costs two to three times as much
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


SECONDS_EACH = """
    answers bisection channels cli_explain cli_help cli_reproduce cli_results cli_sweep cluster
    cluster_processes conventions conversion dense emulate experiments experiments_frameworks
    experiments_history experiments_network experiments_orders experiments_remedies
    experiments_reproductions kept launch network_parts network_programs network_readers
    network_running network_trust
    network_turned pooling products real_models recognition recorded recording_jax
    recording_onnxruntime recording_opencv recording_litert recording_tensorflow recording_torch
    remedies reports reproduction reproduction_networks reveal shard source stable stable_models
    sweep thresholds walk
""".split()
"""Modules that start many processes, import large libraries or execute notebooks: what `make check`
leaves to `make test`, as it does those of each library. All rooms have tests outside of these."""


CORES = 2
"""What every process of pytest-xdist keeps to, with its children: two threads are tested too."""


def pytest_configure(config):
    """Gives this process cores of its own where there are enough, so that children don't fight."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        own = sorted(os.sched_getaffinity(0))
        first = CORES * int(worker.removeprefix("gw"))
        os.sched_setaffinity(0, {own[(first + n) % len(own)] for n in range(CORES)})


def pytest_sessionstart(session):
    """Millions of objects come with the libraries and stay: none is looked for among them."""
    gc.disable()


def pytest_collection_finish(session):
    gc.freeze()
    gc.enable()


MINUTES_TOGETHER = """
    test_tensorflow_says_nothing_while_a_keras_file_is_read
    test_what_tensorflow_refuses_on_a_cpu_is_known
    test_every_output_is_revealed_and_replayed[onnxruntime]
    test_every_output_is_revealed_and_replayed[litert,threads=2]
    test_every_output_is_revealed_and_replayed[torch,threads=1]
    test_products_and_sums_are_revealed_and_replayed[tensorflow]
    test_what_is_new_in_a_store_adds_to_what_is_known
    test_a_script_gives_the_targets_bits[tensorflow]
    test_integers_are_exact_and_nothing_is_refused[openvino,precision=f32]
    test_integers_are_exact_and_nothing_is_refused[openvino,precision=f32,threads=1]
    test_reference_conforms_and_refuses_nothing
    test_the_short_script_and_the_few_lines_print_the_measured_numbers
    test_a_quick_run_stores_bits_and_orders[version_history]
    test_commands_lose_nothing_on_narrow_terminals[40]
    test_a_difference_of_lengths_is_explained_and_replayed
    test_integers_are_exact_and_nothing_is_refused[torch,deterministic=1-dtypes3-7]
    test_kernels_are_kept_where_the_library_names_them
    test_facts_say_version_device_threads_and_whether_onednn_is_on
    test_the_experiment_runs_quickly[onnx_conversion]
    test_what_changes_with_the_size_is_found_and_explained[devices]
    test_every_output_is_revealed_and_replayed[opencv,winograd=0]
    test_ctrl_c_prints_what_there_is
    test_long_chains_need_no_stack[2500]
    test_graphs_conform[tensorflow,xla=1]
    test_graphs_conform[tensorflow,weights=constant]
    test_graphs_conform[keras,mode=graph]
    test_tensorflow_and_keras_conform[tensorflow,onednn=0-dtypes1]
    test_tensorflow_and_keras_conform[tensorflow,onednn=0,contraction=0-dtypes2]
    test_the_bits_are_those_of_the_librarys_own_layer[keras]
    test_rows_are_explained_and_what_is_called_a_cause_replays[keras]
    test_its_notebook_runs_on_it[length_sweep]
    test_integers_are_exact_and_nothing_is_refused[openvino]
    test_integers_are_exact_and_nothing_is_refused[openvino,weights=argument]
    test_a_library_agrees_with_exact_products_or_refuses_by_op_or_dtype[jax]
    test_a_library_agrees_with_exact_products_or_refuses_by_op_or_dtype[keras]
    test_tensorflow_and_keras_conform[keras-dtypes3]
    test_graphs_conform[tensorflow,mode=graph]
    test_its_notebook_runs_on_it[prefix_stability]
    test_a_failing_length_is_a_row_and_the_others_are_measured[garbage-protocol]
    test_shrink_says_the_smallest_case_with_its_operands[order]
    test_remedies_go_along_the_models_axis[reference]
    test_three_lines_in_python_do_not_call_a_part_exact_or_equal
    test_python_marks_a_part_as_the_commands_do
    test_accumulation_orders
    test_the_bits_are_those_of_the_librarys_own_layer[tensorflow]
    test_a_script_gives_the_targets_bits[keras]
    test_a_quick_run_stores_what_it_measured[overhead]
    test_its_notebook_runs_on_it[overhead]
    test_exported_programs_say_their_inputs
    test_a_parent_that_is_killed_leaves_no_child
    test_a_library_agrees_with_exact_products_or_refuses_by_op_or_dtype[tensorflow]
    test_rows_are_explained_and_what_is_called_a_cause_replays[tensorflow]
    test_tensorflow_and_keras_conform[tensorflow-dtypes0]
    test_constant_weights_are_rebuilt_for_new_weights
    test_reveal_cost
    test_the_notebook_draws_any_store
    test_its_notebook_runs_on_a_quick_run
    test_float16_replays
    test_a_store_s_worst_finding_or_a_row
    test_its_notebook_runs_on_it
    test_the_notebook_draws_what_the_run_stored
    test_the_command_says_what_it_assumed
    test_shards_of_a_sweep_by_order_cover_all_values
    test_both_halves_are_cut_to_16_bits_before_they_are_added
    test_integers_are_exact_and_nothing_is_refused[dtypes1-13]
    test_every_output_is_revealed_and_replayed[jax,threads=1]
    test_a_quick_run_stores_bits_and_orders[processors]
    test_other_formats_replay[float64]
    test_integers_are_exact_and_nothing_is_refused[torch,mkldnn=0-dtypes2-3]
    test_integers_are_exact[onnxruntime,threads=1,deterministic=1-dtypes2]
    test_integers_are_exact_with_other_kernels[litert,threads=2]
    test_safe_lengths_are_the_shortest_that_change_no_order[same]
""".split()
"""What takes longest of tests whose like stay in `make test`: these are left to `make slow`."""


HALF_A_MINUTE = ("recording_jax", "recording_tensorflow")
"""Modules that import a large library here, and go through all that they know of it."""


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.path.stem.removeprefix("test_")
        if item.name in MINUTES_TOGETHER or name in HALF_A_MINUTE:
            item.add_marker("slow")
        if name not in SECONDS_EACH and not name.startswith("backends"):
            item.add_marker("check")


KEPT = 3
"""Sessions that outlive a module: starting TensorFlow takes seconds, keeping it 400 MB."""


@pytest.fixture(scope="session")
def _sessions():
    """Running sessions by the text of their target, the last used last."""
    sessions: dict[str, launch.Session] = {}
    yield sessions
    for session in sessions.values():
        session.close()


@pytest.fixture(scope="module")
def started(_sessions):
    """started(target text): a running Session; skips with the reason where it can't run."""

    def start(text):
        if why := target.unavailable(Target.parse(text)):
            pytest.skip(f"{text}: {why}")
        session = _sessions.pop(text, None)
        if session is None or not session.alive:
            session = launch.Session(Target.parse(text)).start()
        _sessions[text] = session
        return session

    yield start
    while len(_sessions) > KEPT:
        _sessions.pop(next(iter(_sessions))).close()


@pytest.fixture(autouse=True)
def _gradients_are_on():
    """A target that ran in this process may have switched PyTorch's gradients off."""
    if torch := sys.modules.get("torch"):
        torch.set_grad_enabled(True)


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch):
    """Stderr says the same however busy the machine is; the test of progress sets its own pace."""
    monkeypatch.setattr(progress, "FIRST", 1e6)
    monkeypatch.setattr(progress, "EVERY", 1e6)


@pytest.fixture(autouse=True)
def _width_of_no_terminal(monkeypatch):
    """Tables are as wide as they are where nobody says how wide a terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)
