"""A project of somebody who uses the plugin, in a folder, and pytest run there."""

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import metadata
from textwrap import dedent
from types import SimpleNamespace

import pytest

from probe.ui.lock import runs
from probe.ui.lock.checks import OUT, RECORD

# Conditions of a machine, as a lock has them.
HERE = {"cores": 2, "processor": "amd", "isa": "avx512_core", "architecture": "x86_64"}
HERE |= {"library.numpy": "2.4.6", "library.jax": "0.10.1", "library.jaxlib": "0.10.1"}
HERE |= {"threads.numpy": 2, "blas.numpy": "SkylakeX"}

BUSY = ("OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")


class Project:
    """Files in a folder; ``pytest`` runs there, in this process unless it gets other conditions:
    a start of its own takes as long as a hundred checks."""

    def __init__(self, folder):
        self.folder, self.lock = folder, folder / "bits.lock"

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def pytest(self, *arguments, cores=None, apart=False, **variables):
        """Returns (exit status, what was printed). ``cores``: processors that it may use;
        ``apart``: in a process of its own, with all plugins that are installed."""
        if not (apart or cores or variables):
            return self._here(["-q", *arguments])
        surroundings = {k: v for k, v in os.environ.items() if k not in BUSY}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugin(), "-q", *arguments],
            cwd=self.folder,
            env=surroundings | variables,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),
        )
        return done.returncode, done.stdout + done.stderr

    def _here(self, words):
        printed, path, modules = io.StringIO(), [*sys.path], {*sys.modules}
        with pytest.MonkeyPatch.context() as patch:
            for name in BUSY:
                patch.delenv(name, raising=False)
            # a test that is written twice in a second, with as many letters, is the first otherwise
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
            # and where causes are looked for: Hypothesis' alone costs half a second at each start
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            with chdir(self.folder), redirect_stdout(printed), redirect_stderr(printed):
                status = pytest.main(["-p", "probe.ui.lock.plugin", *words])
        sys.path[:] = path
        for name in {*sys.modules} - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.folder)):
                del sys.modules[name]
        return int(status), printed.getvalue()

    def says(self, status, said, *arguments, **how):
        """Runs pytest, which ends with this status and prints this (a text, or several)."""
        ended, told = self.pytest(*arguments, **how)
        assert ended == status, told
        assert all(text in told for text in ([said] if isinstance(said, str) else said)), told
        return told


@contextmanager
def runs_in_this_process():
    """``probe check`` and ``probe check lock`` compute here: a process of its own costs a second,
    and seconds where it imports a library."""

    def run(words, cwd, env, **_):
        modules = {*sys.modules}
        with pytest.MonkeyPatch.context() as patch, chdir(cwd):
            patch.setattr(sys, "path", [*sys.path])
            for name in (OUT, RECORD):
                patch.delenv(name, raising=False)
                if name in env:
                    patch.setenv(name, env[name])
            with suppress(SystemExit):
                runs.compute(json.loads(words[-1]))
        for name in {*sys.modules} - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(cwd)):
                del sys.modules[name]
        return SimpleNamespace(stdout="", stderr="")

    here = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "subprocess", here)
        yield


def plugin():
    """Returns what loads the plugin where the package isn't installed with its entry points."""
    there = any(one.name == "bits" for one in metadata.entry_points(group="pytest11"))
    return [] if there else ["-p", "probe.ui.lock.plugin"]
