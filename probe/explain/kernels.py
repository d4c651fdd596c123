"""Collects the kernels that a library reports: evidence beside a cause, never the cause itself.

``observe`` queries every source in ``SOURCES`` that applies to a target. A library that can simply
be asked offers ``Backend.kernels(spec, shapes)``; two more sources are outside of the library.

>>> from probe import Case, Target; from probe.explain import kernels
>>> case = Case(op="conv1d", kernel=5, in_channels=64, filters=1, length=64)
>>> kernels.observe(Target.parse("tensorflow"), case, at=5)  # doctest: +SKIP
[Kernel(source='onednn-verbose', kernel='convolution brg_conv_fwd:avx512_core', missing=None), ...]

``onednn-verbose``: the primitives that oneDNN logs while it executes a call. Its lines (developer
guide, "Verbose Mode"), from the present to the past::

    onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,...   3.3 on
    onednn_verbose,primitive,exec,cpu,convolution,jit:avx2,...                      3.1
    onednn_verbose,exec,cpu,convolution,jit:avx2,...                                2.0
    dnnl_verbose,exec,cpu,convolution,jit:avx2,...                                  1.0
    mkldnn_verbose,exec,convolution,jit:avx2,...                                    0.x

``symbols``: native functions that perf finds the process in while it repeats a call. ``cpu-clock``
is a timer of the kernel: it needs no hardware counters, so it works in virtual machines.
TensorFlow's and Eigen's kernels have symbols. oneDNN writes down the names of what it generates
(developer guide, "Profiling oneDNN Performance"); other generated code is ``jit``.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from probe.case import floats
from probe.case.arguments import choice
from probe.case.case import Case
from probe.case.errors import TargetError
from probe.order.window import axis_of, case_at
from probe.targets import backends
from probe.targets.backends.contract import Backend
from probe.targets.launch import TIME_LIMIT, Session
from probe.targets.target import Target

# Between the names in ``Kernel.kernel``; no name has it.
SEPARATOR = "; "

# Under which a question's session has its operands loaded.
KEY = "case"


class Kernel(NamedTuple):
    """What one source says ran; the last three columns of the table ``kernels``.

    ``kernel``: names joined by ``SEPARATOR``, None where the source could not say; then ``missing``
    is why, in one line. Neither holds a path, a host or a process number. ``commands``: what runs
    the same by itself, which no table keeps.
    """

    source: str
    kernel: str | None
    missing: str | None = None
    commands: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the single names; empty where ``kernel`` is None."""
        return tuple(self.kernel.split(SEPARATOR)) if self.kernel else ()

    @classmethod
    def of(cls, source: str, names: list[str], missing: str) -> Kernel:
        """Returns the names in their order, without repetitions; ``missing`` if there is none."""
        unique = SEPARATOR.join(dict.fromkeys(names))
        return cls(source, unique, None) if unique else cls(source, None, missing)


@dataclass(frozen=True)
class KernelQuestion:
    """One case on one target. ``seconds``: how long a source that samples may repeat the call."""

    target: Target
    case: Case
    seconds: float = 2.0
    time_limit: float | None = TIME_LIMIT

    @contextmanager
    def session(self, extra: Mapping[str, str] | None = None) -> Iterator[Session]:
        """Starts a process of its own, never the one that made the results, with the operands.

        ``extra``: variables that make the library talk. Errors: TargetError.
        """
        with Session(self.target, time_limit=self.time_limit, extra=extra) as session:
            load_operands(session, self.case)
            yield session


def load_operands(session: Session, case: Case) -> None:
    """Has the operands of a case loaded under ``KEY``. Errors: TargetError."""
    operands = zip("xwb", case.operands(), strict=True)
    arrays = {
        name: floats.to_container(array, case.dtype)
        for name, array in operands
        if array is not None
    }
    session.request({"do": "load", "key": KEY, "spec": case.spec()}, arrays)


ONEDNN = "onednn-verbose"

# The variable under its present name and those before oneDNN 2.0 and 1.0.
TALK = {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1", "MKLDNN_VERBOSE": "1"}

SILENT = "oneDNN printed nothing: the operator did not go through it"

_EXECUTED = re.compile(
    r"(?:onednn|dnnl|mkldnn)_verbose,(?:[\w.]+,){0,3}?exec,(?:[cg]pu\d*,)?"
    r"(?P<primitive>[a-z]\w*),(?P<implementation>[\w:+.-]*),"
)


def carries_onednn(target: Target) -> bool:
    """Returns whether the library carries oneDNN: then it has the switch ``isa``."""
    return "isa" in backends.get(target.name).keys


def onednn_log(question: KernelQuestion) -> Kernel:
    """Runs the call once in a process that logs. Errors: TargetError."""
    with question.session(TALK) as session:
        return logged(session)


def logged(session: Session) -> Kernel:
    """Returns what a process that was started with ``TALK`` logs as it runs the loaded call."""
    mark = session.mark()
    session.request({"do": "run", "key": KEY})
    log = session.stderr_since(mark)
    return Kernel.of(ONEDNN, primitives(log), SILENT)._replace(commands=tuple(benchdnn(log)))


def primitives(log: str) -> list[str]:
    """Returns every executed primitive as ``convolution brg_conv_fwd:avx512_core``, in order.

    The matrix product that TensorFlow calls inside Eigen's is ``gemm_api``, without an
    implementation. Lines of another kind (info, create, the library's own log) are passed over.
    """
    executed = _EXECUTED.finditer(log)
    return [f"{match['primitive']} {match['implementation']}".strip() for match in executed]


BENCHDNN = "benchdnn"

# Its drivers, by what oneDNN's log calls the primitives.
DRIVERS = {"convolution": "conv", "matmul": "matmul", "inner_product": "ip"}


def benchdnn(log: str) -> list[str]:
    """Returns the commands of oneDNN's own test driver that run the primitives of a log, each once.

    They say what the log does: formats, layouts ("any" where the library chose), attributes, sizes;
    the operands are benchdnn's. Of a log in the format of oneDNN 3.3 and later.
    """
    commands = []
    for line in log.splitlines():
        head, executed, rest = line.partition("primitive,exec,")
        fields = rest.split(",")
        if not executed or not head.startswith("onednn_verbose") or len(fields) < 9:
            continue
        driver, direction = DRIVERS.get(fields[1]), fields[3]
        memory = dict(memory_in_words(text) for text in fields[4].split())
        if driver is None or not {"src", "wei", "dst"} <= set(memory):
            continue
        bias = memory.get("bia", ("undef", ""))
        types, tags = zip(*(memory[name] for name in ("src", "wei", "dst")), strict=True)
        words = [f"--{driver}", f"--dt={':'.join(types)}"]
        if driver == "matmul":
            words += [f"--bia-dt={bias[0]}", "--bia_mask=2"] * (bias[0] != "undef")
        else:
            ends = "I" if direction.endswith("inference") else "D" if bias[0] == "undef" else "B"
            words.insert(1, f"--dir={'FWD' if direction.startswith('forward') else 'BWD'}_{ends}")
        words += [f"--{n}tag={tag}" for n, tag in zip("swd", tags, strict=True)]
        words += [f"--{text.replace(':', '=', 1)}" for text in fields[5].split()]
        words += [f"--alg={fields[6].rpartition('_')[2]}"] * fields[6].startswith("alg:")
        commands.append(" ".join(["benchdnn", *words, fields[7]]))
    return list(dict.fromkeys(commands))


def memory_in_words(text: str) -> tuple[str, tuple[str, str]]:
    """``src:f32:a:blocked:acdb::f0``: the name, and the format with the layout that was asked."""
    name, kind, how, _, tag, *_ = [*text.split(":"), *[""] * 4]
    return name, (kind, "any" if "a" in how else tag)


SYMBOLS = "symbols"
# Samples a second and thread; small calls spend a hundredth of their time in their kernel.
FREQUENCY = 40000
# Samples in numerical code below which nothing is said: what ran may be among what was missed.
FEWEST = 5
# Samples in numerical code below which the call is sampled once more, so many times as long.
ENOUGH, LONGER = 100, 5
# Of the samples in numerical code, that a function must have to be named.
SHARE = 0.05
# Lets oneDNN write the file that perf looks for: the names of generated code by address.
PERFMAP = {"ONEDNN_JIT_PROFILE": "2", "DNNL_JIT_PROFILE": "2"}
# Seconds for perf to write its samples, and again to read a library's million symbols.
PATIENCE = 120.0

NOT_INSTALLED = "perf is not installed; Debian: linux-perf"
NOT_LINUX = "perf samples on Linux only"

_EVENT = ("-e", "cpu-clock:u", "--no-buildid", "--no-buildid-cache")
_REPORT = ("--no-children", "--no-demangle", "-F", "sample,dso,symbol", "-t", "\t", "--stdio", "-q")


def sampled_symbols(question: KernelQuestion) -> Kernel:
    """Samples the call for ``question.seconds``. Errors: TargetError, of the target alone."""
    if not sys.platform.startswith("linux"):
        return Kernel(SYMBOLS, None, NOT_LINUX)
    if (perf := shutil.which("perf")) is None:
        return Kernel(SYMBOLS, None, NOT_INSTALLED)
    symbols: Counter[str] = Counter()
    try:
        with tempfile.TemporaryDirectory() as folder, question.session(PERFMAP) as session:
            samples = Path(folder) / "samples"
            generated = Path(f"/tmp/perf-{session.pid}.map")  # where perf looks for it, always
            try:
                for seconds in (question.seconds, LONGER * question.seconds):
                    if refused := _record(perf, samples, session, seconds):
                        return Kernel(SYMBOLS, None, refused)
                    report = subprocess.run(
                        [perf, "report", "-i", str(samples), *_REPORT],
                        capture_output=True,
                        stdin=subprocess.DEVNULL,
                        timeout=PATIENCE,
                        check=False,
                    )
                    symbols += numerical(report.stdout.decode("utf-8", "replace"))
                    if symbols.total() >= ENOUGH:
                        break
            finally:
                generated.unlink(missing_ok=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Kernel(SYMBOLS, None, f"perf did not finish: {type(error).__name__}")
    seconds = question.seconds * (1 + LONGER)
    few = f"only {symbols.total()} samples of {seconds:g} s were in numerical code"
    return Kernel.of(SYMBOLS, top(symbols), f"{few}: the call is too short to be sampled")


def _record(perf: str, samples: Path, session: Session, seconds: float) -> str | None:
    """Writes the file ``samples``, or says why there is none."""
    session.request({"do": "run", "key": KEY})  # the first call makes what later ones reuse
    limit = _setting("perf_event_max_sample_rate")  # above which perf refuses to record
    rate = min(FREQUENCY, int(limit)) if limit.isdigit() else FREQUENCY
    sampling = ("-F", str(rate), "-o", str(samples), "-p", str(session.pid))
    recorder = subprocess.Popen(
        [perf, "record", *_EVENT, *sampling],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        session.request({"do": "run", "key": KEY, "repeat": seconds})
        ended = recorder.poll()
        # as Ctrl-C does: perf ends, and writes what it has sampled
        recorder.send_signal(signal.SIGINT)
        said, _ = recorder.communicate(timeout=PATIENCE)
    finally:
        recorder.kill()
        recorder.wait()
    return None if ended is None else refusal(ended, said.decode("utf-8", "replace"))


def refusal(status: int, said: str) -> str:
    """Returns why perf would not record, in our words: its own have process numbers and paths."""
    if "not found for kernel" in said:
        return "perf is not installed for this kernel; Debian: linux-perf, Ubuntu: linux-tools"
    paranoid = _setting("perf_event_paranoid")
    if any(word in said.lower() for word in ("permi", "paranoid", "access", "not allowed")):
        return f"perf may not sample here: kernel.perf_event_paranoid is {paranoid}; set 2 or less"
    return f"perf record ended with exit status {status}"


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys/kernel", name).read_text().strip()
    except OSError:
        return "not to be read"


def numerical(listed: str) -> Counter[str]:
    """Samples by readable name, of a report's lines ``samples TAB library TAB [.] symbol``."""
    symbols: Counter[str] = Counter()
    for line in listed.splitlines():
        count, _, rest = line.partition("\t")
        library, _, symbol = rest.partition("\t")
        if not count.strip().isdigit():
            continue
        symbol = symbol.strip().partition(" ")[2].strip()
        if name := readable(symbol, Path(library.strip()).name or library.strip()):
            symbols[name] += int(count)
    return symbols


def top(symbols: Counter[str]) -> list[str]:
    """Names with at least ``SHARE`` of the samples, most first; none where samples are too few."""
    total = symbols.total()
    if total < FEWEST:
        return []
    return [name for name, count in symbols.most_common() if count >= SHARE * total]


# The name of code that was generated at run time and has none of its own.
GENERATED = "jit"

_ANONYMOUS = re.compile(r"\[JIT\]|//anon|\[anon|anon_inode|memfd:|/?perf-\d+\.map|/dev/zero")
_GENERATED_NAME = re.compile(r"([A-Za-z_]\w+)(?:\.\d+)?$")
_NUMERICAL = re.compile(
    r"""Eigen::(?!\w*(?:Thread|Event|Barrier|Notification|RunQueue|MaxSize))
    | dnnl::impl::cpu:: | tensorflow::(?:functor::|\w*Depthwise) | tflite:: | ruy::
    | at::native:: | xla::cpu:: | __xla_cpu_runtime_ | xnn_ | Mlas | mkl_ | cblas_ | [sd]gemm""",
    re.VERBOSE,
)
_PREPARING = re.compile(
    r"""Blocking | UseCustom | CachingSizes | caching_sizes | _ctx_t | _pd_t | engine | storage
    | stream | scales | _args | _comp_offset | _init$ | init_ | check_ | [Mm]alloc | _free
    | mayiuse | cpu_isa | xla::cpu::\w*(?:Executable|Thunk)
    | (?P<made>\b\w+)::~?(?P=made)$""",
    re.VERBOSE,
)
_FUNCTION = re.compile(r"std::_Function_handler<.*?\), (?P<function>.*)>::_M_invoke")
_LAMBDA = re.compile(r"::\{lambda.*|'lambda.*")
_OPERATOR = re.compile(r"operator(?:<=>|<<=?|>>=?|<=?|>=?|->\*?|\(\))")
_SPELLED = {"<": "\1", ">": "\2", "(": "\3", ")": "\4"}


def readable(symbol: str, library: str) -> str | None:
    """Returns the short name of a sampled symbol in numerical code; None for all other code.

    ``symbol``: as the object file has it; ``library``: the name of that file, or perf's word for
    generated code. Only what computes is named: the rest of a library dispatches, allocates and
    waits, and is the same for every kernel.
    """
    if _ANONYMOUS.search(library):
        named = _GENERATED_NAME.match(symbol)
        return named[1] if named else GENERATED
    name = shorten(demangle(symbol))
    if not _NUMERICAL.match(name) or _PREPARING.search(name):
        return None
    return name


def shorten(name: str) -> str:
    """Makes ``Eigen::internal::gebp_kernel`` of a demangled C++ name of some thousand letters.

    A lambda counts as the function that it is written in, also where a ``std::function`` calls it,
    and ``run`` and a call operator as their class.
    """
    if wrapped := _FUNCTION.match(name):
        name = wrapped["function"]
    name = _LAMBDA.sub("", name).replace("(anonymous namespace)::", "")
    name = _OPERATOR.sub(lambda match: "".join(_SPELLED.get(c, c) for c in match[0]), name)
    # template arguments and parameters are whatever stands in brackets, which operators have too:
    # these were spelled with other characters first
    characters, depth = [], 0
    for character in name:
        depth -= character in ">)"
        if depth == 0 and character not in ">)<(":
            characters.append(character)
        depth += character in "<("
    words = re.sub(r"\s+const\b|\[[^]]*\]|\bdecltype\b|&", "", "".join(characters)).split()
    name = words[-1] if words else ""
    for spelled, character in ((new, old) for old, new in _SPELLED.items()):
        name = name.replace(spelled, character)
    return name.removesuffix("::operator()").removesuffix("::run")


def demangle(symbol: str) -> str:
    """Returns a mangled C++ name as it was written; any other, or without libstdc++, as it is.

    perf's own demangling takes seconds: it demangles a library's million names for the few asked.
    """
    library = _cxx_runtime()
    if library is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    address = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    name = ctypes.string_at(address).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return name


@cache
def _cxx_runtime() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library


# The source in ``SOURCES`` that stands for all that ``Backend.kernels`` answers, by its words.
ASKED = "asked"


class KernelSource(NamedTuple):
    """A way to learn what ran. ``observe`` may raise TargetError, of the target alone."""

    applies: Callable[[Target], bool]
    observe: Callable[[KernelQuestion], Kernel | list[Kernel]]


def _offers(target: Target) -> bool:
    return backends.get(target.name).kernels is not Backend.kernels


def _ask_backend(question: KernelQuestion) -> list[Kernel]:
    """Returns what the backend answers in the child; its sources are its own words."""
    with question.session() as session:
        return _backend_kernels(session)


def _backend_kernels(session: Session) -> list[Kernel]:
    header, _ = session.request({"do": "kernels", "key": KEY})
    said = header["kernels"].items()
    return [Kernel.of(source, names, "the library reports no kernel") for source, names in said]


SOURCES: dict[str, KernelSource] = {
    ONEDNN: KernelSource(carries_onednn, onednn_log),
    # samples of NumPy's stand-in would name the interpreter
    SYMBOLS: KernelSource(lambda target: target.name != "reference", sampled_symbols),
    ASKED: KernelSource(_offers, _ask_backend),
}


def observe(
    target: Target,
    case: Case,
    at: int | None = None,
    sources: Iterable[str] | None = None,
) -> list[Kernel]:
    """Returns what every source that applies to the target says about the case's call.

    ``at``: its length, of a dense layer its batch; None leaves the case as it is. ``sources``: some
    of ``SOURCES``, None for all. Costs a start of the library for each source. A source without an
    answer says why in ``missing``, also where the target fails; InputError for a wrong argument
    alone.
    """
    wanted = [choice("source", name, SOURCES) for name in (SOURCES if sources is None else sources)]
    case = case if at is None else case_at(case, axis_of(case, None), at)
    question = KernelQuestion(target, case)
    kernels: list[Kernel] = []
    for name in wanted:
        if not SOURCES[name].applies(target):
            continue
        try:
            answer = SOURCES[name].observe(question)
        except TargetError as error:
            answer = Kernel(name, None, f"the target failed ({error.kind}) when it was queried")
        kernels += [answer] if isinstance(answer, Kernel) else answer
    return kernels


def by_source(kernels: Iterable[Kernel]) -> dict[str, list[str]]:
    """{source: names}; where a source could not say, its one entry is why, in brackets."""
    observed = list(kernels)
    named = {kernel.source: list(kernel.names) or [f"({kernel.missing})"] for kernel in observed}
    commands = [command for kernel in observed for command in kernel.commands]
    return named | ({BENCHDNN: commands} if commands else {})


def kernel_rows(place: Mapping[str, Any], kernels: Iterable[Kernel]) -> list[dict[str, Any]]:
    """Returns rows of the table ``kernels``; ``place``: its key columns other than ``source``."""
    names = ("source", "kernel", "missing")
    return [{**place, **{name: getattr(kernel, name) for name in names}} for kernel in kernels]
