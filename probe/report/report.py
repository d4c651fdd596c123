"""Holds what a report says (a reproduction, facts of machine and libraries, the cause), and writes
``report.md`` under the headings of a bug form: a library's project's (``templates/forms.toml``), or
that of a file, GitHub's form or Markdown, whose headings are filled by what they ask for. What
nothing here can answer is left open, and says so.

First the shortest script, then where it comes from, what avoids it, why, and the question. The
exact script, the listing of the replay and the machine's facts are attached, not pasted.
"""

from __future__ import annotations

import platform
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.arguments import not_waiting
from probe.case.errors import InputError, one_of
from probe.explain.comparison import Comparison
from probe.explain.evidence import Added, Evidence
from probe.explain.kernels import BENCHDNN
from probe.explain.verdict import BUG, Verdict
from probe.order.tree import BIAS, leaf_name
from probe.report import program, proof
from probe.report.program import Short, library_title
from probe.report.proof import ScriptRun
from probe.report.shrink import Shrunk
from probe.sweep.printing import as_json
from probe.targets import machine
from probe.targets.launch import library_variables
from probe.targets.target import Target


@dataclass(frozen=True)
class ReportWords:
    """What a report says of its own kind of finding.

    ``asks``: the question to the maintainers. ``holder``: the script whose arrays the lines of the
    exact value use, empty where it has none. ``kernels``: of both sides, as the libraries name
    them. ``windows``: whether the sides read different inputs, of which projects promise nothing.
    """

    title: str
    story: str
    asks: str
    expectation: str
    why: str
    holder: str = ""
    kernels: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    windows: bool = False


@dataclass(kw_only=True)
class Reported(ABC):
    """Two sides that were run, proved by a script, and what a report says of them in words: the
    report of a case (``Reproduction``), or of an operation of a model.

    ``short``: the script for reading, None where there is none. ``avoids``: what was tried to avoid
    the difference and does. ``sizes``: characters of every text that was written. ``model``: where
    in a model it was found, a sentence; empty where the case itself was given. ``times``: fresh
    processes that ran the script. ``environment``: what the library's own script says of versions.
    ``first_release``: the first affected, where it was searched for. ``further``: files that
    are written too, by name. ``arrays``: what stands beside the script; too much for its text.
    """

    targets: tuple[Target, Target]
    versions: tuple[str, str]
    script: str
    ran: ScriptRun
    verdict: Verdict
    facts: dict[str, Any]
    evidence: Evidence | None = None
    files: list[str] = field(default_factory=list)
    short: Short | None = None
    avoids: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    model: str = ""
    times: int = 3
    environment: str = ""
    first_release: str = ""
    further: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @abstractmethod
    def words(self) -> ReportWords:
        """What the report says in the words of its own kind of finding."""

    @abstractmethod
    def sides_in_words(self) -> tuple[str, str]:
        """What each side is, below its picture."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What ``machine.json`` says of the difference, beside what it says of every report."""

    @property
    def names(self) -> tuple[str, str]:
        """Both sides' libraries, as their users write them."""
        left, right = map(library_title, self.targets)
        return left, right

    @property
    def drawn(self) -> bool:
        """Whether both orders can be drawn; a report is whole without them."""
        sides = self.evidence and (self.evidence.left.summation, self.evidence.right.summation)
        return bool(sides and all(sides)) and find_spec("matplotlib") is not None


@dataclass(frozen=True)
class Effect:
    """What a finding does.

    ``causes``: differing outputs by cause; where none differs, compared outputs by what sets their
    sums apart. ``max_difference`` and ``max_relative`` (to the larger of the two): None where no
    difference is a number.
    """

    label: str
    compared: int
    differing: int
    max_ulp: int | None
    max_difference: float | None
    max_relative: float | None
    causes: dict[str, int]

    @property
    def cause(self) -> str | None:
        """That of most outputs; None where nothing sets the two sides apart."""
        return max(self.causes, key=lambda name: self.causes[name], default=None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"kernels": None, "cause": self.cause}


@dataclass(kw_only=True)
class Reproduction(Reported):
    """A finding with everything that the report says about it, proved and ready to be written.

    ``shrunk`` is None where the finding was kept as it was. ``emulated``: the text of
    ``emulated.py``, or empty, and why there is none. ``shown``: whether it prints every bit pattern
    that the script does. ``seconds``: what the proof took.
    ``before``, ``after``: what the finding did, and what the smallest case does; None for networks.
    ``kept``: whether the cause is the same, None where nothing was reduced.
    """

    finding: Any
    explanation: Comparison
    shrunk: Shrunk | None = None
    runs: int = 0
    emulated: str = ""
    not_emulated: str = ""
    shown: bool | None = None
    seconds: float = 0.0
    before: Effect | None = None
    after: Effect | None = None
    kept: dict[str, bool | None] | None = None

    def words(self) -> ReportWords:
        causes = self.explanation.causes
        title = program.finding_title(self.finding, self.targets, list(self.names), self.versions)
        if set(causes) == {"reach"} and self.targets[0] == self.targets[1]:
            at = self.sides_in_words()[int(self.explanation.right.reached.any())]
            what = "lets NaN and infinities reach outputs that do not read them"
            title = f"{self.names[0]} {self.versions[0]}: {self.finding.case.op} {what}, at {at}"
        return ReportWords(
            *(title, _finding_in_words(self), question(self), _expectation(self)),
            cause_in_full(self.explanation, self.evidence, not self.not_emulated),
            # the shorter script has these lines, where it asserts what they say
            "" if self.short is not None and "exact = " in self.short.text else "`reproduce.py`",
            self.explanation.kernels,
            "window" in causes,
        )

    @property
    def drawn(self) -> bool:
        # trees do not set windows apart, nor what reaches an output
        return not {"window", "reach"} & set(self.explanation.causes) and super().drawn

    def sides_in_words(self) -> tuple[str, str]:
        left, right = program.sides_in_words(self.finding, self.targets)
        return left, right

    def about(self) -> dict[str, Any]:
        variables = [library_variables(target) for target in self.targets]
        kernels = {"kernels": self.explanation.kernels}
        return {"variables": variables} | counts_json(self.finding, self.explanation) | kernels

    def to_json(self) -> dict[str, Any]:
        effects = (self.before, self.after, self.kept)
        answer: dict[str, Any] = as_json(
            {"targets": [target.text for target in self.targets], "label": self.finding.label}
            | counts_json(self.finding, self.explanation)
            | reduction_json(self.shrunk, *effects)
            | {
                "bug_or_rounding": self.verdict.to_json(),
                "kernels": self.explanation.kernels,
                "replayed": self.explanation.replayed,
                "proof": {"status": self.ran.status, "said": self.ran.said},
                "not_emulated": self.not_emulated or None,
                "emulated": self.shown,
                "short": self.short,
                "avoids": self.avoids,
                "files": self.files,
                "sizes": self.sizes,
            }
        )
        return answer


def counts_json(finding: Any, explanation: Comparison) -> dict[str, Any]:
    """A finding, and how many of its outputs differ: as every report says it."""
    return {
        "case": finding.to_json(),
        "compared": explanation.compared,
        "differing": len(explanation.differing),
        "max_ulp": explanation.max_ulp,
        "causes": explanation.causes,
    }


def reduction_json(
    shrunk: Shrunk | None,
    before: Effect | None,
    after: Effect | None,
    kept: Mapping[str, bool | None] | None,
) -> dict[str, Any]:
    """What reducing came to; ``shrunk`` is None where nothing was reduced."""
    near = shrunk and shrunk.near
    return {
        "calls": shrunk and shrunk.calls,
        "ended": shrunk and shrunk.ended,
        "near": near and {"case": near.value.label, "step": near.step},
        "before": before,
        "after": after,
        "kept": kept,
    }


# What a library says of itself that is written down.
FACTS = (
    *("build", "compiler", "onednn", "mode", "blas", "capability", "below", "jaxlib_version"),
    *("onnx_version", "gpu", "cuda", "cudnn", "threads"),
)


def facts_of(
    targets: tuple[Target, Target], facts: Sequence[dict[str, Any]], emulator: str | None
) -> dict[str, Any]:
    """Publishable facts of machine and libraries. ``emulator``: of the processor; None: nothing."""
    machine_facts = machine.facts()
    published: dict[str, Any] = {
        "os": machine_facts["os"],
        "architecture": platform.machine(),
        "cpu": machine_facts["cpu_model"],
        "cpu_vendor": machine_facts["cpu_vendor"],
        "cpu_isa": machine_facts["cpu_isa"],
        "cores": machine_facts["cores"],
        "machine": machine_facts["machine"],
        "probe": machine_facts["probe_version"],
        "python": facts[0].get("python_version"),
        "numpy": facts[0].get("numpy_version"),
    }
    if emulator:
        published |= {"emulated": emulator, "cpu": None, "cpu_isa": None, "cpu_vendor": None}
        published |= {"architecture": "aarch64"} if targets[0].device == "arm64" else {}
    published |= {name: facts[0][name] for name in FACTS if facts[0].get(name) not in (None, "")}
    return {
        name: (machine.publishable(value) if isinstance(value, str) else value)
        for name, value in published.items()
    }


# Partial sums of an output that are written out.
MOST_SUMS = 24

# Products of an output that are written out.
MOST_PRODUCTS = 12


# A folder without a picture looked as if there were nothing to draw.
NO_PICTURE = "`order.png` is left out: Matplotlib is not installed (pip install matplotlib)."


def cause_in_full(comparison: Comparison, evidence: Evidence | None, drawn: bool) -> str:
    """Both sides' orders, and one output in full. ``drawn``: a picture shows the orders."""
    causes = ", ".join(comparison.causes)
    if evidence is None:
        return f"{causes}."
    left, right = evidence.left, evidence.right
    replayed = f"{comparison.replayed} of {comparison.compared} outputs"
    proof = f"Replayed in NumPy, bit for bit: {replayed}."
    if "window" in comparison.causes:
        reads = []
        for name, side in (("left", left), ("right", right)):
            places = " ".join("-" if at < 0 else str(at) for at in side.reads or ())
            reads.append(f"{name} reads x at {places or 'nothing'}")
        return f"The windows differ: {reads[0]}; {reads[1]} (flat indices, `-` is padding)."
    if evidence.cause == "reach":
        name, side = ("left", left) if left.reached else ("right", right)
        place = f"out[{', '.join(map(str, side.output))}]"
        alone = side.sums[-1].text.rpartition(" = ")[2] if side.sums else "a number"
        return (
            f"On the {name} {place} adds {side.reached} to the products of its own window: that is "
            "read too, and multiplied by 0. With finite operands it is invisible; 0 * NaN and "
            f"0 * inf are NaN. Its own products add up to {alone}. {proof}"
        )
    if left.summation is None or right.summation is None:
        seen = [
            f"on the {name}, {run.evidence}"
            for name, run in (("left", comparison.left), ("right", comparison.right))
            if run.evidence
        ]
        if not seen:
            return f"{causes}: no order is known."
        op = comparison.left.case.op
        if "_pool" in op:
            return (
                "The averages are added in different orders or with different roundings. The "
                f"orders are not revealed, because {op} has no weights."
            )
        return (
            "No order of additions gives these outputs: as with algorithms that do not form the "
            f"products, such as Winograd's or an FFT. Seen {'; '.join(seen)}."
        )
    words = {
        "alignment": "the operands begin at different memory addresses",
        "order": "the products are added in a different order",
        "rounding": left.summation.rounded_apart(right.summation)
        or "products are rounded at different points",
        "precision": "products or sums are kept in a different precision",
        "flush": "one side flushes subnormal numbers to zero that the other keeps",
    }
    why = " and ".join(words.get(word, word) for word in evidence.cause.split("+"))
    shown = " `order.png` shows both." * drawn
    shown += "" if drawn or find_spec("matplotlib") else f" {NO_PICTURE}"
    if len(left.products) > len(left.summation.tree.leaves):
        shown += " Products that are 0 are left out below: they add nothing."
    sums = [
        f"{name}:\n\n```\n{_sum_lines(side)}\n```"
        for name, side in (("left", left), ("right", right))
    ]
    return "\n\n".join([f"{why[0].upper()}{why[1:]}. {proof}{shown}", *sums])


def exact_value(verdict: Verdict, script: str = "") -> str:
    """The exact value of an output, in three lines of Python, with both sides beside it.

    ``script``: which script holds the arrays x, w and b of these lines; empty where a report shows
    no arrays.
    """
    if verdict.sides is None:
        return ""
    left, right = verdict.sides
    lines = []
    if left.source and left.source == right.source and script:
        code = ["from fractions import Fraction", f"terms = {left.source}"]
        code.append("print(float(sum(terms)))")
        head = f"With the arrays of {script}:"
        lines = [head, "", "```python", *code, "```", ""]
    lines += ["| side | result | exact value | apart | rounding, at the most |", "| --- " * 5 + "|"]
    lines += [
        f"| {name} | `{side.y!r}` | `{float(side.exact)!r}` | {floats.rounded_text(side.ulps)} ulp "
        f"| {floats.rounded_text(side.most)} ulp |"
        for name, side in (("left", left), ("right", right))
    ]
    return "\n".join(lines)


# How versions are asked for: arguments of Python, by library; what is said is pasted as it is.
ENVIRONMENT_COMMANDS = {
    "torch": ["-m", "torch.utils.collect_env"],
    "jax": ["-c", "import jax; jax.print_environment_info()"],
    "tensorflow": [
        "-c",
        "import tensorflow as tf, keras; print('tf.version.GIT_VERSION', tf.version.GIT_VERSION); "
        "print('tf.version.VERSION', tf.version.VERSION); print('keras', keras.__version__)",
    ],
}
ENVIRONMENT_COMMANDS["keras"] = ENVIRONMENT_COMMANDS["tensorflow"]

# Lines that say which machine it was, or nothing.
_UNSAID = re.compile(
    r"uname_result|^Vulnerab|^Hypervisor|^Python platform|Could not collect|: N/A$"
    r"|\(host\)|\(user\)|^\S*\.\.\./"
)


def library_environment(target: Target) -> str:
    """The versions as the library's own script prints them, which its form asks for; or nothing."""
    arguments = ENVIRONMENT_COMMANDS.get(target.name)
    if arguments is None:
        return ""
    ran = proof.run_python(target, arguments)
    lines = map(machine.publishable, ran.printed.splitlines())
    versions = "\n".join(line.rstrip() for line in lines if not _UNSAID.search(line)).strip()
    return versions if ran.status == 0 else ""


def kernels(sides: dict[str, dict[str, list[str]]]) -> str:
    """A table of the kernels that the libraries name; sources that know none are left out."""
    rows = []
    sources = (source for side in sides.values() for source in side if source != BENCHDNN)
    for source in dict.fromkeys(sources):
        cells = [  # in brackets stands why a source names none
            "<br>".join(f"`{name}`" for name in side.get(source, []) if name[:1] != "(")
            for side in sides.values()
        ]
        if any(cells):
            rows.append(f"| {source} | {' | '.join(cell or 'not told' for cell in cells)} |")
    if not rows:
        return ""
    head = "What the libraries themselves name as each side runs: evidence beside the cause."
    return "\n".join([head, "", "| asked by | left | right |", "| --- | --- | --- |", *rows])


def _sum_lines(side: Added) -> str:
    """The products of a small sum, each with what it multiplies, the tree and its partial
    sums, as text."""
    assert side.summation is not None
    tree, rounding = side.summation

    def decimal(bits: int) -> str:
        return floats.bits_text(bits, side.dtype).partition(" ")[0]

    products = {product.leaf: product for product in side.products}
    shown = [products[leaf] for leaf in tree.leaves if leaf in products]
    lines = []
    if len(shown) <= MOST_PRODUCTS:
        lines += [f"{leaf_name(p.leaf)} = {decimal(p.x)} * {decimal(p.w)}" for p in shown]
        if BIAS in tree.leaves and side.bias is not None:
            lines.append(f"b = {decimal(side.bias)}")
    short = len(tree.formula) <= 200
    lines.append(f"y = {tree.formula}" if short else f"{len(tree.leaves)} summands")
    if fused := sorted(set(rounding.fused) & set(tree.leaves)):
        fused_names = ", ".join(map(leaf_name, fused))
        if len(fused) >= len(set(tree.leaves) - {BIAS}):
            fused_names = "all"
        elif len(fused) > MOST_SUMS:
            fused_names = f"{len(fused)} products"
        lines.append(f"fused: {fused_names}")
    if formats := side.summation.formats(side.dtype):
        lines.append(", ".join(formats))
    if not side.sums:
        lines.append(f"= {floats.bits_text(side.library, side.dtype)}")
    if (left_out := max(len(side.sums) - MOST_SUMS, 0)) > 0:
        lines.append(f"... {left_out} sums")
    mark = "  <- not on the other side"
    lines += [
        line.text + mark * (line.node in side.unshared_nodes) for line in side.sums[left_out:]
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class Form:
    """``name``: whose documentation is quoted. ``tracker``: where it goes. ``level``: the mark of a
    heading. ``sections``: pairs of a heading and the name of what goes under it, or a fixed text in
    brackets."""

    name: str
    tracker: str
    level: str
    sections: Sequence[tuple[str, str]]


_TEXTS = tomllib.loads(
    Path(__file__).with_name("templates").joinpath("forms.toml").read_text(encoding="utf-8")
)


# By the names of backends.
FORMS: dict[str, Form] = {}
for _name, _entry in _TEXTS["forms"].items():
    _whole: dict[str, Any] = _TEXTS["forms"].get(_entry.get("like"), {}) | _entry
    _sections = [(heading, source) for heading, source in _whole["sections"]]
    FORMS[_name] = Form(_name, _whole["tracker"], _whole["level"], _sections)
# What projects promise of bits, and where; apart: of two releases, switches or processors.
PROMISES: dict[str, list[str]] = _TEXTS["promises"] | {"keras": _TEXTS["promises"]["tensorflow"]}
PROMISES_APART: dict[str, list[str]] = _TEXTS["promises_apart"]


def form_of(target: Target, name: str | None = None) -> Form:
    """A form: of that name, of that file (.md, .yml, .yaml), or the target's own.

    InputError: there is no such form, or the file has no headings.
    """
    default_name = target.name if target.name in FORMS else "other"
    if name is None or name in FORMS:
        return FORMS[name or default_name]
    path = Path(name)
    if path.suffix not in (".md", ".yml", ".yaml"):
        todo = f"{one_of(name, FORMS)}; or give a form's file (.md, .yml)"
        raise InputError("form", name, "there is no such form", todo)
    try:
        text = not_waiting("form", path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InputError("form", name, why, "give a form's file that can be read") from None
    sections = list(markdown_headings(text) if path.suffix == ".md" else form_fields(text))
    if not sections:
        raise InputError("form", name, "it has no headings", "give an issue form, or Markdown")
    if not any(source == "script_and_output" for _, source in sections):
        described = "description_with_script"  # nothing else asks for the script
        sections = [(h, described if s == "description" else s) for h, s in sections]
    return Form(default_name, f"the tracker of {path.name}", "###", sections)


# What a heading asks for, by its words: the first that fits.
ASKS = (
    (r"expected", "expected"),
    (r"reproduc|standalone|sample|steps|code example", "script_and_output"),
    (r"\blogs?\b|error message|traceback", "output"),
    (r"environment|versions|system info|setup|collect_env", "versions"),
    (r"python version", "python"),
    (r"cuda|cudnn", "cuda"),
    (r"\bgpu|accelerator|device", "accelerator"),
    (r"\bos\b|platform|operating", "os"),
    (r"architecture", "architecture"),
    (r"execution provider", "[Default CPU]"),
    (r"version|release|commit", "version"),
    (r"descri|bug|issue|problem|behaviou?r|happen|summary|current|question", "description"),
    (r"additional|context|else|info", "summary"),
)

# What is chosen from a list, by the words of its heading.
CHOICES = (
    (r"type", ("Bug", "bug")),
    (r"nightly|latest", ("No",)),
    (r"custom code", ("Yes",)),
    (r"source|install", ("binary", "pip", "Released Package")),
    (r"provider", ("Default CPU", "CPU")),
    (r"api|language", ("Python",)),
    (r"platform|\bos\b", ("Linux",)),
    (r"architecture", ("X64", "x86_64", "x64")),
)

OPEN = "[(left open: probe can't answer this)]"


def _asked(heading: str) -> str:
    words = heading.lower()
    return next((source for pattern, source in ASKS if re.search(pattern, words)), OPEN)


def markdown_headings(text: str) -> list[tuple[str, str]]:
    """Headings of a template: lines that begin with ``#``, or are bold as a whole."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    lines = re.findall(r"^(?:#+\s+(.+?)|\*\*(.+?)\*\*:?)\s*$", text, re.MULTILINE)
    headings = [(first or second).strip(" #:") for first, second in lines]
    return [(heading, _asked(heading)) for heading in headings]


def form_fields(text: str) -> list[tuple[str, str]]:
    """Fields of GitHub's form: their labels in their order. Of the file's YAML only what a form's
    schema has: ``type``, ``label``, and the ``options`` of a list."""
    sections = []
    for block in re.split(r"^\s*-\s+type:", text, flags=re.MULTILINE)[1:]:
        kind = block.split(None, 1)[0].strip("\"'")
        label = re.search(r"^\s*label:\s*(.+?)\s*$", block, re.MULTILINE)
        if kind in ("markdown", "checkboxes") or label is None:
            continue
        heading = label[1].strip("\"'")
        source = _asked(heading)
        if kind == "dropdown":
            listed = block.partition("options:")[2]
            options = [
                o.strip("\"' ") for o in re.findall(r"^\s*-\s+(.+?)\s*$", listed, re.MULTILINE)
            ]
            choices = (o for pattern, o in CHOICES if re.search(pattern, heading.lower()))
            chosen = next((o for o in next(choices, ()) if o in options), None)
            source = f"[{chosen}]" if chosen else f"[(choose: {', '.join(options)})]"
        sections.append((heading, source))
    return sections


# Characters that GitHub takes in one form.
LIMIT = 65_536

# Characters of the exact script up to which it stands in a report without a short script.
PASTED = 12_000

# Lines of a short script that stands both first and in the form's own field for code.
REPEATED = 14

# Operations whose length counts rows.
ROWS = ("matmul", "dot", "dense", "linear")

# Arrays that are too large for a script's text.
OPERANDS = "operands.npz"

# With probe's version, and the number of processes.
MADE_BY = (
    "This report was made by a program, probe {}: it ran both sides, reduced the case, wrote this "
    "text from what it measured, and ran the script in {} fresh processes. No language model took "
    "part."
)

# What is not pasted.
ATTACHED = {
    "reproduce.py": "holds its data, prints what differs, and asserts what the verdict says",
    "emulated.py": "both sides added up by NumPy alone, to the same bits",
    "order.png": "both trees",
    "machine.json": "versions, processor, and the bits that were measured",
    "model.py": "the model that it was found in",
    OPERANDS: "what the script reads",
}


def report_text(repro: Reported, form: Form) -> str:
    """The text of ``report.md``: no longer than ``LIMIT``, and no heading without a text."""
    filled = _texts_of_form(repro, form.name)
    parts = [f"# {filled['title']}", "", f"<!-- For {form.tracker} -->", ""]
    for heading, name in form.sections:
        text = name[1:-1] if name.startswith("[") else filled[name]
        parts += [f"{form.level} {heading}", "", text, ""] if text else []
    whole = "\n".join(parts).rstrip() + "\n"
    if len(whole) <= LIMIT:
        return whole
    # GitHub refuses a longer text altogether
    last = "\n\n(shortened here: longer than a form takes; the rest is in the attached files)\n"
    return whole[: LIMIT - len(last)] + last


def _texts_of_form(repro: Reported, form: str) -> dict[str, str]:
    """Every text that a form may ask for; empty where there is nothing to say."""
    targets, facts, short, words = repro.targets, repro.facts, repro.short, repro.words()
    script = "The attached `reproduce.py` (it holds its operands)."
    if repro.arrays:
        size = sum(array.nbytes for array in repro.arrays.values()) >> 20
        script = f"The attached `reproduce.py`, with `{OPERANDS}`: {size} MiB are no text."
    if short is not None or len(repro.script) <= PASTED:
        script = f"```python\n{(short.text if short else repro.script).rstrip()}\n```"
    printed = short.printed if short else repro.ran.printed
    output = f"```\n{printed.rstrip()}\n```" if len(printed) <= PASTED else ""
    both = f"{script}\n\nIt prints:\n\n{output}" if output else script
    # what is promised is of rounding; of conventions nothing is said
    promises = PROMISES if targets[0] == targets[1] else PROMISES_APART
    promised = form in promises and not words.windows
    counts = f"of the compared outputs: {repro.verdict.counts}"
    ends = "; ".join(filter(None, (repro.verdict.numbers, counts, repro.verdict.threads)))
    verdict = f"**Verdict: {repro.verdict.says}.** {ends[0].upper()}{ends[1:]}."
    asks, table = words.asks, kernels(words.kernels)
    exact, driver = exact_value(repro.verdict, words.holder), _benchdnn_lines(words.kernels)
    ported = f"\n\n```python\n{repro.verdict.port}\n```" if repro.verdict.port else ""
    ported = f"On the right this reads what the left side reads:{ported}" * bool(ported)
    sections = {
        "Exact value": exact,
        "Question": asks if repro.verdict.what != BUG else "",
        "The finding it came from": f"{repro.model} {words.story}".lstrip(),
        "What avoids it": "\n".join(f"- {way}" for way in repro.avoids),
        "Why": words.why,
        "Kernels": table,
        "benchdnn": driver,
        "What the documentation says": ": ".join(promises[form]) if promised else "",
        "The same windows": ported,
        "First release affected": repro.first_release,
        "Attached": "\n".join(
            f"- `{name}`: {what}" for name, what in ATTACHED.items() if name in repro.files
        ),
        "How this report was made": MADE_BY.format(facts.get("probe"), repro.times),
    }
    described = "\n\n".join(
        f"**{heading}.**" + ("\n" if text[:2] in ("- ", "| ", "Wi") else " ") + text
        for heading, text in sections.items()
        if text
    )
    brief = short is not None and short.text.count("\n") <= REPEATED
    release = repro.versions[0]
    if _releases(repro):
        release = f"{release} (left), {repro.versions[1]} (right)"
    versions = [
        f"{name} {version}, target `{target.text}`"
        for name, version, target in zip(repro.names, repro.versions, targets, strict=True)
    ]
    named = [("NumPy", "numpy"), ("Python", "python"), ("OS", "os"), ("CPU", "cpu")]
    named += [("vector extension", "cpu_isa"), ("GPU", "gpu"), ("emulated by", "emulated")]
    versions += [f"{word}: {facts[name]}" for word, name in named if facts.get(name)]
    architectures = {"x86_64": "X64", "aarch64": "ARM64"}
    gpu = str(facts.get("gpu") or "")
    return {
        "title": words.title.rstrip("."),
        "summary": f"{verdict} {asks}",
        "description": f"{verdict}\n\n{both}\n\n{described}"
        if brief
        else f"{verdict}\n\n{described}",
        "script": script,
        "output": output,
        "script_and_output": f"{both}\n\n{driver}".rstrip(),
        "description_with_script": f"{verdict}\n\n{both}\n\n{described}",
        "actual_and_cause": "\n\n".join(filter(None, (words.story, exact, words.why, table))),
        "expected": f"{asks} {words.expectation}".rstrip(),
        "version": release,
        "version_below": f"the one in {repro.names[0]} {release}",
        "versions": "\n".join(f"- {line}" for line in dict.fromkeys(versions))
        + (f"\n\n```\n{repro.environment}\n```" if repro.environment else ""),
        "os": str(facts.get("os")),
        "platform": str(facts.get("os") or "").partition(" ")[0] or "Other / Unknown",
        "architecture": architectures.get(str(facts.get("architecture")), "Other / Unknown"),
        "python": str(facts.get("python")),
        "cuda": str(facts.get("cuda") or ""),
        "gpu": gpu,
        "accelerator": gpu or f"CPU: {facts.get('cpu') or 'emulated'}",
        "runtime": f"```\n{facts['blas']}\n```" if facts.get("blas") else "",
    }


def _benchdnn_lines(sides: dict[str, dict[str, list[str]]]) -> str:
    """oneDNN's maintainers ask for its own driver's command first."""
    lines = list(dict.fromkeys(line for side in sides.values() for line in side.get(BENCHDNN, [])))
    code = "\n".join(["```", *lines, "```"])
    return f"The primitives by themselves, from oneDNN's verbose log:\n\n{code}" if lines else ""


def question(repro: Reproduction) -> str:
    finding, op = repro.finding, repro.finding.case.op
    if set(repro.explanation.causes) == {"reach"}:
        return f"Should an output of {op} depend on inputs for which it has no weight?"
    left, right = program.sides_in_words(finding, repro.targets)
    if _releases(repro):
        old, new = (f"{repro.names[0]} {version}" for version in repro.versions)
        return f"The bits of {op} changed between {old} and {new}. Is that intended?"
    if repro.targets[0] != repro.targets[1]:
        return f"Should {op} give the same bits with {left} as with {right}?"
    if finding.padding is not None:
        return f"Are {left} and {right} meant to be the same {op}?"
    part, same = ("the first rows",) * 2 if op in ROWS else ("a prefix", "the prefix")
    questions = {
        "length": f"Should {op} of {part} equal {same} of {op}?",
        "batch": f"Should {op} of a part of a batch equal that part of {op} of the batch?",
        "filters": f"Should {op} with the first filters alone equal those filters' outputs?",
        "channels": f"Should {op} be the same where its channels are cut in two and added?",
        "layout": f"Should {op} of the same numbers be the same however they lie in memory?",
    }
    default_question = f"Should the same outputs of one {op} be equal at every {finding.vary}?"
    return questions.get(finding.vary, default_question)


def _releases(repro: Reported) -> bool:
    return repro.names[0] == repro.names[1] and repro.versions[0] != repro.versions[1]


def _expectation(repro: Reproduction) -> str:
    if "window" in repro.explanation.causes:
        return "Both sides were taken to be the same operator."
    if _releases(repro):
        return "The call and its inputs are the same in both."
    return "The outputs compared read the same inputs with the same weights on both sides."


def _finding_in_words(repro: Reproduction) -> str:
    """The finding, and how the case above came of it."""
    finding, shrunk, explanation = repro.finding, repro.shrunk, repro.explanation
    counts, far = (
        f"{len(explanation.differing)} of {explanation.compared}",
        _far(explanation.max_ulp),
    )
    example = ""
    if repro.evidence is not None:
        left, right = (
            f"out{list(side.output)} = {floats.bits_text(side.library, side.dtype)} at {words}"
            for side, words in zip(
                (repro.evidence.left, repro.evidence.right),
                program.sides_in_words(finding, repro.targets),
                strict=True,
            )
        )
        example = f"There {left} and {right}."
    head = f"{finding.label}: {counts} compared outputs differ, {far}"
    if (before := repro.before) is not None:
        head = (
            f"{before.label}: {before.differing:,} of {before.compared:,} compared outputs differ"
        )
        head += f", {_far(before.max_ulp)}"
        if before.max_difference is not None:
            largest = f"{before.max_difference:.3g} ({before.max_relative:.2g} of the larger value)"
            head += f", {largest}"
        causes = ", ".join(
            f"{name} ({count:,})" if len(before.causes) > 1 else name
            for name, count in before.causes.items()
        )
        head += f"; cause: {causes}"
    text = f"{head}. {_expectation(repro)} "
    if shrunk is None or repro.before is None:
        return f"{text}{example}".rstrip()
    text += f"Reduced in {shrunk.calls} tries"
    if shrunk.ended == "minimal":
        text += ", until any further step would make the difference disappear,"
    text += f" to {finding.label} ({counts}, {far}). {example}"
    kept = repro.kept or {}
    if kept.get("cause") is False:
        text += f" The cause of the smaller case is different: {', '.join(explanation.causes)}."
    if shrunk.near is not None:
        text += f" The nearest case without a difference: {shrunk.near.value.label}."
    return text


def _far(ulp: int | None) -> str:
    return "not by a number of ulps" if ulp is None else f"by up to {ulp:,} ulp"
