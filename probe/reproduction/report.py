"""Holds what a report says (a reproduction, facts of machine and libraries, the cause), and writes
``report.md`` under the headings of the project's own bug form.

First the shortest script, then where it comes from, what avoids it, why, and the question. The
exact script, the listing of the replay and the machine's facts are attached, not pasted.
"""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe import floats, machine
from probe.case import Case
from probe.comparison import Comparison, Finding
from probe.errors import InputError, StoreError, one_of
from probe.explaining.evidence import Added, Evidence
from probe.printing import as_json
from probe.reproduction import program, proof
from probe.reproduction.failing import Effect
from probe.reproduction.program import library_title
from probe.reproduction.proof import ScriptRun
from probe.reproduction.shortest import Short
from probe.shrink import Shrunk
from probe.summation.tree import BIAS, leaf_name
from probe.target import Target

if TYPE_CHECKING:
    from probe.store.results import Results


@dataclass(frozen=True)
class FurtherTarget:
    """A further target that was run: ``said`` is ``differs``, ``does not differ``, or why not.

    ``asked``: about which case.
    """

    target: str
    version: str
    said: str
    machine: str = ""
    asked: str = "as it was found"


@dataclass
class Reproduction:
    """A finding with everything that the report says about it, proved and ready to be written.

    ``finding`` is a ``Finding``, or a padded network (``networks.Padded``). ``shrunk`` is None
    where the finding was kept as it was. ``emulated``: the text of ``emulated.py``, or empty, and
    why there is none. ``shown``: whether it prints every bit pattern that the script does.
    ``seconds``: what the proof took.
    ``before``, ``after``: what the finding did, and what the smallest case does; None for networks.
    ``kept``: whether cause and kernels are the same, None where nothing was reduced.
    ``short``: the script for reading, None where there is none. ``avoids``: what was tried to avoid
    the difference and does. ``sizes``: characters of every text that was written. ``model``: where
    in a model it was found, a sentence; empty where the case itself was given.
    """

    finding: Any
    targets: tuple[Target, Target]
    versions: tuple[str, str]
    explanation: Comparison
    evidence: Evidence | None
    script: str
    ran: ScriptRun
    facts: dict[str, Any]
    shrunk: Shrunk | None = None
    elsewhere: Sequence[FurtherTarget] = ()
    runs: int = 0
    emulated: str = ""
    not_emulated: str = ""
    shown: bool | None = None
    seconds: float = 0.0
    files: list[str] = field(default_factory=list)
    before: Effect | None = None
    after: Effect | None = None
    kept: dict[str, bool | None] | None = None
    short: Short | None = None
    avoids: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    model: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """Both sides' libraries, as their users write them."""
        left, right = map(library_title, self.targets)
        return left, right

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe reproduce --json`` prints."""
        found = self.explanation
        told = {
            "targets": [target.text for target in self.targets],
            "case": self.finding.to_json(),
            "label": self.finding.label,
            "compared": found.compared,
            "differing": len(found.differing),
            "max_ulp": found.max_ulp,
            "causes": found.causes,
            "kernels": found.kernels,
            "replayed": found.replayed,
            "calls": None if self.shrunk is None else self.shrunk.calls,
            "ended": None if self.shrunk is None else self.shrunk.ended,
            "near": near_json(self.shrunk),
            "before": self.before,
            "after": self.after,
            "kept": self.kept,
            "proof": {"status": self.ran.status, "said": self.ran.said},
            "elsewhere": self.elsewhere,
            "not_emulated": self.not_emulated or None,
            "emulated": self.shown,
            "short": self.short,
            "avoids": self.avoids,
            "files": self.files,
            "sizes": self.sizes,
        }
        plain: dict[str, Any] = as_json(told)
        return plain


def near_json(shrunk: Shrunk | None) -> dict[str, str] | None:
    """Returns the nearest case that does not fail, and the step that leads there."""
    if shrunk is None or shrunk.near is None:
        return None
    return {"case": shrunk.near.value.label, "step": shrunk.near.step}


# What a library says of itself that is written down.
FACTS = (
    *("build", "compiler", "onednn", "mode", "blas", "capability", "below", "jaxlib_version"),
    *("onnx_version", "gpu", "cuda", "cudnn", "threads"),
)


def facts_of(targets: tuple[Target, Target], facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Publishable facts of machine and libraries."""
    own = machine.facts()
    found: dict[str, Any] = {
        "os": own["os"],
        "architecture": platform.machine(),
        "cpu": own["cpu_model"],
        "cpu_vendor": own["cpu_vendor"],
        "cpu_isa": own["cpu_isa"],
        "cores": own["cores"],
        "machine": own["machine"],
        "probe": own["probe_version"],
        "python": facts[0].get("python_version"),
        "numpy": facts[0].get("numpy_version"),
    }
    emulator = proof.emulator(targets[0])
    if emulator:
        found |= {"emulated": emulator, "cpu": None, "cpu_isa": None, "cpu_vendor": None}
        found |= {"architecture": "aarch64"} if targets[0].device == "arm64" else {}
    for name in FACTS:
        if facts[0].get(name) not in (None, ""):
            found[name] = facts[0][name]
    return {
        name: (machine.publishable(value) if isinstance(value, str) else value)
        for name, value in found.items()
    }


@dataclass(frozen=True)
class StoredFinding:
    """A stored finding, its target, and the same comparison on the store's other targets."""

    finding: Finding
    target: Target
    row: int
    elsewhere: tuple[FurtherTarget, ...]


def stored_finding(path: Path, row: int | None = None) -> StoredFinding:
    """Row ``row`` of the store's ``comparisons``, as ``probe.load`` numbers them; None: the worst.

    The worst has the largest difference in units of eps * sum|x*w| (ulps explode where sums
    cancel). StoreError: no store, or nothing differs. InputError: no such row, or it agrees.
    """
    from probe.store.results import load  # what keeps nothing needs no pyarrow

    results = load(path)
    table = results.comparisons
    if row is None:
        differing = table[table["differing"] > 0]
        if not len(differing):
            raise StoreError(f"store={path}: no stored comparison differs; sweep different shapes")
        # pandas has None as NaN, which argmax would take
        worst = differing["max_scaled"].fillna(0.0)
        row = int(differing.index[int(worst.to_numpy(float).argmax())])
    if not 0 <= row < len(table):
        why = f"the store has {len(table)} comparisons"
        raise InputError("row", row, why, f"give 0 to {len(table) - 1}")
    chosen = table.iloc[row].to_dict()
    if not chosen["differing"]:
        raise InputError("row", row, "its outputs agree bit for bit", "give one that differs")
    case = stored_case(results, chosen["case_id"])
    found = Finding.of(case, chosen["vary"], int(chosen["at"]), int(chosen["against"]))
    # the same comparison on other targets and machines, in their latest runs
    same = table
    for name in ("case_id", "vary", "at", "against"):
        same = same[same[name] == chosen[name]]
    versions = results.runs.drop_duplicates("run_id").set_index("run_id")["library_version"]
    others: dict[tuple[str, str, str], FurtherTarget] = {}
    for one in same.to_dict("records"):
        version = str(versions.get(one["run_id"], ""))
        if one["run_id"] == chosen["run_id"]:
            continue
        # NaN is not equal to itself: so pandas hands over a missing number
        far = "" if one["max_ulp"] is None or one["max_ulp"] != one["max_ulp"] else one["max_ulp"]
        said = f"differs, up to {far} ulp" if one["differing"] else "does not differ"
        key = (one["target"], version, one["machine"])
        others[key] = FurtherTarget(one["target"], version, said, one["machine"])
    elsewhere = tuple(others[key] for key in sorted(others))
    return StoredFinding(found, Target.parse(chosen["target"]), row, elsewhere)


def stored_case(results: Results, case_id: str) -> Case:
    """Returns a stored case."""
    stored = results.cases.set_index("case_id")["json"][case_id]
    return Case.from_json(stored if isinstance(stored, str) else json.dumps(stored))


# Partial sums of an output that are written out.
MOST_SUMS = 24

# Products of an output that are written out.
MOST_PRODUCTS = 12


def cause(made: Reproduction) -> str:
    """Returns both sides' orders, and one output in full."""
    return cause_in_full(made.explanation, made.evidence, not made.not_emulated)


def cause_in_full(found: Comparison, evidence: Evidence | None, drawn: bool) -> str:
    """Returns the same of any comparison. ``drawn``: there is a picture of both orders."""
    causes = ", ".join(found.causes)
    if evidence is None:
        return f"{causes}."
    proof = f"Replayed in NumPy, bit for bit: {found.replayed} of {found.compared} outputs."
    if "window" in found.causes:
        reads = []
        for name, side in (("left", evidence.left), ("right", evidence.right)):
            places = " ".join("-" if at < 0 else str(at) for at in side.reads or ())
            reads.append(f"{name} reads x at {places or 'nothing'}")
        return f"The windows differ: {reads[0]}; {reads[1]} (flat indices, `-` is padding)."
    if evidence.cause == "reach":
        left, right = evidence.left, evidence.right
        name, side = ("left", left) if left.reached else ("right", right)
        place = f"out[{', '.join(map(str, side.output))}]"
        alone = side.sums[-1].text.rpartition(" = ")[2] if side.sums else "a number"
        return (
            f"On the {name} {place} adds {side.reached} to the products of its own window: that is "
            "read too, and multiplied by 0. With finite operands it is invisible; 0 * NaN and "
            f"0 * inf are NaN. Its own products add up to {alone}. {proof}"
        )
    if evidence.left.summation is None or evidence.right.summation is None:
        told = [
            f"on the {name}, {side.evidence}"
            for name, side in (("left", found.left), ("right", found.right))
            if side.evidence
        ]
        if not told:
            return f"{causes}: no order is known."
        if found.left.case.op.partition("_pool")[1]:
            return (
                "The averages are added in different orders or with different roundings. The "
                f"orders are not revealed, because {found.left.case.op} has no weights."
            )
        return (
            "No order of additions gives these outputs: as with algorithms that do not form the "
            f"products, such as Winograd's or an FFT. Seen {'; '.join(told)}."
        )
    words = {
        "alignment": "the operands begin at different memory addresses",
        "order": "the products are added in a different order",
        "rounding": evidence.left.summation.rounded_apart(evidence.right.summation)
        or "products are rounded at different points",
        "precision": "products or sums are kept in a different precision",
        "flush": "one side flushes subnormal numbers to zero that the other keeps",
    }
    why = " and ".join(words.get(word, word) for word in evidence.cause.split("+"))
    sides = [
        f"{name}:\n\n```\n{_sum_lines(side)}\n```"
        for name, side in (("left", evidence.left), ("right", evidence.right))
    ]
    shown = " `order.png` shows both." * drawn
    left_out = len(evidence.left.products) - len(evidence.left.summation.tree.leaves)
    zeros = " Products that are 0 are left out below: they add nothing." if left_out > 0 else ""
    head = f"{why[0].upper()}{why[1:]}. {proof}{shown}{zeros}"
    return "\n\n".join([head, *sides])


# Products of a sum up to which a report lists them, for a computation that anybody can check.
LISTED = 200


def beyond(found: Comparison) -> str:
    """Returns the proof that an output is beyond rounding, as a computation in exact fractions;
    empty where none is, or where it has more products than anybody reads.

    n additions and products, each off by a factor of at most 1 + u, are off by at most
    ((1 + u)^(n + 1) - 1) times the sum of magnitudes, in any order (Higham, "Accuracy and Stability
    of Numerical Algorithms", section 4.2); smaller enclosures are what found it.
    """
    if (one := found.beyond()) is None:
        return ""
    side, (position, channel) = one[0], one[1].tolist()
    given, case = side.operands, side.case
    group = channel // (case.filters // case.groups)
    x, w = given.columns[group][:, position], given.weights[:, channel]
    y = given.y[position, channel]
    values = [floats.widen(np.atleast_1d(array), case.dtype).tolist() for array in (x, w, y)]
    if given.b is not None:
        values[0].append(float(floats.widen(given.b, case.dtype)[channel]))
        values[1].append(1.0)
    if len(values[0]) > LISTED or not np.isfinite(np.concatenate(values)).all():
        return ""
    digits = floats.format_of(case.dtype).precision
    name = "left" if side is found.left else "right"
    lines = [
        "from fractions import Fraction as F",
        f"x, w, y = {values[0]}, {values[1]}, {values[2][0]!r}",
        "terms = [F(a) * F(b) for a, b in zip(x, w)]",
        f"most = ((1 + F(1, 2**{digits})) ** (len(x) + 2) - 1) * sum(map(abs, terms))",
        "print(float(abs(F(y) - sum(terms)) / most))  # above 1: no order of additions gives y",
    ]
    terms = [Fraction(a) * Fraction(b) for a, b in zip(values[0], values[1], strict=True)]
    most = ((1 + Fraction(1, 2**digits)) ** (len(terms) + 2) - 1) * sum(map(abs, terms))
    off = abs(Fraction(values[2][0]) - sum(terms))
    ratio = float(off / most) if most else float("inf")
    told = f"prints {ratio:.3g}" if ratio > 1 else f"prints {ratio:.3g}: a sharper bound found it"
    head = f"An output on the {name} is beyond rounding: no order of its additions gives it. This"
    code = "\n".join(lines)
    return f"{head} {told}:\n\n```python\n{code}\n```"


def kernels(made: Reproduction) -> str:
    """Returns what the libraries say that they ran, of sources that know it of a side at least."""
    told = made.explanation.kernels
    sources = list(dict.fromkeys(source for side in told.values() for source in side))
    rows = []
    for source in sources:
        cells = [side.get(source, []) for side in told.values()]
        if any(_without_reasons(names) for names in cells):
            shown = [
                "<br>".join(f"`{name}`" for name in _without_reasons(names)) for names in cells
            ]
            rows.append(f"| {source} | {' | '.join(cell or 'not told' for cell in shown)} |")
    if not rows:
        return ""
    head = "What the libraries themselves name as each side runs: evidence beside the cause."
    return "\n".join([head, "", "| asked by | left | right |", "| --- | --- | --- |", *rows])


def _without_reasons(names: Sequence[str]) -> list[str]:
    """Returns the names, without what stands in brackets: why there are none."""
    return [name for name in names if not name.startswith("(")]


def _sum_lines(side: Added) -> str:
    """Returns the products of a small sum, each with what it multiplies, the tree and its partial
    sums, as text."""
    assert side.summation is not None
    tree, rounding = side.summation
    known = {one.leaf: one for one in side.products}
    shown = [known[leaf] for leaf in tree.leaves if leaf in known]
    lines = []
    if len(shown) <= MOST_PRODUCTS:
        for one in shown:
            x, w = _decimals(one.x, side.dtype), _decimals(one.w, side.dtype)
            lines.append(f"{leaf_name(one.leaf)} = {x} * {w}")
        if BIAS in tree.leaves and side.bias is not None:
            lines.append(f"b = {_decimals(side.bias, side.dtype)}")
    whole = len(tree.formula) <= 200
    lines.append(f"y = {tree.formula}" if whole else f"{len(tree.leaves)} summands")
    fused = sorted(set(rounding.fused) & set(tree.leaves))
    if fused:
        whole = len(fused) >= len([leaf for leaf in tree.leaves if leaf != BIAS])
        many = len(fused) > MOST_SUMS
        some = f"{len(fused)} products" if many else ", ".join(map(leaf_name, fused))
        lines.append(f"fused: {'all' if whole else some}")
    if formats := side.summation.formats(side.dtype):
        lines.append(", ".join(formats))
    if not side.sums:
        lines.append(f"= {floats.bits_text(side.library, side.dtype)}")
    left_out = max(len(side.sums) - MOST_SUMS, 0)
    if left_out:
        lines.append(f"... {left_out} sums")
    mark = "  <- not on the other side"
    lines += [one.text + mark * (one.node in side.own) for one in side.sums[left_out:]]
    return "\n".join(lines)


def _decimals(bits: int, dtype: str) -> str:
    return floats.bits_text(bits, dtype).partition(" ")[0]


_TOLD = tomllib.loads(
    Path(__file__).with_name("templates").joinpath("forms.toml").read_text(encoding="utf-8")
)
# By the names of backends: where it goes (``tracker``), the mark of a heading (``level``), and
# ``sections``: pairs of a heading and the name of what goes under it, or a fixed text in brackets.
FORMS: dict[str, dict[str, Any]] = {
    name: _TOLD["forms"].get(one.get("like"), {}) | one for name, one in _TOLD["forms"].items()
}
# What projects promise of bits, and where; apart: of two releases, switches or processors.
PROMISES: dict[str, list[str]] = _TOLD["promises"] | {"keras": _TOLD["promises"]["tensorflow"]}
PROMISES_APART: dict[str, list[str]] = _TOLD["promises_apart"]

# Characters that GitHub takes in one form.
LIMIT = 65_536

# Characters of the exact script up to which it stands in a report that has no shorter one.
PASTED = 12_000

# Lines of a short script that stands both first and in the form's own field for code.
REPEATED = 14

# Operations whose length counts rows.
ROWS = ("matmul", "dot", "dense", "linear")

# What is not pasted.
ATTACHED = {
    "reproduce.py": "prints every differing output with its bits; exit status 1: they differ",
    "emulated.py": "both sides added up by NumPy alone, to the same bits",
    "order.png": "both trees",
    "machine.json": "versions, processor, and the bits that were measured",
}


def form_of(target: Target, name: str | None = None) -> str:
    """Returns the name of the form: the given one, or the target's. InputError for another one."""
    if name is None:
        return target.name if target.name in FORMS else "other"
    if name not in FORMS:
        raise InputError("form", name, "there is no such form", one_of(name, FORMS))
    return name


def report_text(made: Reproduction, form: str) -> str:
    """Returns the text of ``report.md``: no longer than ``LIMIT``, and no heading without a
    text."""
    chosen = FORMS[form]
    filled = _texts_of_form(made, form)
    parts = [f"# {filled['title']}", "", f"<!-- For {chosen['tracker']} -->", ""]
    for heading, name in chosen["sections"]:
        text = name[1:-1] if name.startswith("[") else filled[name]
        parts += [f"{chosen['level']} {heading}", "", text, ""] if text else []
    whole = "\n".join(parts).rstrip() + "\n"
    if len(whole) <= LIMIT:
        return whole
    # GitHub refuses a longer text altogether
    last = "\n\n(shortened here: longer than a form takes; the rest is in the attached files)\n"
    return whole[: LIMIT - len(last)] + last


def _texts_of_form(made: Reproduction, form: str) -> dict[str, str]:
    """Returns every text that a form may ask for; empty where there is nothing to say."""
    machine = made.facts
    script = "The attached `reproduce.py` (it holds its operands)."
    printed = made.ran.printed
    if made.short is not None:
        script, printed = f"```python\n{made.short.text.rstrip()}\n```", made.short.printed
    elif len(made.script) <= PASTED:
        script = f"```python\n{made.script.rstrip()}\n```"
    output = f"```\n{printed.rstrip()}\n```" if len(printed) <= PASTED else ""
    both = f"{script}\n\nIt prints:\n\n{output}" if output else script
    brief = made.short is not None and made.short.text.count("\n") <= REPEATED
    attached = [f"- `{name}`: {what}" for name, what in ATTACHED.items() if name in made.files]
    others = ["", "", "| target | version | machine | case | |", "| --- " * 5 + "|"]
    others = others if made.elsewhere else []
    others += [
        f"| {one.target} | {one.version} | {one.machine} | {one.asked} | {one.said} |"
        for one in made.elsewhere
    ]
    # what is promised is of rounding; of conventions nothing is said
    promises = PROMISES if made.targets[0] == made.targets[1] else PROMISES_APART
    told_of = form in promises and "window" not in made.explanation.causes
    promise = ": ".join(promises[form]) if told_of else ""
    sections = [
        ("Question", question(made)),
        ("The finding it came from", f"{made.model} {_finding_in_words(made)}".lstrip()),
        ("What avoids it", "\n".join(f"- {one}" for one in made.avoids)),
        ("Beyond rounding", beyond(made.explanation)),
        ("Why", cause(made)),
        ("Kernels", kernels(made)),
        ("Elsewhere", "\n".join(others)),
        ("What the documentation says", promise),
        ("Attached", "\n".join(attached)),
    ]
    told = [(heading, " \n"[text[:2] == "- "], text) for heading, text in sections if text]
    described = "\n\n".join(f"**{heading}.**{space}{text}" for heading, space, text in told)
    gpu = str(machine.get("gpu") or "")
    found = [
        f"{name} {version}, target `{target.text}`"
        for name, version, target in zip(made.names, made.versions, made.targets, strict=True)
    ]
    facts = {
        "NumPy": machine.get("numpy"),
        "Python": machine.get("python"),
        "OS": machine.get("os"),
        "CPU": machine.get("cpu"),
        "vector extension": machine.get("cpu_isa"),
        "GPU": machine.get("gpu"),
        "emulated by": machine.get("emulated"),
    }
    found += [f"{name}: {value}" for name, value in facts.items() if value]
    # the headline is the script's, or what reads beyond its window
    sides, targets = program.sides_in_words(made.finding, made.targets), made.targets
    title = program.finding_title(made.finding, targets, list(made.names), made.versions)
    if set(made.explanation.causes) == {"reach"} and targets[0] == targets[1]:
        at = sides[int(made.explanation.right.reached.any())]
        what = f"{made.finding.case.op} lets NaN and infinities reach outputs that do not read them"
        title = f"{made.names[0]} {made.versions[0]}: {what}, at {at}"
    return {
        "title": title.rstrip("."),
        "summary": question(made),
        "description": f"{both}\n\n{described}" if brief else described,
        "script": script,
        "output": output,
        "script_and_output": both,
        "description_with_script": f"{both}\n\n{described}",
        "actual_and_cause": "\n\n".join(
            t for t in (_finding_in_words(made), cause(made), kernels(made)) if t
        ),
        "expected": f"{question(made)} {_expectation(made)}".rstrip(),
        "version": _release_in_words(made),
        "version_below": f"the one in {made.names[0]} {_release_in_words(made)}",
        "versions": "\n".join(f"- {line}" for line in dict.fromkeys(found)),
        "os": str(machine.get("os")),
        "platform": str(machine.get("os") or "").partition(" ")[0] or "Other / Unknown",
        "architecture": {"x86_64": "X64", "aarch64": "ARM64"}.get(
            str(machine.get("architecture")), "Other / Unknown"
        ),
        "python": str(machine.get("python")),
        "cuda": str(machine.get("cuda") or ""),
        "gpu": gpu,
        "accelerator": gpu or f"CPU: {machine.get('cpu') or 'emulated'}",
        "runtime": f"```\n{machine['blas']}\n```" if machine.get("blas") else "",
    }


def question(made: Reproduction) -> str:
    """Returns the question to the maintainers."""
    finding, op = made.finding, made.finding.case.op
    if set(made.explanation.causes) == {"reach"}:
        return f"Should an output of {op} depend on inputs for which it has no weight?"
    if made.targets[0] != made.targets[1]:
        left, right = program.sides_in_words(finding, made.targets)
        if _releases(made):
            one, two = (f"{made.names[0]} {version}" for version in made.versions)
            return f"The bits of {op} changed between {one} and {two}. Is that intended?"
        return f"Should {op} give the same bits with {left} as with {right}?"
    if finding.padding is not None:
        left, right = program.sides_in_words(finding, made.targets)
        return f"Are {left} and {right} meant to be the same {op}?"
    part = ("the first rows", "the first rows") if op in ROWS else ("a prefix", "the prefix")
    asked = {
        "length": f"Should {op} of {part[0]} equal {part[1]} of {op}?",
        "batch": f"Should {op} of a part of a batch equal that part of {op} of the batch?",
        "filters": f"Should {op} with the first filters alone equal those filters' outputs?",
        "channels": f"Should {op} be the same where its channels are cut in two and added?",
        "layout": f"Should {op} of the same numbers be the same however they lie in memory?",
    }
    if finding.vary in asked:
        return asked[finding.vary]
    return f"Should the same outputs of one {op} be equal at every {finding.vary}?"


def _releases(made: Reproduction) -> bool:
    """Returns whether two releases of one library are compared."""
    return made.names[0] == made.names[1] and made.versions[0] != made.versions[1]


def _expectation(made: Reproduction) -> str:
    if "window" in made.explanation.causes:
        return "Both sides were taken to be the same operator."
    if _releases(made):
        return "The call and its inputs are the same in both."
    return "The outputs compared read the same inputs with the same weights on both sides."


def _finding_in_words(made: Reproduction) -> str:
    """Returns what was found, and how the case above came of it."""
    finding, shrunk, found = made.finding, made.shrunk, made.explanation
    here, far = f"{len(found.differing)} of {found.compared}", _far(found.max_ulp)
    before = made.before
    if shrunk is None or before is None:
        head = f"{finding.label}: {here} compared outputs differ, {far}"
        head = head if before is None else _effect(before)
        return f"{head}. {_expectation(made)} {_example_in_words(made)}".rstrip()
    text = f"{_effect(before)}. {_expectation(made)} "
    text += f"Reduced in {shrunk.calls} tries"
    text += (
        ", until any further step would make the difference disappear, to"
        if shrunk.ended == "minimal"
        else " to"
    )
    text += f" {finding.label} ({here}, {far}). {_example_in_words(made)}"
    kept = made.kept or {}
    if kept.get("cause") is False:
        text += f" The cause of the smaller case is different: {', '.join(found.causes)}."
    if kept.get("kernels") is False:
        text += " Different kernels run there."
    if shrunk.near is not None:
        text += f" The nearest case without a difference: {shrunk.near.value.label}."
    return text


def _effect(before: Effect) -> str:
    """Returns outputs, distances, causes and kernels in a sentence."""
    text = f"{before.label}: {before.differing:,} of {before.compared:,} compared outputs differ"
    text += f", {_far(before.max_ulp)}"
    if before.max_difference is not None:
        text += f", {before.max_difference:.3g} ({before.max_relative:.2g} of the larger value)"
    causes = ", ".join(
        f"{name} ({count:,})" if len(before.causes) > 1 else name
        for name, count in before.causes.items()
    )
    text += f"; cause: {causes}"
    # the kernels that the library names: of both sides, or of each
    named = {
        side: ", ".join(f"`{n}`" for names in by.values() for n in names if n[0] != "(")
        for side, by in (before.kernels or {}).items()
    }
    if not any(named.values()):
        return text
    left, right = (one or "none named" for one in named.values())
    return f"{text}; kernels: {left}" + (f" (left), {right} (right)" if left != right else "")


def _far(ulp: int | None) -> str:
    return "not by a number of ulps" if ulp is None else f"by up to {ulp:,} ulp"


def _example_in_words(made: Reproduction) -> str:
    """Returns one output on both sides."""
    evidence = made.evidence
    if evidence is None:
        return ""
    values = [
        f"out{list(side.output)} = {floats.bits_text(side.library, side.dtype)}"
        for side in (evidence.left, evidence.right)
    ]
    sides = program.sides_in_words(made.finding, made.targets)
    return f"There {values[0]} at {sides[0]} and {values[1]} at {sides[1]}."


def _release_in_words(made: Reproduction) -> str:
    """Returns the release, or both where they are two of one library."""
    one, two = made.versions
    return f"{one} (left), {two} (right)" if _releases(made) else one
