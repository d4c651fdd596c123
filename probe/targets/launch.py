"""Runs a target's child process with a clean environment; handles its requests and failures.

Whatever the child does (crash, hang, run out of memory, answer nonsense) becomes a ``TargetError``
with the tail of its stderr, and the process is gone; ``start`` gives a new one.
"""

from __future__ import annotations

import os
import platform
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from probe.case.errors import TargetError, ended_by
from probe.targets import backends, child, target
from probe.targets.backends import arrays
from probe.targets.backends.contract import isa_variables
from probe.targets.backends.jax import ISA as XLA_ISA
from probe.targets.budget import span
from probe.targets.environments import Missing
from probe.targets.progress import VOICE

Arrays = dict[str, np.ndarray]
Answer = tuple[dict[str, Any], Arrays]

# The only variables that a child inherits: where programs, libraries, temporary files and devices
# are, and the language. So no TF_*, ONEDNN_*, DNNL_*, OMP_*, KMP_*, MKL_*, XLA_* or PYTHON* of the
# shell decides bits; what a target needs of those, its switches set.
PASSED = (
    *("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SYSTEMROOT"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
)

# Seconds that one answer may take, and that a library may take to start.
TIME_LIMIT = 120.0

# -E and -s: neither PYTHON* variables nor packages in the home folder decide which library is
# found; -u: what was printed is there when the child crashes.
# What follows the interpreter on a child's command line.
WORKER = ("-E", "-s", "-u", child.__file__)

# Characters of stderr that go with a failure.
TAIL = 4000

# Seconds of the last start of each target in this process, to say how long the next one takes.
_TOOK: dict[str, float] = {}


class Pipes:
    """A child's stdin and stdout as a stream for ``child.send``, with a time limit.

    TimeoutError when the limit set by ``limit`` has passed.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._deadline: float | None = None
        # an array may be more than a pipe holds: a write that waits could not be given a time limit
        os.set_blocking(self._stdin.fileno(), False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._stdout.fileno(), select.POLLIN)
        self._writable.register(self._stdin.fileno(), select.POLLOUT)

    def limit(self, seconds: float | None) -> None:
        """From now on, ``seconds`` until TimeoutError; None: for ever."""
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def readinto(self, view: memoryview) -> int:
        self._wait(self._readable)
        return os.readv(self._stdout.fileno(), [view])

    def write(self, view: memoryview) -> int:
        try:
            return os.write(self._stdin.fileno(), view)
        except BlockingIOError:
            self._wait(self._writable)
            return 0

    def _wait(self, poll: select.poll) -> None:
        left = None if self._deadline is None else (self._deadline - time.monotonic()) * 1000
        if (left is not None and left <= 0) or not poll.poll(left):
            raise TimeoutError

    def status(self) -> int | None:
        """The exit status, negative for a signal; None if the child lives on for a second."""
        try:
            return self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        self._stdin.close()
        self._stdout.close()


class ChildFacts(dict[str, Any]):
    """What a child reported, by name. TargetError if a fact is missing: it isn't trusted."""

    def __init__(self, facts: Mapping[str, Any], refuse: Callable[[str], TargetError]) -> None:
        super().__init__(facts)
        self._refuse = refuse

    def __missing__(self, name: str) -> Any:
        raise self._refuse(f"it does not report {name}")


class Session:
    """Runs one child process of one target: a context manager that starts and ends it.

    ``time_limit``: seconds for one answer, None for no limit. ``start_limit``: for the library's
    start. Both are longer where the processor is emulated: ``Runtime.slower``. ``command``: what
    starts the worker, if it is not what the target says. ``extra``: variables
    beside the target's own, such as ``ONEDNN_VERBOSE``. A session belongs to one thread; only
    ``interrupt`` may be called from another.

    A failed request leaves ``alive`` False if the process is lost; then everything that was loaded
    is lost too, and ``start`` begins again. Errors: TargetError; InputError: it is no target.
    """

    _process: subprocess.Popen[bytes] | None = None
    _born = 0

    def __init__(
        self,
        where: target.Target | str,
        time_limit: float | None = TIME_LIMIT,
        start_limit: float | None = TIME_LIMIT,
        command: Sequence[str] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        where = where if isinstance(where, target.Target) else target.Target.parse(where)
        self.target, self.time_limit, self.start_limit = where, time_limit, start_limit
        self.command = command
        self.variables = library_variables(where) | dict(extra or {})
        self.facts: dict[str, Any] = {}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the session)
        self._slower = 1.0

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._process is not None

    def start(self) -> Self:
        """Starts the child and its library, and sets ``facts``; a running one is ended first."""
        self._end()
        if self.command is None and (why := target.why_unavailable(self.target)):
            raise self._error("unavailable", why)
        self._born = self.mark()
        command, slower, request = self.command, 1.0, _start_request(self.target)
        if command is None:
            ran = target.target_runtime(self.target)
            command, slower = (*ran.command, *WORKER), ran.slower
            if ran.facts is None and not ran.emulated:  # releases that pyproject.toml allows
                unneeded = backends.get(self.target.name).unneeded(dict(self.target.switches))
                request["without"] = list(unneeded)
        self._slower = slower
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=child_environment(self.variables),
            )
        except OSError as error:
            raise self._error("unavailable", f"{Path(command[0]).name}: {error.strerror}") from None
        self._pipes = Pipes(self._process)
        try:
            slow = " (emulated, which takes 5 to 10 times as long)"
            slow *= target.emulated_processor(self.target) is not None
            before = _TOOK.get(self.target.text)
            slow += "" if before is None else f", which took {span(before)} before"
            begun = time.monotonic()
            with VOICE.doing(f"starting {self.target.text}{slow}"):
                *_, (header, _) = self._exchange(request, {}, self.start_limit)
            _TOOK[self.target.text] = time.monotonic() - begun
            if not isinstance(header["facts"], dict):
                raise self.distrusted("its facts have no names")
        except TargetError:
            self._end()
            raise
        self.facts = header["facts"]
        return self

    def distrusted(self, why: str) -> TargetError:
        """Ends the child after an answer that can't be true; the error to raise."""
        return self._lost("protocol", f"its worker sent an invalid answer: {why}")

    def revive(self) -> Self:
        """Starts the child unless it is running."""
        return self if self.alive else self.start()

    def expected_facts(self) -> dict[str, Any]:
        """Those of ``facts`` that decide bits, told without starting; {} for other interpreters."""
        if self.command is not None:
            return _own_facts(self.target) if self.command[0] == sys.executable else {}
        try:
            facts = target.target_runtime(self.target).facts
        except Missing:
            return {}
        return _own_facts(self.target) if facts is None else dict(facts)

    def request(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Answer:
        """The last answer of a request: see ``child.Worker.handle`` for what can be asked."""
        return list(self.stream(header, arrays))[-1]

    def stream(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Iterator[Answer]:
        """Sends a request; its answers as they come. Leaving before the last one ends the child."""
        VOICE.calls += 1
        return self._exchange(header, arrays or {}, self.time_limit)

    def mark(self) -> int:
        """The place in the child's stderr up to which it has been written, for ``stderr_since``."""
        return os.fstat(self._stderr.fileno()).st_size

    def stderr_since(self, mark: int, limit: int = 1 << 30) -> str:
        """What the library printed after ``mark``: the last ``limit`` bytes of it, as text."""
        end = self.mark()
        start = max(mark, end - limit)
        return os.pread(self._stderr.fileno(), end - start, start).decode("utf-8", "replace")

    def tail(self) -> str:
        """The end of what the present process printed."""
        return self.stderr_since(self._born, TAIL).strip()

    def interrupt(self) -> None:
        """Ends the child at once; a request in another thread fails. Never waits."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """Ends the child and forgets its stderr. May be called again."""
        self._end()
        self._stderr.close()

    def _exchange(
        self, header: Mapping[str, Any], arrays: Arrays, limit: float | None
    ) -> Iterator[Answer]:
        if self._process is None:
            raise self._error("crash", "its process has ended; start it again")
        answered = False
        limit = None if limit is None else limit * self._slower
        try:
            self._pipes.limit(limit)
            child.send(self._pipes, dict(header), arrays)
            while not answered:
                self._pipes.limit(limit)
                answer, arrays = child.receive(self._pipes)
                answered = bool(answer.get("done"))
                if "error" in answer:
                    raise self._error(answer["error"], answer.get("message", ""))
                yield ChildFacts(answer, self.distrusted), ChildFacts(arrays, self.distrusted)
        except TimeoutError:
            raise self._lost("timeout", f"no answer within {limit:g} s") from None
        except (child.ProtocolError, OSError) as error:
            raise self._post_mortem(error) from None
        finally:
            if not answered:
                self._end(kill=True)

    def _post_mortem(self, error: Exception) -> TargetError:
        """What killed the child, from how it ended and what it printed last."""
        assert self._process is not None
        status = self._pipes.status()
        if status is not None and status < 0:
            return self._lost(*ended_by(-status, self.tail()))
        if status is None or not isinstance(error, child.Closed | OSError):
            return self._lost("protocol", f"its worker sent an invalid answer: {error}")
        return self._lost("crash", f"its process ended with exit status {status}")

    def _lost(self, kind: str, why: str) -> TargetError:
        error = self._error(kind, why)
        self._end(kill=True)
        return error

    def _error(self, kind: str, why: str) -> TargetError:
        return TargetError(self.target.text, kind, why, self.tail())

    def _end(self, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        self._pipes.close()
        try:
            process.wait(timeout=1.0)  # the worker leaves when its stdin closes
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class InlineSession(Session):
    """The same in this very process: no clean environment, no limits, no stderr.

    For measurements without a pipe and for tests. TargetError ``unavailable`` if the library has
    been loaded here already with other variables than the target's switches need.
    """

    def __init__(self, where: target.Target) -> None:
        super().__init__(where)
        self._stderr.close()  # what is printed here isn't caught
        self._worker: Any = None

    @property
    def alive(self) -> bool:
        return self._worker is not None

    def start(self) -> Self:
        """Sets the target's variables in this process, imports its library, sets ``facts``."""
        where = self.target
        why = target.why_unavailable(where)
        ran = None if why else target.target_runtime(where)
        wrong = [f"{k}={v}" for k, v in self.variables.items() if os.environ.get(k) != v]
        if ran is not None and (ran.facts is not None or ran.emulated):
            why = "a different Python interpreter runs it, so it can't run in this process"
        elif ran is not None and wrong and backends.get(where.name).module in sys.modules:
            why = f"the library is already loaded in this process without {', '.join(wrong)}"
        if why:
            raise self._error("unavailable", why)
        os.environ.update(self.variables)
        self._worker = child.Worker()
        header, _ = self.request(_start_request(where))
        self.facts = header["facts"]
        return self

    def stream(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Iterator[Answer]:
        if not self.alive:
            raise self._error("crash", "the session is closed; start it again")
        VOICE.calls += 1
        for answer, result in self._worker.handle(dict(header), arrays or {}):
            if "error" in answer:
                raise self._error(answer["error"], answer["message"])
            yield answer, result

    def expected_facts(self) -> dict[str, Any]:
        return _own_facts(self.target)

    def mark(self) -> int:
        return 0

    def stderr_since(self, mark: int, limit: int = 0) -> str:
        return ""

    def close(self) -> None:
        self._worker = None


# Of a child, or of this very process.
AnySession = Session


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """A child's whole environment: ``PASSED`` from this process, and then ``variables``."""
    return {name: os.environ[name] for name in PASSED if name in os.environ} | dict(variables)


def library_variables(where: target.Target) -> dict[str, str]:
    """Variables that a target's switches set before its library is loaded."""
    return dict(backends.get(where.name).environment(dict(where.switches), where.device))


def instruction_limits(isa: str) -> dict[str, str]:
    """Variables that limit oneDNN, OpenBLAS, XLA, PyTorch and NumPy to an instruction set
    in oneDNN's spelling. Eigen's kernels, which are compiled for one, follow none of them."""
    level = next(name for name in ("avx512", "avx2", "avx", "sse41") if isa.startswith(name))
    variables: dict[str, str] = isa_variables({"isa": isa})
    variables["OPENBLAS_CORETYPE"] = arrays.CORES[level if level != "avx512" else "avx512_core"]
    # XLA's oldest name is SSE4.2's, oneDNN's SSE4.1's
    xla = XLA_ISA[{"sse41": "sse42"}.get(level, level)]
    variables["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={xla}".strip()
    variables["ATEN_CPU_CAPABILITY"] = level if level in ("avx2", "avx512") else "default"
    cpu = {"avx512": "x86_v4", "avx2": "x86_v3"}.get(level, "x86_v2")
    return variables | dict(arrays.Arrays.environment({"cpu": cpu}, "cpu"))


def _own_facts(where: target.Target) -> dict[str, Any]:
    """Facts of a target that this interpreter runs, as far as they decide bits."""
    return {
        "library_version": target.installed_version(backends.get(where.name)),
        "numpy_version": np.__version__,
        "python_version": platform.python_version(),
    }


def open_session(where: target.Target, inline: bool = False, **limits: Any) -> AnySession:
    """A session, not started yet: a child process, or with ``inline`` this process."""
    return InlineSession(where) if inline else Session(where, **limits)


class Sessions:
    """Started sessions of several targets, one process each; leaving the context ends them."""

    def __init__(self, opens: Callable[[target.Target], AnySession] = open_session) -> None:
        self.opens = opens
        self._open: dict[target.Target, AnySession] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, where: target.Target) -> AnySession:
        """The target's session, which may not have been started."""
        if where not in self._open:
            self._open[where] = self.opens(where)
        return self._open[where]

    def of(self, where: target.Target) -> AnySession:
        return self.get(where).revive()

    def close(self, *wanted: target.Target) -> None:
        """Ends all processes but those of the targets that are kept."""
        for where in [target_open for target_open in self._open if target_open not in wanted]:
            self._open.pop(where).close()


def _start_request(where: target.Target) -> dict[str, Any]:
    switches = dict(where.switches)
    device = "cpu" if target.emulated_processor(where) else where.device
    request = {"do": "start", "backend": where.name, "switches": switches, "device": device}
    home = backends.entry_point_of(where.name)
    return request if home is None else request | {"home": list(home)}
