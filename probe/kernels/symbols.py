"""The source ``symbols``: native functions that perf finds the process in while it repeats a call.

``cpu-clock`` is a timer of the kernel: it needs no hardware counters, so it works in virtual
machines. TensorFlow's and Eigen's kernels have symbols. oneDNN writes down the names of what it
generates (developer guide, "Profiling oneDNN Performance"); other generated code is ``jit``.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from probe.kernels.names import readable
from probe.kernels.question import KEY, Kernel, Question
from probe.launch import Session
from probe.target import Target

SOURCE = "symbols"
FREQUENCY = 40000
"""Samples a second and thread; small calls spend a hundredth of their time in their kernel."""
FEWEST = 5
"""Samples in numerical code below which nothing is said: what ran may be among what was missed."""
SHARE = 0.05
"""Of the samples in numerical code, that a function must have to be named."""
PERFMAP = {"ONEDNN_JIT_PROFILE": "2", "DNNL_JIT_PROFILE": "2"}
"""Lets oneDNN write the file that perf looks for: the names of generated code by address."""
PATIENCE = 120.0
"""Seconds for perf to write its samples, and again to read a library's million symbols."""

NOT_INSTALLED = "perf is not installed; Debian: linux-perf"
NOT_LINUX = "perf samples on Linux only"

_EVENT = ("-e", "cpu-clock:u", "--no-buildid", "--no-buildid-cache")
_REPORT = ("--no-children", "--no-demangle", "-F", "sample,dso,symbol", "-t", "\t", "--stdio", "-q")


def applies(target: Target) -> bool:
    """Every library but NumPy's stand-in, whose samples would name the interpreter."""
    return target.name != "reference"


def observe(question: Question) -> Kernel:
    """Samples the call for ``question.seconds``. Errors: TargetError, of the target alone."""
    if not sys.platform.startswith("linux"):
        return Kernel(SOURCE, None, NOT_LINUX)
    if (perf := shutil.which("perf")) is None:
        return Kernel(SOURCE, None, NOT_INSTALLED)
    with tempfile.TemporaryDirectory() as folder:
        try:
            refused, listed = _sampled(perf, Path(folder) / "samples", question)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Kernel(SOURCE, None, f"perf did not finish: {type(error).__name__}")
    if refused:
        return Kernel(SOURCE, None, refused)
    found = numerical(listed)
    few = f"only {found.total()} samples of {question.seconds:g} s were in numerical code"
    return Kernel.of(SOURCE, top(found), f"{few}: the call is too short to be sampled")


def _sampled(perf: str, samples: Path, question: Question) -> tuple[str | None, str]:
    """Why perf recorded nothing, or None, and its report."""
    with question.session(PERFMAP) as session:
        generated = Path(f"/tmp/perf-{session.pid}.map")  # where perf looks for it, always
        try:
            refused = _record(perf, samples, session, question.seconds)
            return refused, "" if refused else _report(perf, samples)
        finally:
            generated.unlink(missing_ok=True)


def _record(perf: str, samples: Path, session: Session, seconds: float) -> str | None:
    """Writes the file ``samples``, or says why there is none."""
    session.request({"do": "run", "key": KEY})  # the first call makes what later ones reuse
    sampling = ("-F", str(frequency()), "-o", str(samples), "-p", str(session.pid))
    recorder = subprocess.Popen(
        [perf, "record", *_EVENT, *sampling],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        session.request({"do": "run", "key": KEY, "repeat": seconds})
        ended = recorder.poll()
        recorder.send_signal(signal.SIGINT)
        said, _ = recorder.communicate(timeout=PATIENCE)
    finally:
        recorder.kill()
        recorder.wait()
    return None if ended is None else refusal(ended, said.decode("utf-8", "replace"))


def _report(perf: str, samples: Path) -> str:
    command = [perf, "report", "-i", str(samples), *_REPORT]
    done = subprocess.run(
        command, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False
    )
    return done.stdout.decode("utf-8", "replace")


def refusal(status: int, said: str) -> str:
    """Why perf would not record, in our words: its own have process numbers and paths."""
    if "not found for kernel" in said:
        return "perf is not installed for this kernel; Debian: linux-perf, Ubuntu: linux-tools"
    paranoid = _setting("perf_event_paranoid")
    if any(word in said.lower() for word in ("permi", "paranoid", "access", "not allowed")):
        return f"perf may not sample here: kernel.perf_event_paranoid is {paranoid}; set 2 or less"
    return f"perf record ended with exit status {status}"


def frequency() -> int:
    """``FREQUENCY``, or the kernel's own limit, above which perf refuses to record."""
    limit = _setting("perf_event_max_sample_rate")
    return min(FREQUENCY, int(limit)) if limit.isdigit() else FREQUENCY


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys/kernel", name).read_text().strip()
    except OSError:
        return "not to be read"


def numerical(listed: str) -> Counter[str]:
    """Samples by readable name, of a report's lines ``samples TAB library TAB [.] symbol``."""
    found: Counter[str] = Counter()
    for line in listed.splitlines():
        count, _, rest = line.partition("\t")
        library, _, symbol = rest.partition("\t")
        if not count.strip().isdigit():
            continue
        symbol = symbol.strip().partition(" ")[2].strip()
        if name := readable(symbol, Path(library.strip()).name or library.strip()):
            found[name] += int(count)
    return found


def top(found: Counter[str]) -> list[str]:
    """Names with at least ``SHARE`` of the samples, most first; none where samples are too few."""
    total = found.total()
    if total < FEWEST:
        return []
    return [name for name, count in found.most_common() if count >= SHARE * total]
