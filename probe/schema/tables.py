"""Tables of networks, reports, remedies and scripts; and all tables in one format with a version.

pyarrow is imported only where it is asked for, so that importing this module costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from probe.schema import measurements
from probe.schema.measurements import PAIR, RUN, TARGET, TYPES, Column, key, second, since

if TYPE_CHECKING:
    import pyarrow


NETWORK = key("network_id", "text", "hash of the chain of layers with its weights")
CONTENT = key("content", "int", "positions of content, at the beginning", "positions")
PADDED = key("padded", "int", "length of the short run, content and padding", "positions")
FIXED = Column("fixed", "int", "length of the fixed run", "positions")

NETWORKS = second(
    NETWORK,
    Column("name", "text", "what it is called"),
    Column("source", "text", "what `Network.load` makes it from", null="not told"),
    Column("layers", "int", "how many layers, activations and pools included", "layers"),
    Column("dtype", "text", "`float32`, `float64`, `float16`"),
    Column("in_channels", "int", "channels of the input", "channels"),
    Column("filters", "int", "channels of the output", "channels"),
    Column("field", "int", "what an output of the last layer reads of the input", "positions"),
    Column("jump", "int", "how far apart neighbouring outputs read", "positions"),
    Column("json", "json", "the layers in the words of a description, without their numbers"),
    Column(
        *("examined", "int", "layers of the model, in its own count, that `layers` holds whole"),
        *("layers",),
        null="not counted",
    ),
    Column(
        *("operations_total", "int", "layers of the whole model, in its own count", "layers"),
        null="not counted",
    ),
    Column(
        *("part", "text", "of a model that was read in part: which, and where it ends"),
        null="read whole",
    ),
)

ACTIVATIONS = second(
    RUN,
    NETWORK,
    TARGET,
    CONTENT,
    PADDED,
    key("layer", "int", "number of the layer, from 0"),
    FIXED,
    Column("name", "text", "the layer's name"),
    Column("op", "text", "`conv2d`, `max_pool2d`, `activation`, ..."),
    Column("size", "int", "positions behind the layer in the short run", "positions"),
    Column("size_fixed", "int", "positions behind the layer in the fixed run", "positions"),
    Column("compared", "int", "activations that read the same in both runs", "activations"),
    Column("other_window", "int", "activations of the short run that read other", "activations"),
    Column("differing", "int", "compared activations whose values differ", "activations"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column(
        *("max_scaled", "float", "largest |difference| / (eps * largest |activation| here)", "1"),
        null="not known",
    ),
    Column(
        *("own", "int", "activations that differ though the layer is fed the fixed run's"),
        *("activations",),
        null="not asked",
    ),
    Column("cause", "text", "why these differ: `order`, `rounding`, ...", null="none differs"),
    Column("replayed", "int", "of these, reproduced bit for bit on both sides", "activations"),
    Column("control", "text", "the same shape again: `equal` or `differs`", null="not run"),
)

PADDED_LENGTHS = second(
    RUN,
    NETWORK,
    TARGET,
    CONTENT,
    FIXED,
    Column("outputs", "int", "outputs of the fixed run", "positions"),
    Column("kept", "int", "outputs up to the last one that reads content", "positions"),
    Column("least", "int", "shortest padded length that has them all", "positions"),
    Column(
        *("safe", "int", "shortest one at which every layer adds them as in the fixed run"),
        *("positions",),
    ),
    Column("unknown", "int", "layers whose summation is not known at `safe`", "layers"),
    Column("differing_least", "int", "outputs at `least` with different bits", "outputs"),
    Column("differing_safe", "int", "outputs at `safe` with different bits", "outputs"),
    Column("checked", "int", "sets of fresh operands for the last two", "sets"),
)

PROGRAMS = second(
    RUN,
    NETWORK,
    TARGET,
    CONTENT,
    key("variant", "text", "which run: `least`, `safe`, or `layerwise`"),
    Column("padded", "int", "the run's padded length", "positions"),
    FIXED,
    Column("compared", "int", "outputs that read content", "outputs"),
    Column("differing", "int", "of these, with different bits from the fixed run's", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column(
        *("other_than_layers", "int", "outputs of the fixed run that differ layer by layer"),
        *("outputs",),
        null="not asked",
    ),
)

DECISIONS = second(
    RUN,
    NETWORK,
    TARGET,
    CONTENT,
    key("variant", "text", "which run: `fixed`, `least`, `safe`, `layerwise`, ..."),
    key("decision", "text", "what is decided of the channels: `argmax`, `top-5`, `threshold`"),
    Column("padded", "int", "the run's padded length", "positions"),
    Column("taken", "int", "positions (or values) that were decided on", "decisions"),
    Column("crossed", "int", "decisions that are not those of the fixed run", "decisions"),
    Column("margin", "float", "smallest distance from being decided otherwise", "eps * largest"),
    Column("differing", "int", "outputs with different bits from the fixed run's", "outputs"),
    Column("error", "float", "largest |output - float64's| / (eps * largest |output|)", "1"),
    Column("error_fixed", "float", "the same of the fixed run", "1"),
)

REPORTS = second(
    key("thread", "text", "where it was reported: `owner/repository#number`, or a name"),
    Column("number", "int", "its place in the experiment's list"),
    Column("title", "text", "what was reported, in our words"),
    Column("answer", "text", "what its maintainers answered, in our words", null="none was read"),
    Column("home", "text", "the reported library, as a target", null="it is none"),
    Column("reason", "text", "why it was not run", null="it was"),
)

FINDINGS = second(
    RUN,
    key("thread", "text", "the report: `reports.thread`"),
    key("question", "text", "which two runs ought to agree, in words"),
    TARGET,
    Column("case_id", "text", "the left side's case: `cases.case_id`"),
    Column("against_case_id", "text", "the right side's case", null="the same, at another value"),
    Column("against_target", "text", "where the right side ran", null="on the same target"),
    Column("vary", "text", "the axis that sets the sides apart", null="none does"),
    Column("at", "int", "its value on the left side", "elements of `vary`", null="no axis"),
    Column("against", "int", "its value on the right side", "elements of `vary`", null="no axis"),
    Column("compared", "int", "outputs that ought to agree", "outputs"),
    Column("differing", "int", "of these, with other values, or on one side only", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column("bits_at", "bits", "left bits of the first differing output", null="none differs"),
    Column("bits_against", "bits", "its right bits", null="none differs"),
    Column("explained", "int", "differing outputs whose cause was looked for", "outputs"),
    Column("causes", "json", "these by cause: `order`, `rounding`, `window`, ..."),
    Column("replayed", "int", "of these, reproduced bit for bit on both sides", "outputs"),
    Column(
        *("smallest", "json", "the smallest case that still differs: case, operands, both ways"),
        null="not looked for",
    ),
)

REMEDIES = second(
    RUN,
    key("case_id", "text", "`cases.case_id`", null="a whole network"),
    key("network_id", "text", "`networks.network_id`", null="a single case"),
    TARGET,
    key("remedy", "text", "`default`, `pad`, `chunks=64`, `threads=1`, `stable`, ..."),
    CONTENT,
    key("fixed", "int", "length of the fixed run", "positions"),
    Column("about", "text", "what it is, in a few words"),
    Column("place", "text", "the target that it runs on"),
    Column("lengths", "int", "lengths whose orders were compared with the fixed one's", "lengths"),
    Column("verdict", "text", "`exact` for all finite operands, `differs`, or `not known`"),
    Column("compared", "int", "outputs that must agree", "outputs"),
    Column("differing", "int", "of these, added in another way than at `fixed`", "outputs"),
    Column("unknown", "int", "of these, those whose summation is not known", "outputs"),
    Column("refusal", "text", "why it can't be used, or judged", null="nothing", foreign=True),
    Column("seconds", "float", "a call at `content`, median of the turns", "s", null="not timed"),
    Column("seconds_fixed", "float", "a call at `fixed`, likewise", "s", null="not timed"),
    Column("ratio", "float", "at `content`, over the default there", "1", null="not timed"),
    Column("of_fixed", "float", "at `content`, over the default at `fixed`", "1", null="not timed"),
    Column("ratio_fixed", "float", "at `fixed`, over the default there", "1", null="not timed"),
    Column(
        *("error_rms", "float", "root mean square of |output - exact| / (eps * scale) at `fixed`"),
        *("1",),
        null="not run",
    ),
    Column("error_max", "float", "the largest of these", "1", null="not run"),
    Column("keeps", "flag", "whether `fixed` has the default's bits", null="not run"),
    Column("recommended", "flag", "whether it is the cheapest exact one; never of a part"),
    Column(
        *("vary", "text", "what `content`, `fixed` and `lengths` are: `length` or `batch`"),
        null="lengths, stored before this was kept",
    ),
)

REFUSED = "refused: see `reason`"
NO_REFEREE = "no direct call of this library, or refused"
EARLIER = "not confirmed, not a number, or stored before this was kept"

REPRODUCTIONS = second(
    *PAIR,
    key("source", "text", "the experiment in whose results the finding was drawn"),
    Column("number", "int", "its place in the draw, from 0"),
    Column("found", "int", "outputs that were compared, as it was found", "outputs"),
    Column("processes", "int", "fresh processes that ran the script", "processes"),
    Column("confirmed", "flag", "whether all of them gave the bits that were measured"),
    Column("reason", "text", "why they did not", null="they did", foreign=True),
    Column("status", "int", "their exit status", null="not confirmed"),
    Column("tries", "int", "smaller cases that were tried", "cases", null="not confirmed"),
    Column("runs", "int", "calls of the operator for these", "calls", null="not confirmed"),
    Column("ended", "text", "`minimal` or `budget`: why it is no smaller", null="not confirmed"),
    Column("label", "text", "the smallest case in words", null="not confirmed"),
    Column("smallest", "json", "the smallest case", null="not confirmed"),
    Column("small_summands", "int", "products of its outputs", "products", null="not confirmed"),
    Column("small_at", "int", "its left value of `vary`", "elements", null="not confirmed"),
    Column("small_against", "int", "its right value of `vary`", "elements", null="not confirmed"),
    Column("small_compared", "int", "its compared outputs", "outputs", null="not confirmed"),
    Column("small_elements", "int", "numbers in its operands", "elements", null="not confirmed"),
    Column("small_not_zero", "int", "of these, not zero", "elements", null="not confirmed"),
    Column("differing", "int", "its outputs that differ", "outputs", null="not confirmed"),
    Column("max_ulp", "int", "largest distance of these", "ulp", null="none is a number"),
    Column("causes", "json", "these by cause: `order`, `rounding`, ...", null="not confirmed"),
    Column("replayed", "int", "compared outputs replayed", "outputs", null="not confirmed"),
    Column("emulated", "flag", "whether `emulated.py` prints the same bits", null="there is none"),
    Column("lines", "int", "length of `reproduce.py`", "lines", null="not confirmed"),
    Column("found_differing", "int", "outputs that differed before", "outputs", null=EARLIER),
    Column("found_max_ulp", "int", "largest distance of these", "ulp", null=EARLIER),
    Column("found_relative", "float", "their largest relative difference", "1", null=EARLIER),
    Column("found_causes", "json", "these by cause", null=EARLIER),
    Column("found_kernels", "json", "what ran: names by side and source", null=EARLIER),
    Column("relative", "float", "largest relative difference of `differing`", "1", null=EARLIER),
    Column("kernels", "json", "what runs the smallest case, likewise", null=EARLIER),
    Column("kept_cause", "flag", "whether the main cause is there and no new one", null=EARLIER),
    Column(
        *("kept_kernels", "flag", "whether the same kernels run"),
        null="the library names none, or stored before this was kept",
    ),
    Column("seconds", "float", "from the finding to its proof", "s"),
    Column("seconds_proof", "float", "of these, in fresh processes", "s", null="not confirmed"),
)

TRIALS = since(
    3,
    RUN,
    key("number", "int", "the trial's place in the draw"),
    TARGET,
    Column("case_id", "text", "the left side's case: `cases.case_id`"),
    Column("against_target", "text", "where the right side ran", null="on the same target"),
    Column("vary", "text", "the axis that sets the sides apart", null="none does"),
    Column("at", "int", "its value on the left side", "elements of `vary`", null="no axis"),
    Column("against", "int", "its value on the right side", "elements of `vary`", null="no axis"),
    Column("compared", "int", "outputs that were compared", "outputs", null=REFUSED),
    Column("differing", "int", "of these, with other values", "outputs", null=REFUSED),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="none is a number"),
    Column("causes", "json", "these by cause: `order`, `rounding`, ...", null=REFUSED),
    Column("replayed", "int", "differing outputs replayed on both sides", "outputs", null=REFUSED),
    Column("by_order", "int", "outputs that are added in another way", "outputs", null=REFUSED),
    Column("unknown", "int", "outputs whose summation is not known", "outputs", null=REFUSED),
    Column("refereed", "int", "outputs of direct calls, both sides", "outputs", null=NO_REFEREE),
    Column("other", "int", "of these, different from probe's", "outputs", null=NO_REFEREE),
    Column("missed", "int", "outputs that differ by the referee alone", "outputs", null=NO_REFEREE),
    Column("false", "int", "outputs that differ by probe alone", "outputs", null=NO_REFEREE),
    Column("unrefereed", "text", "why there is no referee", null="there is one", foreign=True),
    Column("reason", "text", "why nothing was compared", null="it was", foreign=True),
    Column("seconds", "float", "for both sides, their reveals and the referee", "s"),
)

NO_WALK = "refused: `reason`"
MODEL = (
    key("model", "text", "which model, of those that the experiment lists"),
    TARGET,
    key("vary", "text", "`batch`, `length`, `padding`, `threads`, `mode`, `library`"),
    key("at", "text", "its value on the left side"),
    key("against", "text", "its value on the right side"),
)

WALKS = since(
    4,
    RUN,
    *MODEL,
    Column("weights", "text", "where the weights come from: a package, or `seeded`"),
    Column("verdict", "text", "of the outputs: `equal`, `differs`, `unknown`", null=NO_WALK),
    Column("operations", "int", "operations of both runs", "operations", null=NO_WALK),
    Column("examined", "int", "of these, compared", "operations", null=NO_WALK),
    Column("sources", "int", "inputs agree, outputs differ", "operations", null=NO_WALK),
    Column("carried", "int", "inputs differ already", "operations", null=NO_WALK),
    Column(
        "own",
        "int",
        "of the carried, those that differ by themselves too",
        "operations",
        null="not asked",
    ),
    Column("healed", "int", "inputs differ, outputs agree", "operations", null=NO_WALK),
    Column("one_side", "int", "of one run alone", "operations", null=NO_WALK),
    Column("first", "text", "the first source", null="none"),
    Column("first_op", "text", "its operation, in the library's word", null="none"),
    Column("first_cause", "text", "its cause", null="none, or none is known"),
    Column("compared", "int", "numbers of the outputs that must agree", "numbers", null=NO_WALK),
    Column("differing", "int", "of these, with different bits", "numbers", null=NO_WALK),
    Column("max_ulp", "int", "largest distance of the outputs", "ulp", null="no number"),
    Column("scaled", "float", "largest difference over the largest output", "eps", null=NO_WALK),
    Column("rows", "int", "rows of the outputs that must agree", "rows", null=NO_WALK),
    Column("crossed", "int", "of these, whose largest number is another", "rows", null=NO_WALK),
    Column("plain_seconds", "float", "of a run that is not watched", "s", null=NO_WALK),
    Column("watched_seconds", "float", "of the same run, with digests", "s", null=NO_WALK),
    Column("plain_bytes", "int", "most memory of the run that is not watched", "B", null="unknown"),
    Column("watched_bytes", "int", "most memory of the watched run", "B", null="unknown"),
    Column("seconds", "float", "for all: runs, comparison, causes", "s"),
    Column("notes", "text", "what was said besides", null="nothing", foreign=True),
    Column("reason", "text", "why nothing was compared", null="it was", foreign=True),
)

SOURCES = since(
    4,
    RUN,
    *MODEL,
    key("number", "int", "place of the operation in the run"),
    Column("name", "text", "the operation, by its place in the model"),
    Column("verdict", "text", "`source`, or `carried`: it differs by itself behind a source"),
    Column("op", "text", "the library's word for it"),
    Column(
        "kind", "text", "`product`, `convolution`, `pool`, `reduction`, `norm`, `function`, ..."
    ),
    Column("compared", "int", "numbers that must agree", "numbers"),
    Column("differing", "int", "of these, with different bits", "numbers"),
    Column("max_ulp", "int", "largest distance", "ulp", null="no number"),
    Column("cause", "text", "why", null="no word for it, or not asked"),
    Column("examined", "int", "differing numbers that were asked about", "numbers", null="none"),
    Column("replayed", "int", "of these, given again on both sides", "numbers", null="none"),
    Column("alone", "int", "1: alone, the operation gave its bits on both sides", null="not tried"),
    Column("why", "text", "the cause in a sentence", null="not asked", foreign=True),
)

INVARIANCES = since(
    5,
    RUN,
    key("subject", "text", "which layer or model, of those that the experiment lists"),
    TARGET,
    key("axis", "text", "what was changed: `size`, `batch`, `order`, `padding`, `threads`"),
    key("like", "text", "of the invariant mode: `largest` or `cheapest`"),
    key("threads", "int", "threads that computed it", "threads"),
    Column("kind", "text", "`linear`, `conv2d`, `grouped`, ..., `model`"),
    Column("dtype", "text", "format of the numbers"),
    Column("sizes", "ranges", "sizes that were run: start, stop, ..."),
    Column("compared", "int", "numbers that must agree, of all sizes and operands", "numbers"),
    Column("plain", "int", "of these, with different bits in the library as it is", "numbers"),
    Column("plain_sizes", "ranges", "sizes at which there are some: start, stop, ..."),
    Column("differing", "int", "of these, with different bits in the invariant mode", "numbers"),
    Column("differing_sizes", "ranges", "sizes at which there are some: start, stop, ..."),
    Column(
        *("kept", "flag", "whether the largest size has the plain library's bits"),
        null="not asked of `cheapest`",
    ),
    Column("left", "int", "operations left as they are", "operations"),
    Column("notes", "text", "what the mode noted", null="nothing", foreign=True),
    Column("seconds", "float", "for the axis", "s"),
)

VERSION = 5
"""Version of the format that is written. Every older one is read: see :data:`HISTORY`."""

HISTORY: dict[int, str] = {
    1: "The first format: every table and column that is not said to be younger.",
    2: "Whole networks: `networks`, `activations`, `padded_lengths`, `programs`, `decisions`. "
    "Public reports: `reports`, `findings`. `remedies`, `reproductions`.",
    3: "`trials`; `comparisons.signed_zero`, `reveals.certified`; layouts as an axis.",
    4: "Models of any shape: `walks`, `sources`.",
    5: "The invariant mode: `invariances`.",
}
"""What each version changed. A column that is younger than a file reads as null."""

TABLES: dict[str, tuple[Column, ...]] = measurements.TABLES | {
    "networks": NETWORKS,
    "activations": ACTIVATIONS,
    "padded_lengths": PADDED_LENGTHS,
    "programs": PROGRAMS,
    "decisions": DECISIONS,
    "reports": REPORTS,
    "findings": FINDINGS,
    "remedies": REMEDIES,
    "reproductions": REPRODUCTIONS,
    "trials": TRIALS,
    "walks": WALKS,
    "sources": SOURCES,
    "invariances": INVARIANCES,
}
"""Every table with its columns, in the order in which files have them."""

ABOUT: dict[str, str] = measurements.ABOUT | {
    "networks": "One row a network. What other tables say of one with a `part` holds for that part "
    "alone.",
    "activations": "One row a layer of a network, run at a padded length against the fixed one.",
    "padded_lengths": "One row a length of content: how far to pad it.",
    "programs": "One row a length of content and a way to pad it: the network as one program.",
    "decisions": "One row a decision taken of a network's outputs, and their error.",
    "reports": "One row a public report of runs that ought to agree and don't.",
    "findings": "One row a question of a public report on a target: what it gives here today.",
    "remedies": "One row a remedy of a case or network on a target. The exact sums are float64's; "
    "the scale is sum|x*w|, of a network the largest |output|.",
    "reproductions": "One row a finding that was drawn, made small, and run by its script.",
    "trials": "One row a random pair of runs: what probe says of it, and what direct calls of the "
    "libraries say.",
    "walks": "One row a pair of runs of a model, compared operation by operation.",
    "sources": "One row an operation that differs by itself: its inputs agree, or were made to.",
    "invariances": "One row a layer or model whose call was changed along an axis: how many "
    "numbers change, in the library as it is and in the invariant mode.",
}
"""What a row of each table is."""

RUN_IDENTITY = (
    "experiment",
    "target",
    "library_version",
    "python_version",
    "numpy_version",
    "device",
    "machine",
    "cpu_family",
    "cpu_model_number",
    "cpu_isa",
    "cores",
    "os",
    "emulated",
    "switches",
    "environment",
)


def run_id(row: Mapping[str, Any]) -> str:
    """16 hex digits: the experiment and all that may decide bits, by :data:`RUN_IDENTITY`.

    Time, git state and probe's version are not part of it, so the same command on the same
    software continues its run, and an upgraded library starts another one.
    """
    facts = {name: row.get(name) for name in RUN_IDENTITY}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def names(table: str) -> list[str]:
    """Column names of a table, in order."""
    return [column.name for column in TABLES[table]]


def keys(table: str) -> list[str]:
    """Names of the columns that identify a row of a table."""
    return [column.name for column in TABLES[table] if column.key]


@cache
def arrow_schema(table: str) -> pyarrow.Schema:
    """Arrow schema of a table; its metadata has the table's name and the format's version."""
    import pyarrow as pa

    fields = [pa.field(column.name, column.arrow()) for column in TABLES[table]]
    return pa.schema(fields, {"probe.table": table, "probe.schema_version": str(VERSION)})


def described(table: str) -> pyarrow.Schema:
    """``arrow_schema`` as files have it: each field says ``description``, ``unit`` and ``null``.

    ``null`` is what a null means, and absent where the column is never null; ``unit`` is absent
    where there is none. The table's own description is ``probe.about``.
    """
    plain, about = arrow_schema(table), {b"probe.about": ABOUT[table].encode()}
    for place, column in enumerate(TABLES[table]):
        told = {"description": column.meaning, "unit": column.unit, "null": column.null or ""}
        field = plain.field(place).with_metadata({k: v for k, v in told.items() if v})
        plain = plain.set(place, field)
    return plain.with_metadata({**plain.metadata, **about})


def readme() -> str:
    """Text of ``results/README.md``; a test checks that the file says exactly this."""
    parts = [_INTRODUCTION.format(version=VERSION)]
    for table, columns in TABLES.items():
        parts.append(f"## {table}\n\n{ABOUT[table]}\n\n{_HEADER}")
        parts.extend(_line(column) for column in columns)
        parts.append("")
    parts.append("## Versions\n")
    parts.extend(f"- {version}: {change}" for version, change in HISTORY.items())
    return "\n".join(parts) + "\n"


_HEADER = (
    "| column | type | unit | meaning | null means | since |\n| --- | --- | --- | --- | --- | --- |"
)
_INTRODUCTION = """\
# Results

One folder an experiment, in it one folder a machine, in it one parquet file a table: results of
several machines merge by copying folders. `probe.load("results/NAME")` reads them as pandas
frames; polars and DuckDB read the same files. Columns in **bold** identify a row.

Generated by `probe.schema.readme()`, format version {version}. Do not edit.
"""


def _line(column: Column) -> str:
    name = f"**{column.name}**" if column.key else column.name
    null = "never null" if column.null is None else column.null
    kind = f"json in {TYPES['json']}" if column.type == "json" else TYPES[column.type]
    cells = (name, kind, column.unit, column.meaning, null, str(column.since))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
