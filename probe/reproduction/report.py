"""``report.md``: a bug report under the headings of the upstream's own form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from probe import floats
from probe.errors import InputError, one_of
from probe.explain import Explanation
from probe.explain.evidence import Added, Evidence
from probe.order import ways
from probe.order.tree import BIAS
from probe.reproduction import program
from probe.reproduction.emulate import formats_text
from probe.reproduction.forms import FORMS, PROMISES, PROMISES_APART
from probe.reproduction.proof import Ran
from probe.shrink import Shrunk
from probe.target import Target

MOST_SUMS = 24
"""Partial sums of an output that are written out."""


@dataclass(frozen=True)
class Elsewhere:
    """Another target that was asked: ``said`` is ``differs``, ``does not differ``, or why not.

    ``asked``: about which case.
    """

    target: str
    version: str
    said: str
    machine: str = ""
    asked: str = "as it was found"


@dataclass
class Content:
    """Everything that a report tells."""

    finding: Any
    targets: tuple[Target, Target]
    names: tuple[str, str]
    versions: tuple[str, str]
    explanation: Explanation
    evidence: Evidence | None
    script: str
    ran: Ran
    machine: dict[str, Any]
    shrunk: Shrunk | None = None
    elsewhere: Sequence[Elsewhere] = ()
    emulated: str = ""


def form_of(target: Target, name: str | None = None) -> str:
    """The name of the form: the given one, or the target's. InputError for another one."""
    if name is None:
        return target.name
    if name not in FORMS:
        raise InputError("form", name, "there is no such form", one_of(name, FORMS))
    return name


def report(content: Content, form: str) -> str:
    """The text of ``report.md``."""
    chosen = FORMS[form]
    filled = _filled(content, form)
    parts = [f"# {filled['title']}", "", f"<!-- For {chosen.tracker} -->", ""]
    for heading, name in chosen.sections:
        text = name[1:-1] if name.startswith("[") else filled[name]
        parts += [f"{chosen.level} {heading}", "", text, ""]
    return "\n".join(parts).rstrip() + "\n"


def _filled(content: Content, form: str) -> dict[str, str]:
    """Every text that a form may ask for."""
    machine = content.machine
    script = f"```python\n{content.script.rstrip()}\n```"
    output = f"```\n{content.ran.printed.rstrip()}\n```"
    summary = _summary(content)
    sections = [
        ("What is expected", _expected(content)),
        ("What happens", _actual(content)),
        ("The smallest case", _smallest(content)),
        ("Why", _cause(content)),
        ("Kernels", _kernels(content)),
        ("Elsewhere", _elsewhere(content)),
        ("What the documentation says", _promise(content, form)),
    ]
    described = "\n\n".join([summary, *(f"**{h}.** {t}" for h, t in sections if t)])
    gpu = str(machine.get("gpu") or "none: this is a CPU")
    return {
        "title": program.title(content.finding, content.targets, *_named(content)).rstrip("."),
        "summary": summary,
        "description": described,
        "script": script,
        "output": output,
        "script_and_output": f"{script}\n\nIt prints:\n\n{output}",
        "description_with_script": f"{described}\n\n{script}\n\nIt prints:\n\n{output}",
        "actual_and_cause": "\n\n".join(
            text for text in (_actual(content), _cause(content), _kernels(content)) if text
        ),
        "expected": _expected(content),
        "version": _version(content),
        "version_below": f"the one in {content.names[0]} {_version(content)}",
        "versions": _versions(content),
        "os": str(machine.get("os")),
        "platform": str(machine.get("os") or "").partition(" ")[0] or "Other / Unknown",
        "architecture": {"x86_64": "X64", "aarch64": "ARM64"}.get(
            str(machine.get("architecture")), "Other / Unknown"
        ),
        "python": str(machine.get("python")),
        "cuda": str(machine.get("cuda") or "none"),
        "gpu": gpu,
        "accelerator": "GPU" if machine.get("gpu") else "CPU",
        "runtime": f"```\n{machine.get('blas') or 'not told'}\n```",
    }


def _named(content: Content) -> tuple[list[str], tuple[str, str]]:
    return list(content.names), content.versions


def _summary(content: Content) -> str:
    finding = content.finding
    if finding.padding is not None or content.targets[0] != content.targets[1]:
        left, right = program.said(finding, content.targets)
        return f"One {finding.case.op}, computed in two ways: {left}; {right}."
    return (
        f"The same outputs of one {finding.case.op} have other bits at "
        f"{finding.vary} {finding.at} than at {finding.vary} {finding.against}."
    )


def _expected(content: Content) -> str:
    if "window" in content.explanation.causes:
        return "Both sides were taken to be the same operator."
    return (
        "The same bits: the outputs that are compared read the same inputs with the same weights "
        "on both sides."
    )


def _actual(content: Content) -> str:
    found = content.explanation
    far = "" if found.max_ulp is None else f", up to {found.max_ulp:,} ulp"
    text = f"{len(found.differing)} of {len(found.pairs.left)} compared outputs differ{far}."
    evidence = content.evidence
    if evidence is None:
        return text
    values = [
        f"{name} out{list(side.output)} = {floats.text(side.library, side.dtype)}"
        for name, side in (("left", evidence.left), ("right", evidence.right))
    ]
    return f"{text} For example {values[0]} and {values[1]}."


def _smallest(content: Content) -> str:
    finding, shrunk = content.finding, content.shrunk
    counts = finding.to_json()["not_zero"]
    not_zero = ", ".join(f"{number} in {name}" for name, number in counts.items())
    text = f"{finding.label}; operands that are not 0: {not_zero}."
    if shrunk is None:
        return text
    text += f" It was found as {shrunk.start.label}, and made smaller in {shrunk.calls} tries"
    text += " until no single one kept the difference." if shrunk.ended == "minimal" else "."
    if shrunk.near is not None:
        text += f" The nearest case without a difference: {shrunk.near.value.label}."
    return text


def _cause(content: Content) -> str:
    """Both sides' orders, and one output in full."""
    found, evidence = content.explanation, content.evidence
    causes = ", ".join(found.causes)
    if evidence is None:
        return f"{causes}."
    proof = f"Replayed in NumPy, bit for bit: {found.replayed} of {len(found.pairs.left)} outputs."
    if "window" in found.causes:
        reads = [
            f"{name} reads x at {_places(side)}"
            for name, side in (("left", evidence.left), ("right", evidence.right))
        ]
        return f"The windows differ: {reads[0]}; {reads[1]} (flat indices, `-` is padding)."
    if evidence.left.way is None or evidence.right.way is None:
        return _no_order(content) or f"{causes}: no order is known."
    words = {
        "order": "the products are added in another order",
        "rounding": ways.rounded_apart(evidence.left.way, evidence.right.way)
        or "products are rounded elsewhere",
        "precision": "products or sums are kept in another precision",
    }
    why = " and ".join(words.get(word, word) for word in evidence.cause.split("+"))
    sides = [
        f"{name}:\n\n```\n{_sums(side)}\n```"
        for name, side in (("left", evidence.left), ("right", evidence.right))
    ]
    shown = " `order.png` shows both." if content.emulated == "" else ""
    left_out = len(evidence.left.products) - len(evidence.left.way[0].leaves)
    zeros = " Products that are 0 are left out below: they add nothing." if left_out > 0 else ""
    head = f"{why[0].upper()}{why[1:]}. {proof}{shown}{zeros}"
    return "\n\n".join([head, *sides])


def _no_order(content: Content) -> str:
    """What was seen of the sides that are no sums of products."""
    found = content.explanation
    told = [
        f"on the {name}, {side.evidence}"
        for name, side in (("left", found.left), ("right", found.right))
        if side.evidence
    ]
    if not told:
        return ""
    if found.left.case.op.partition("_pool")[1]:
        return (
            "The averages are added, or rounded, in other ways. Their orders are not revealed: "
            f"{found.left.case.op} has no weights to reveal them with."
        )
    return (
        "No order of additions gives these outputs: as with algorithms that do not form the "
        f"products, such as Winograd's or an FFT. Seen {'; '.join(told)}."
    )


def _kernels(content: Content) -> str:
    """What the libraries say that they ran, of sources that know it of a side at least."""
    told = content.explanation.kernels
    sources = list(dict.fromkeys(source for side in told.values() for source in side))
    rows = []
    for source in sources:
        cells = [side.get(source, []) for side in told.values()]
        if any(_known(names) for names in cells):
            shown = ["<br>".join(f"`{name}`" for name in _known(names)) for names in cells]
            rows.append(f"| {source} | {' | '.join(cell or 'not told' for cell in shown)} |")
    if not rows:
        return ""
    head = "What the libraries themselves name as each side runs: evidence beside the cause."
    return "\n".join([head, "", "| asked by | left | right |", "| --- | --- | --- |", *rows])


def _known(names: Sequence[str]) -> list[str]:
    """The names, without what stands in brackets: why there are none."""
    return [name for name in names if not name.startswith("(")]


def _places(side: Added) -> str:
    return " ".join("-" if at < 0 else str(at) for at in side.reads or ()) or "nothing"


def _sums(side: Added) -> str:
    """The tree and its partial sums, as text."""
    assert side.way is not None
    tree, rounding = side.way
    lines = [tree.text if len(tree.text) <= 200 else f"{len(tree.leaves)} summands"]
    fused = sorted(set(rounding.fused) & set(tree.leaves))
    if fused:
        whole = len(fused) >= len([leaf for leaf in tree.leaves if leaf != BIAS])
        some = ", ".join(map(str, fused)) if len(fused) <= MOST_SUMS else f"{len(fused)} products"
        lines.append(f"fused: {'all' if whole else some}")
    if formats := formats_text(side.way, side.dtype):
        lines.append(", ".join(formats))
    if not side.sums:
        lines.append(f"= {floats.text(side.library, side.dtype)}")
    left_out = max(len(side.sums) - MOST_SUMS, 0)
    if left_out:
        lines.append(f"... {left_out} sums")
    mark = "  <- not on the other side"
    lines += [one.text + mark * (one.node in side.own) for one in side.sums[left_out:]]
    return "\n".join(lines)


def _elsewhere(content: Content) -> str:
    if not content.elsewhere:
        return ""
    rows = [
        f"| {one.target} | {one.version} | {one.machine} | {one.asked} | {one.said} |"
        for one in content.elsewhere
    ]
    return "\n".join(["", "", "| target | version | machine | case | |", "| --- " * 5 + "|", *rows])


def _version(content: Content) -> str:
    """The release, or both where they are two of one library."""
    one, two = content.versions
    same = content.names[0] == content.names[1]
    return f"{one} (left), {two} (right)" if same and one != two else one


def _promise(content: Content, form: str) -> str:
    """What is promised of rounding; of conventions nothing is said."""
    promises = PROMISES if content.targets[0] == content.targets[1] else PROMISES_APART
    if form not in promises or "window" in content.explanation.causes:
        return ""
    text, link = promises[form]
    return f"{text}: {link}"


def _versions(content: Content) -> str:
    machine = content.machine
    found = [
        f"{name} {version}, target `{target.text}`"
        for name, version, target in zip(
            content.names, content.versions, content.targets, strict=True
        )
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
    return "\n".join(f"- {line}" for line in dict.fromkeys(found))
