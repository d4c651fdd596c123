"""Writes ``report.md`` under the headings of the project's own bug form.

First the shortest script, then where it comes from, what avoids it, why, and the question. The
exact script, the listing of the replay and the machine's facts are attached, not pasted.
"""

from __future__ import annotations

from probe import floats
from probe.errors import InputError, one_of
from probe.reproduction import content, program
from probe.reproduction.content import Reproduction
from probe.reproduction.failing import Effect, Kernels
from probe.reproduction.forms import FORMS, PROMISES, PROMISES_APART
from probe.target import Target

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
    parts = [f"# {filled['title']}", "", f"<!-- For {chosen.tracker} -->", ""]
    for heading, name in chosen.sections:
        text = name[1:-1] if name.startswith("[") else filled[name]
        parts += [f"{chosen.level} {heading}", "", text, ""] if text else []
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
    sections = [
        ("Question", question(made)),
        ("The finding it came from", f"{made.model} {_finding_in_words(made)}".lstrip()),
        ("What avoids it", "\n".join(f"- {one}" for one in made.avoids)),
        ("Beyond rounding", content.beyond(made.explanation)),
        ("Why", content.cause(made)),
        ("Kernels", content.kernels(made)),
        ("Elsewhere", _table_of_others(made)),
        ("What the documentation says", _promise_of_project(made, form)),
        ("Attached", "\n".join(attached)),
    ]
    told = [(heading, " \n"[text[:2] == "- "], text) for heading, text in sections if text]
    described = "\n\n".join(f"**{heading}.**{space}{text}" for heading, space, text in told)
    gpu = str(machine.get("gpu") or "")
    machine = made.facts
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
    return {
        "title": _report_title(made).rstrip("."),
        "summary": question(made),
        "description": f"{both}\n\n{described}" if brief else described,
        "script": script,
        "output": output,
        "script_and_output": both,
        "description_with_script": f"{both}\n\n{described}",
        "actual_and_cause": "\n\n".join(
            t for t in (_finding_in_words(made), content.cause(made), content.kernels(made)) if t
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


def _report_title(made: Reproduction) -> str:
    """Returns the headline: the script's, or what reads beyond its window."""
    sides, targets = program.sides_in_words(made.finding, made.targets), made.targets
    if set(made.explanation.causes) != {"reach"} or targets[0] != targets[1]:
        return program.finding_title(made.finding, targets, list(made.names), made.versions)
    at = sides[int(made.explanation.right.reached.any())]
    what = f"{made.finding.case.op} lets NaN and infinities reach outputs that do not read them"
    return f"{made.names[0]} {made.versions[0]}: {what}, at {at}"


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
    return text + _kernels_that_ran(before.kernels or {})


def _kernels_that_ran(kernels: Kernels) -> str:
    """Returns the kernels that the library names: of both sides, or of each."""
    told = {
        side: ", ".join(f"`{n}`" for names in by.values() for n in names if n[0] != "(")
        for side, by in kernels.items()
    }
    if not any(told.values()):
        return ""
    left, right = (text or "none named" for text in told.values())
    return f"; kernels: {left}" if left == right else f"; kernels: {left} (left), {right} (right)"


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


def _table_of_others(made: Reproduction) -> str:
    if not made.elsewhere:
        return ""
    rows = [
        f"| {one.target} | {one.version} | {one.machine} | {one.asked} | {one.said} |"
        for one in made.elsewhere
    ]
    return "\n".join(["", "", "| target | version | machine | case | |", "| --- " * 5 + "|", *rows])


def _release_in_words(made: Reproduction) -> str:
    """Returns the release, or both where they are two of one library."""
    one, two = made.versions
    return f"{one} (left), {two} (right)" if _releases(made) else one


def _promise_of_project(made: Reproduction, form: str) -> str:
    """Returns what is promised of rounding; of conventions nothing is said."""
    promises = PROMISES if made.targets[0] == made.targets[1] else PROMISES_APART
    if form not in promises or "window" in made.explanation.causes:
        return ""
    text, link = promises[form]
    return f"{text}: {link}"
