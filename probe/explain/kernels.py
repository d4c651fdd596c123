"""Collects the kernels that a library reports: evidence beside a cause, never the cause itself.

``observe`` asks the library in a process of its own, never the one that made the results. What a
library can simply be asked is its ``Backend.kernels(spec, shapes)``; oneDNN says what it does.

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
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import TargetError
from probe.order.window import axis_of, case_at
from probe.targets import backends
from probe.targets.backends.contract import Backend
from probe.targets.launch import Session
from probe.targets.target import Target

# Between the names in ``Kernel.kernel``; no name has it.
SEPARATOR = "; "

# Under which the process has the operands loaded.
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
        """The single names; empty where ``kernel`` is None."""
        return tuple(self.kernel.split(SEPARATOR)) if self.kernel else ()

    @classmethod
    def of(cls, source: str, names: list[str], missing: str) -> Kernel:
        """The names in their order, without repetitions; ``missing`` if there is none."""
        unique = SEPARATOR.join(dict.fromkeys(names))
        return cls(source, unique, None) if unique else cls(source, None, missing)


ONEDNN = "onednn-verbose"

# The variable under its present name and those before oneDNN 2.0 and 1.0.
TALK = {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1", "MKLDNN_VERBOSE": "1"}

# ``source`` where the library failed before it answered; ``missing`` where it named no kernel.
ASKED, UNNAMED = "asked", "the library reports no kernel"
SILENT = "oneDNN printed nothing: the operator did not go through it"

_EXECUTED = re.compile(
    r"(?:onednn|dnnl|mkldnn)_verbose,(?:[\w.]+,){0,3}?exec,(?:[cg]pu\d*,)?"
    r"(?P<primitive>[a-z]\w*),(?P<implementation>[\w:+.-]*),"
)


def observe(target: Target, case: Case, at: int | None = None) -> list[Kernel]:
    """What the target's library says about the case's call, by its sources.

    ``at``: its length, of a dense layer its batch; None leaves the case as it is. Costs a start of
    the library. What has no answer says why in ``missing``, also where the target fails.
    """
    case = case if at is None else case_at(case, axis_of(case, None), at)
    backend = backends.get(target.name)
    # a library that carries oneDNN has the switch of its instructions
    carries_onednn, answers = "isa" in backend.keys, backend.kernels is not Backend.kernels
    kernels: list[Kernel] = []
    if not (carries_onednn or answers):
        return kernels
    try:
        with Session(target, extra=TALK if carries_onednn else None) as session:
            operands = {
                name: floats.to_container(array, case.dtype)
                for name, array in zip("xwb", case.operands(), strict=True)
                if array is not None
            }
            session.request({"do": "load", "key": KEY, "spec": case.spec()}, operands)
            if carries_onednn:
                mark = session.mark()
                session.request({"do": "run", "key": KEY})
                log = session.stderr_since(mark)
                kernel = Kernel.of(ONEDNN, primitives(log), SILENT)
                kernels.append(kernel._replace(commands=tuple(benchdnn(log))))
            if answers:
                said = session.request({"do": "kernels", "key": KEY})[0]["kernels"]
                kernels += [Kernel.of(name, names, UNNAMED) for name, names in said.items()]
    except TargetError as error:
        source = ASKED if kernels or not carries_onednn else ONEDNN
        kernels.append(
            Kernel(source, None, f"the target failed ({error.kind}) when it was queried")
        )
    return kernels


def primitives(log: str) -> list[str]:
    """Every executed primitive as ``convolution brg_conv_fwd:avx512_core``, in order.

    The matrix product that TensorFlow calls inside Eigen's is ``gemm_api``, without an
    implementation. Lines of another kind (info, create, the library's own log) are passed over.
    """
    executed = _EXECUTED.finditer(log)
    return [f"{match['primitive']} {match['implementation']}".strip() for match in executed]


BENCHDNN = "benchdnn"

# Its drivers, by what oneDNN's log calls the primitives.
DRIVERS = {"convolution": "conv", "matmul": "matmul", "inner_product": "ip"}


def benchdnn(log: str) -> list[str]:
    """The commands of oneDNN's own test driver that run the primitives of a log, each once.

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


def by_source(kernels: Iterable[Kernel]) -> dict[str, list[str]]:
    """{source: names}; where a source could not say, its one entry is why, in brackets."""
    observed = list(kernels)
    names = {kernel.source: list(kernel.names) or [f"({kernel.missing})"] for kernel in observed}
    commands = [command for kernel in observed for command in kernel.commands]
    return names | ({BENCHDNN: commands} if commands else {})
