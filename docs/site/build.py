"""Builds the site: docs, notebooks with their saved outputs, API reference, pictures, explorer.

    python docs/site/build.py [--out build/site]

The pages of this version go to their own folder under ``out``, beside those of versions that were
built there before; every page offers the others, and ``out``'s index.html leads to the newest.
MkDocs with Material and mkdocstrings (the extra ``site``) makes static pages that open from files.
Everything is staged in ``build/site-pages`` first: pages keep their places, so that relative links
between README, docs, notebooks and results hold as they do in the checkout.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from packaging.version import Version

import probe
from probe.case.case import Case
from probe.order.tree import Tree, order_name, short_formula

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES = ROOT / "build" / "site-pages"
GUIDES = {
    "Start": "start concepts commands",
    "I want to": "explain models same_bits lock reports targets releases sweeps results",
    "Know more": "known sums causes limits experiments",
}
"""The order of the docs in the navigation; pages that are not named here follow at the end."""

ALONE = "---\nhide: [navigation]\n---\n"
"""Before a page that has no neighbours in the navigation."""

MACHINES = {
    "fam25-model1": "Zen 3",
    "fam25-model17": "Zen 4",
    "fam26-model2": "Zen 5",
    "fam6-model143": "Sapphire Rapids",
    "fam6-model207": "Emerald Rapids",
}
"""What a machine's folder calls a processor, by the name that its maker gives the design."""

SIDE = ["run_id", "case_id", "target", "vary", "at"]
REPLAYED = {"fused", "narrow", "cut", "nodes", "product_format", "products", "through"}
"""What of a rounding replay.js knows; sums with anything else are left out, and counted."""


def main() -> int:
    """Stages the pages, runs MkDocs, and returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    out = parser.parse_args().out
    shutil.rmtree(PAGES, ignore_errors=True)
    for folder in ("docs", "notebooks", "results", "api"):
        (PAGES / folder).mkdir(parents=True)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.*"), ROOT / "results" / "README.md"]:
        copied(path, PAGES / path.relative_to(ROOT))
    (PAGES / "index.md").write_text(ALONE + (PAGES / "README.md").read_text())
    (PAGES / "README.md").unlink()
    shutil.copy(ROOT / "LICENSE", PAGES / "LICENSE.txt")
    pictures = {path.stem: notebook(path) for path in sorted(ROOT.glob("notebooks/*.ipynb"))}
    (PAGES / "gallery.md").write_text(gallery(pictures))
    for name in probe.__all__:
        (PAGES / "api" / f"{name}.md").write_text(reference(name))
    explorer()
    config = PAGES.with_suffix(".yml")
    own = out.resolve() / probe.__version__
    config.write_text(yaml.safe_dump(settings(own, [*pictures]), sort_keys=False))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", config]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # Material's note about its successor
    status = subprocess.run(command, check=False, cwd=ROOT, env=quiet).returncode
    versions(out)
    return status


def versions(out: Path) -> None:
    """Lists the versions under ``out`` with their pages, newest first, for versions.js."""
    homes = sorted(out.glob("*/index.html"), key=lambda p: Version(p.parent.name), reverse=True)
    pages = {
        home.parent.name: sorted(
            page.relative_to(home.parent).as_posix() for page in home.parent.rglob("*.html")
        )
        for home in homes
    }
    # a script, as a page that is opened from a file can't read JSON
    (out / "versions.js").write_text(f"siteVersions = {json.dumps(pages)};\n")
    newest = f"{next(iter(pages))}/index.html"
    (out / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>probe</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}"><a href="{newest}">probe</a>\n'
    )


def copied(path: Path, to: Path) -> None:
    """A file of the checkout; links to notebooks lead to their pages, others to what is staged."""
    if path.suffix != ".md":
        shutil.copy(path, to)
        return
    text = re.sub(r"\.ipynb(?=[)#])", ".md", path.read_text())
    text = re.sub(r"\]\(((?:\.\./)*)README\.md", r"](\1index.md", text)
    for code in re.findall(r"\]\(([\w./]+\.(?:py|toml))\)", text):
        (to.parent / code).resolve().parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.parent / code, to.parent / code)
    to.write_text(re.sub(r"^<!-- not run: .*-->\n", "", text, flags=re.M))


def settings(out: Path, notebooks: list[str]) -> dict[str, Any]:
    """MkDocs' configuration: that of mkdocs.yml, and where things are."""
    config: dict[str, Any] = yaml.safe_load((HERE / "mkdocs.yml").read_text())
    there = {path.name for path in PAGES.glob("docs/*.md")}
    wanted = {title: [f"{name}.md" for name in names.split()] for title, names in GUIDES.items()}
    groups = {title: [page for page in pages if page in there] for title, pages in wanted.items()}
    known = {page for pages in groups.values() for page in pages}
    for page in sorted(there - known):  # a page same_bits_torch.md follows same_bits.md
        before = [p for p in groups["I want to"] if page.startswith(p.removesuffix(".md"))]
        group = groups["I want to" if before else "Know more"]
        group.insert(group.index(before[-1]) + 1 if before else len(group), page)
    config["nav"] = [
        {"probe": "index.md"},
        {"Explorer": "explorer.md"},
        *({title: [f"docs/{page}" for page in pages]} for title, pages in groups.items()),
        {"Pictures": "gallery.md"},
        {"Notebooks": [f"notebooks/{name}.md" for name in ordered(notebooks)]},
        {"Python": [{f"probe.{name}": f"api/{name}.md"} for name in sorted(probe.__all__)]},
        {"Project": ["CHANGELOG.md", "CONTRIBUTING.md", {"Columns": "results/README.md"}]},
    ]
    config["docs_dir"], config["site_dir"] = str(PAGES), str(out)
    config["theme"]["custom_dir"] = str(HERE / "theme")
    python = config["plugins"][1]["mkdocstrings"]["handlers"]["python"]
    python["paths"] = [str(ROOT)]
    python["options"]["extensions"] = [str(HERE / "docstrings.py")]
    config["copyright"] = f"probe {probe.__version__}, {commit()}. MIT license."
    return config


def ordered(notebooks: list[str]) -> list[str]:
    """``start_here`` first."""
    return sorted(notebooks, key=lambda name: (name != "start_here", name))


def commit() -> str:
    """The commit that the pages were built from, for their foot."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h of %cs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"built from {done.stdout.strip()}" if done.stdout else "not built from a checkout"


def notebook(path: Path) -> list[tuple[str, str]]:
    """Writes a notebook as a page, with the outputs that were saved: [(picture, what it shows)]."""
    text, shown, heading = [], [], ""
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            heading = (re.findall(r"^#+ (.+)$", source, re.M) or [heading])[-1]
            text.append(re.sub(r"\.ipynb(?=[)#])", ".md", source))
            continue
        code = f"```python\n{source}\n```"
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            code = f'<details markdown="1"><summary>code</summary>\n\n{code}\n\n</details>'
        text.append(code)
        for output in cell["outputs"]:
            data = {kind: "".join(v) for kind, v in output.get("data", {}).items()}
            if picture := data.get("image/png"):
                name = f"{path.stem}-{len(shown)}.png"
                (PAGES / "notebooks" / name).write_bytes(base64.b64decode(picture))
                shown.append((name, heading))
                text.append(f"![{heading}]({name})")
            elif "text/markdown" in data:
                text.append(data["text/markdown"])
            elif "text/html" in data:
                text.append(f'<div class="output">\n{plain_html(data["text/html"])}\n</div>')
            else:
                said = data.get("text/plain") or "".join(output.get("text", []))
                text.append(f'<pre class="output">{html.escape(said)}</pre>')
    (PAGES / "notebooks" / f"{path.stem}.md").write_text("\n\n".join(text) + "\n")
    return shown


def plain_html(text: str) -> str:
    """A saved table without its own style and blank lines, which would end it in Markdown."""
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)
    return re.sub(r"\n\s*\n", "\n", text)


def gallery(pictures: dict[str, list[tuple[str, str]]]) -> str:
    """All pictures of the notebooks, each linked to its notebook."""
    lines = [f"{ALONE}# Pictures", "", f"Every picture of the {len(pictures)} notebooks.", ""]
    for name in ordered([*pictures]):
        if pictures[name]:
            title = (PAGES / "notebooks" / f"{name}.md").read_text().split("\n")[0].lstrip("# ")
            lines += [f"## [{title}](notebooks/{name}.md)", "", '<div class="gallery" markdown>']
            for picture, heading in pictures[name]:
                lines.append(f"[![{heading}](notebooks/{picture})](notebooks/{name}.md)")
            lines += ["</div>", ""]
    return "\n".join(lines)


def reference(name: str) -> str:
    """A page of the API: the function or class, and the classes that it returns."""
    value = getattr(probe, name)
    value = getattr(value, "_function", value)
    lines = [f"# probe.{name}", "", f"::: {value.__module__}.{value.__qualname__}"]
    returned = value.__annotations__.get("return", "") if not isinstance(value, type) else ""
    module = sys.modules[value.__module__]
    for one in (getattr(module, part.strip(), None) for part in str(returned).split("|")):
        if isinstance(one, type) and one.__module__.startswith("probe.ui.answers"):
            lines += ["", "What it returns:", "", f"::: {one.__module__}.{one.__name__}"]
    return "\n".join(lines) + "\n"


def explorer() -> None:
    """Writes the explorer's page and its data: an index, and a file for each run of a target."""
    (PAGES / "assets").mkdir(exist_ok=True)
    for path in [*HERE.glob("*.js"), *HERE.glob("*.css")]:
        shutil.copy(path, PAGES / "assets" / path.name)
    shutil.copy(HERE / "explorer.md", PAGES / "explorer.md")
    index: dict[str, list[dict[str, Any]]] = {}
    for folder in sorted(path for path in (ROOT / "results").iterdir() if path.is_dir()):
        for file in runs(probe.load(folder)):
            head = file.pop("head") | {"pairs": len(file["pairs"])}
            index.setdefault(folder.name, []).append(head)
            key = f"{folder.name}-{head['key']}"
            script(f"{key}.js", f"Probe.data[{key!r}]", file)
    script("index.js", "Probe.index", index)


def script(name: str, variable: str, value: Any) -> None:
    """Data as a script, because a page that is opened from a file can't read other files."""
    folder = PAGES / "assets" / "data"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"{variable} = {json.dumps(value, separators=(',', ':'))};\n")


def runs(stored: Any) -> Iterator[dict[str, Any]]:
    """What the explorer shows of each run: comparisons with a difference, both of whose sides have
    revealed orders."""
    cases = {row.case_id: Case.from_json(row.json) for row in stored.cases.itertuples()}
    known = {case_id for case_id, case in cases.items() if shown(case)}
    roundings = {row.rounding_id: json.loads(row.json) for row in stored.roundings.itertuples()}
    trees = dict(zip(stored.orders.order_id, stored.orders.tree, strict=True))
    able = {one for one, rounding in roundings.items() if set(rounding) <= REPLAYED}
    # orders don't depend on the data: a report's own case has those of the same shape
    shapes = {case_id: shape(cases[case_id]) for case_id in known}
    same: dict[str, list[str]] = {}
    for case_id in sorted(known):
        same.setdefault(shapes[case_id], []).append(case_id)
    found = stored.reveals[stored.reveals.case_id.isin(known)]
    found = found[found.order_id.isin([*trees]) & found.rounding_id.isin(able)]
    sides: dict[tuple[Any, ...], list[Any]] = {}
    for row in found.itertuples():
        place = tuple(getattr(row, name) for name in SIDE)
        sides.setdefault(place, []).append([row.order_id, row.rounding_id, [*map(int, row.ranges)]])

    def orders_at(place: tuple[Any, ...]) -> list[Any]:
        run_id, case_id, *where = place
        if place in sides or cases[case_id].kind != "ramp":
            return sides.get(place, [])
        found = (sides.get((run_id, one, *where)) for one in same[shapes[case_id]])
        plain = next(filter(None, found), [])
        if cases[case_id].bias is None:
            return plain
        for order, *_ in plain:  # a bias is added at the end, by an operation of its own
            trees[f"{order}b"] = f"({trees[order]}+b)"
        return [[f"{order}b", *others] for order, *others in plain]

    pairs = [*SIDE, "against"]
    causes = rows_by(stored.causes, pairs, ["cause", "outputs", "ranges"])
    kept = rows_by(stored.differences, pairs, ["index", "bits_at", "bits_against"])
    differing = stored.comparisons[stored.comparisons.differing > 0]
    for (run_id, target), rows in differing.groupby(["run_id", "target"], sort=False):
        parts = ("cases", "orders", "roundings", "sides")
        file: dict[str, Any] = {part: {} for part in parts} | {"pairs": []}

        def add(place, at, against, numbers, file=file) -> None:  # type: ignore[no-untyped-def]
            found = {value: orders_at((*place, value)) for value in (at, against)}
            if not all(found.values()):
                return
            file["cases"][place[1]] = spec(cases[place[1]])
            for value, orders in found.items():
                file["sides"][f"{place[1]}|{place[3]}|{value}"] = orders
                for order, rounding, _ in orders:
                    file["orders"][order] = [trees[order], words(trees[order])]
                    file["roundings"][rounding] = roundings[rounding]
            head = {"case": place[1], "vary": place[3], "at": int(at), "against": int(against)}
            file["pairs"].append(head | numbers)

        for row in rows.sort_values(["case_id", "vary", "at"]).itertuples():
            place = (run_id, row.case_id, target, row.vary)
            found_causes = causes.get((*place, row.at, row.against), [])
            numbers = {"compared": int(row.compared), "differing": int(row.differing)}
            numbers["max_ulp"] = None if pd.isna(row.max_ulp) else int(row.max_ulp)
            numbers["kept"] = kept.get((*place, row.at, row.against), [])
            numbers["causes"] = {cause: count for cause, count, _ in found_causes}
            numbers["ranges"] = [int(n) for *_, ranges in found_causes for n in ranges]
            add(place, row.at, row.against, numbers)
        every = stored.comparisons[stored.comparisons.run_id == run_id]
        every = every[(every.target == target) & (every.vary == "length")]
        for case_id in known & {*every.case_id}:
            if cases[case_id].kind == "ramp":
                place = (run_id, case_id, target, "length")
                for at, against, numbers in neighbours(every[every.case_id == case_id], kept):
                    add(place, at, against, numbers)
        if file["pairs"]:
            run = stored.runs[stored.runs.run_id == run_id].iloc[0]
            names = {"key": run_id, "target": target, "machine": run.machine}
            names |= {"version": run.library_version, "processor": processor(run.machine)}
            yield file | {"head": names | {"of": len(rows)}}


def processor(machine: str) -> str:
    """``amd-epyc-fam25-model17-avx512`` as ``AMD EPYC (Zen 4, avx512)``; what isn't known stays."""
    found = re.fullmatch(r"(.+)-(fam\d+-model\d+)-(\w+)", machine)
    if not found or found[2] not in MACHINES:
        return machine
    line = " ".join(w.upper() if w in ("amd", "epyc") else w.title() for w in found[1].split("-"))
    return f"{line} ({MACHINES[found[2]]}, {found[3]})"


def shape(case: Case) -> str:
    """What a case's orders depend on: everything but its data."""
    case = case.with_(operands="cancel", weights=None, bias=None, seed=0)
    return json.dumps(case.to_json(), sort_keys=True)


def neighbours(
    rows: pd.DataFrame, kept: dict[tuple[Any, ...], list]
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Each length against the next, found from how both compare with the longest of the sweep.

    A length whose outputs all have the longest one's bits has bits that the other comparison keeps.
    """
    rows = rows.sort_values("at")
    for left, right in zip(rows.itertuples(), list(rows.itertuples())[1:], strict=False):
        found = []
        for row in (left, right):
            place = (row.run_id, row.case_id, row.target, row.vary, row.at, row.against)
            found.append({index: bits for index, *bits in kept.get(place, [])})
        whole = all(len(f) == row.differing for f, row in zip(found, (left, right), strict=True))
        if not whole or left.against != right.against:
            continue
        bits = []
        for index in sorted(found[0].keys() | found[1].keys()):
            longest = (found[0].get(index) or found[1][index])[1]
            pair = [f[index][0] if index in f else longest for f in found]
            bits += [[index, *pair]] if pair[0] != pair[1] and index < left.compared else []
        if bits:
            numbers = {"compared": int(left.compared), "differing": len(bits), "max_ulp": None}
            yield left.at, right.at, numbers | {"kept": bits, "causes": {}, "ranges": []}


def rows_by(table: pd.DataFrame, by: list[str], columns: list[str]) -> dict[tuple[Any, ...], list]:
    """The rows of each place, as lists of plain values; 64 bits as text, which JavaScript keeps."""
    found: dict[tuple[Any, ...], list[list[Any]]] = {}
    values = zip(*(table[name].tolist() for name in (*by, *columns)), strict=True)
    for *place, first, second, third in values:
        exact = [str(v) if isinstance(v, int) and v >= 2**53 else v for v in (first, second, third)]
        found.setdefault(tuple(place), []).append(exact)
    return found


@cache
def words(tree: str) -> str:
    """An order in words, or as a short sum."""
    parsed = Tree.parse(tree)
    return order_name(parsed) or short_formula(parsed, 120)


def shown(case: Case) -> bool:
    """Whether replay.js can generate the operands."""
    plain = case.split is None and case.put is None and case.weighted
    given = case.weights is not None and case.kind == "ramp"
    generated = case.weights is None and case.kind == "cancel"
    return plain and (given or generated) and not isinstance(case.bias, str)


def spec(case: Case) -> dict[str, Any]:
    """What replay.js needs of a case, and how it is called."""
    names = ("op", "kernel", "in_channels", "filters", "groups", "stride", "dilation", "padding")
    names += ("batch", "dtype", "seed", "weights", "bias", "length", "label")
    own = {name: getattr(case, name) for name in names}
    rank = case.spatial_rank
    own |= {name: own[name][:rank] for name in ("kernel", "stride", "dilation")}
    return own | {"operands": case.kind, "others": case.other_axes if rank else ()}


if __name__ == "__main__":
    sys.exit(main())
