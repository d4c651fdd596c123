"""The site, built and opened in headless Chromium: `make site` installs what it takes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

import probe
from probe.case.case import Case
from probe.order.replay import partial_sums
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree
from probe.order.window import columns

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
EXPLORER = "explorer.html#experiment=accumulation_orders"
OUTPUTS = 1000
LINKS = "[...document.querySelectorAll('[href],[src]')].map(one => String(one.href ?? one.src))"
BROKEN = "[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)"
ASK = """([key, asked]) => asked.map(([a, b]) => {
  const file = Probe.data[key], pairs = file.pairs.filter(one => one.kept.length);
  const pair = pairs[Math.floor(a * pairs.length)];
  const [index, ...bits] = pair.kept[Math.floor(b * pair.kept.length)];
  const { answers, dtype } = Probe.ask(file, pair, index);
  const text = (one, v, node) => String(Probe.toBits(v, Probe.formatOf(one.rounding, node, dtype)));
  return answers.map((one, i) => ({
    pair: { ...pair, kept: [], ranges: [] }, side: i, index: one.index, order: one.order[0],
    bits: String(one.bits), stored: String(bits[i]), rounding: one.rounding,
    sums: one.values.map((v, node) => text(one, v, node)) }));
})"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of this version; PROBE_SITE names the folder of a site that is there already."""
    for name in ("mkdocs", "material", "mkdocstrings", "playwright"):
        pytest.importorskip(name, reason=f"{name} is not installed: make site installs it")
    if not CHROMIUM:
        pytest.skip("there is no chromium on PATH")
    if built := os.environ.get("PROBE_SITE"):
        return Path(built).resolve() / probe.__version__
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, ROOT / "docs" / "site" / "build.py", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / probe.__version__


@pytest.fixture(scope="module")
def browser(site):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # without a sandbox, which containers do not have; the pages are our own
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def tab(browser, request):
    """A page of the browser that fails the test for whatever it says on its console."""
    width = getattr(request, "param", 1280)
    page = browser.new_page(viewport={"width": width, "height": 800})
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda asked: said.append(f"{asked.url}: {asked.failure}"))
    yield page
    page.close()
    # what was still loading when the next page was opened
    assert [line for line in said if not line.endswith("net::ERR_ABORTED")] == []


def addresses(site):
    """All pages but that of a server's 404, whose links begin at the server's root."""
    pages = (path for path in sorted(site.rglob("*.html")) if path.name != "404.html")
    found = [page.relative_to(site).as_posix() for page in pages]
    assert len(found) > len([*ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.ipynb")])
    return found


def test_no_page_links_to_what_is_not_there(site, tab):
    missing = []
    for address in addresses(site):
        page = site / address
        tab.goto(page.as_uri(), wait_until="domcontentloaded")
        found = tab.evaluate(LINKS)
        for link in {one for one in found if one.startswith("file:")}:
            path, name = urldefrag(link)
            there = Path(unquote(urlsplit(path).path))
            known = there.is_file() and there.is_relative_to(site.parent)
            if name and there == page:
                known &= tab.evaluate("name => !!document.getElementById(name)", unquote(name))
            missing += [] if known else [(address, link)]
    assert missing == []


@pytest.mark.parametrize("tab", [1280, 390], indirect=True, ids=["desktop", "phone"])
def test_every_page_opens_with_its_pictures_and_fits(site, tab):
    for address in addresses(site):
        tab.goto((site / address).as_uri())
        broken = tab.evaluate(BROKEN)
        assert broken == [], address
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        assert tab.locator("h1").count() == 1, address


def test_nothing_is_loaded_from_elsewhere(site, tab):
    asked = []
    tab.on("request", lambda one: asked.append(one.url))
    for address in ("index.html", "explorer.html", "gallery.html", "docs/explain.html"):
        tab.goto((site / address).as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def opened(tab, site, address=EXPLORER):
    """The explorer, when it has added all that the question has stored bits for."""
    tab.goto("about:blank")
    tab.goto(f"{site.as_uri()}/{address}")
    tab.wait_for_selector("#explore[data-checked]")
    return tab.locator("#explore")


def test_a_bare_address_asks_the_report_that_the_project_began_with(site, tab):
    explore = opened(tab, site, "explorer.html")
    assert "2 of 3 compared outputs differ" in explore.locator(".summary").inner_text()
    assert "conv2d 1x5, 1 -> 1, ramp: length 7 against 8" in tab.title()
    assert explore.locator(".notice").inner_text() == ""


def test_random_outputs_give_the_stored_bits_and_pythons_partial_sums(site, tab):
    """Against the stored bits of both runs; some against every partial sum in Python, too."""
    opened(tab, site)
    drawn = random.Random(36)
    keys = [path.stem for path in sorted((site / "assets" / "data").glob("*-*.js"))]
    chosen, some = [drawn.choice(keys) for _ in range(OUTPUTS)], []
    for key in sorted(set(chosen)):
        tab.add_script_tag(url=(site / "assets" / "data" / f"{key}.js").as_uri())
        asked = [[drawn.random(), drawn.random()] for _ in range(chosen.count(key))]
        found = tab.evaluate(ASK, [key, asked])
        for answers in found:
            assert [one["bits"] for one in answers] == [one["stored"] for one in answers], key
        some += [(key, one) for one in found[0]] if len(some) < 60 else []
    for key, one in some:
        assert one["sums"] == by_python(key, one), key


def by_python(key, one):
    """Bits of the partial sums of one answer, as NumPy adds them."""
    pair, cases = one["pair"], probe.load(ROOT / "results" / key.rpartition("-")[0]).cases
    case = Case.from_json(cases[cases.case_id == pair["case"]].json.iloc[0])
    case = case.with_(**{pair["vary"]: pair["against" if one["side"] else "at"]})
    x, w, bias = case.operands()
    place, filter_ = divmod(one["index"], case.filters)
    met = columns(case, x)[filter_ // (case.filters // case.groups)][:, [place]]
    weights = w.reshape(-1, w.shape[-1])[:, [filter_]]
    names = "fused narrow cut nodes product_format products through"
    rounding = {name: one["rounding"][name] for name in names.split() if name in one["rounding"]}
    summation = Summation(Tree.parse(one["order"]), Rounding.from_json(rounding))
    bias = None if bias is None else bias[one["index"] % case.filters]
    sums = partial_sums(summation, met, weights, case.dtype, bias)
    return [str(each.bits) for each in sums]
