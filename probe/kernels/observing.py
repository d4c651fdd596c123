"""Lists the sources of evidence on what a library ran, and queries those that apply.

``SOURCES`` is the registry: a source says which targets it applies to and answers a question. A
library that can simply be asked offers ``Backend.kernels(spec, shapes)`` and needs no source here.

>>> from probe import Case, Target, kernels
>>> case = Case(op="conv1d", kernel=5, in_channels=64, filters=1, length=64)
>>> kernels.observe(Target.parse("tensorflow"), case, at=5)  # doctest: +SKIP
[Kernel(source='onednn-verbose', kernel='convolution brg_conv_fwd:avx512_core', missing=None), ...]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

from probe import backends
from probe.arguments import choice
from probe.backends.contract import Backend
from probe.case import Case
from probe.errors import TargetError
from probe.kernels import sources
from probe.kernels.sources import KEY, Kernel, KernelQuestion, load_operands
from probe.launch import Session
from probe.target import Target
from probe.window import axis_of, case_at

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
    sources.ONEDNN: KernelSource(sources.carries_onednn, sources.onednn_log),
    sources.SYMBOLS: KernelSource(sources.has_symbols, sources.sampled_symbols),
    ASKED: KernelSource(_offers, _ask_backend),
}


def observe(
    target: Target,
    case: Case,
    at: int | None = None,
    vary: str | None = None,
    seconds: float = 2.0,
    sources: Iterable[str] | None = None,
) -> list[Kernel]:
    """Returns what every source that applies to the target says about the case's call.

    ``at``: the value of the axis ``vary``; None leaves the case as it is. ``seconds``: how long the
    call is repeated to be sampled. ``sources``: some of ``SOURCES``, None for all. Costs a start of
    the library for each source. A source without an answer says why in ``missing``, also where the
    target fails; InputError for a wrong argument alone.
    """
    wanted = [choice("source", name, SOURCES) for name in (SOURCES if sources is None else sources)]
    case = case if at is None else case_at(case, axis_of(case, vary), at)
    question = KernelQuestion(target, case, seconds)
    found: list[Kernel] = []
    for name in wanted:
        if not SOURCES[name].applies(target):
            continue
        try:
            answer = SOURCES[name].observe(question)
        except TargetError as error:
            answer = Kernel(name, None, f"the target failed ({error.kind}) when it was queried")
        found += [answer] if isinstance(answer, Kernel) else answer
    return found


def by_source(found: Iterable[Kernel]) -> dict[str, list[str]]:
    """{source: names}; where a source could not say, its one entry is why, in brackets."""
    return {one.source: list(one.names) or [f"({one.missing})"] for one in found}


def kernel_rows(place: Mapping[str, Any], found: Iterable[Kernel]) -> list[dict[str, Any]]:
    """Returns rows of the table ``kernels``; ``place``: its key columns other than ``source``."""
    return [{**place, **one._asdict()} for one in found]


# First words of names that move operands, add a bias, or stand for whatever was fused.
MOVING = frozenset(
    "reorder broadcast add fusion transpose reshape slice pad concatenate convert iota "
    "PAD RESHAPE TRANSPOSE SLICE ADD Pad Reshape Transpose Slice Squeeze Unsqueeze Add Cast "
    "ReorderInput ReorderOutput".split()
)


def computing(names: Iterable[str]) -> list[str]:
    """Returns those of the names that compute sums of products."""
    return [name for name in names if name.split()[0] not in MOVING]


class Naming:
    """Asks a target for the kernels of many cases, in one process that talks; a context manager.

    What the library says of itself, without the sampled symbols. The process starts with the first
    case, and every shape is asked once: kernels are chosen by shape.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._logs, self._offers = sources.carries_onednn(target), _offers(target)
        self._session: Session | None = None
        self._known: dict[str, dict[str, list[str]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, if one was started."""
        if self._session is not None:
            self._session.close()

    def names(self, case: Case) -> dict[str, list[str]]:
        """Returns them as ``by_source`` does; {} where no source applies."""
        key = str(case.to_json())
        if key not in self._known:
            self._known[key] = by_source(self._ask(case))
        return self._known[key]

    def _started(self) -> Session:
        if self._session is None:
            self._session = Session(self.target, extra=sources.TALK if self._logs else None)
        return self._session.revive()

    def _ask(self, case: Case) -> list[Kernel]:
        if not (self._logs or self._offers):
            return []
        try:
            session = self._started()
            load_operands(session, case)
            found = [sources.logged(session)] if self._logs else []
            return found + (_backend_kernels(session) if self._offers else [])
        except TargetError as error:
            why = f"the target failed ({error.kind}) when it was queried"
            return [Kernel(sources.ONEDNN if self._logs else ASKED, None, why)]
