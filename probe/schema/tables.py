"""Tables of networks, reports, remedies and scripts; and all tables in one format with a version.

pyarrow is imported only where it is used, so that importing this module costs nothing.
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
CONTENT = key("content", "int", "valid length: positions of data, at the start", "positions")
PADDED = key("padded", "int", "length of the short run: data and padding", "positions")
FIXED = Column("fixed", "int", "full length, with which the short run is compared", "positions")

NETWORKS = second(
    NETWORK,
    Column("name", "text", "the network's name"),
    Column("source", "text", "the model from which `Network.load` reads it", null="not given"),
    Column("layers", "int", "number of layers, including activations and pooling", "layers"),
    Column("dtype", "text", "`float32`, `float64`, `float16`"),
    Column("in_channels", "int", "channels of the input", "channels"),
    Column("filters", "int", "channels of the output", "channels"),
    Column("field", "int", "receptive field of an output of the last layer", "positions"),
    Column("jump", "int", "stride of the whole network, on the input", "positions"),
    Column("json", "json", "the layers as a network description, without their weights"),
    Column(
        *(
            "examined",
            "int",
            "layers of the model, as it counts them, that `layers` contains whole",
        ),
        *("layers",),
        null="not counted",
    ),
    Column(
        *("operations_total", "int", "layers of the whole model, as it counts them", "layers"),
        null="not counted",
    ),
    Column(
        *("part", "text", "which part of the model was read, and where it ends"),
        null="the whole model was read",
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
    Column("size", "int", "length of the layer's output in the short run", "positions"),
    Column("size_fixed", "int", "length of the layer's output in the full run", "positions"),
    Column("compared", "int", "activations that read the same values in both runs", "activations"),
    Column(
        *("other_window", "int", "activations of the short run that read different values"),
        *("activations",),
    ),
    Column("differing", "int", "compared activations whose values differ", "activations"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column(
        *("max_scaled", "float", "largest |difference| / (eps * largest |activation| here)", "1"),
        null="not known",
    ),
    Column(
        *("own", "int", "activations that differ although the layer gets the full run's input"),
        *("activations",),
        null="not measured",
    ),
    Column("cause", "text", "why these differ: `order`, `rounding`, ...", null="none differs"),
    Column("replayed", "int", "of these, reproduced bit for bit on both sides", "activations"),
    Column("control", "text", "the same shape, run again: `equal` or `differs`", null="not run"),
)

PADDED_LENGTHS = second(
    RUN,
    NETWORK,
    TARGET,
    CONTENT,
    FIXED,
    Column("outputs", "int", "outputs of the full run", "positions"),
    Column("kept", "int", "outputs up to the last one that depends on data", "positions"),
    Column("least", "int", "shortest padded length that has all of them", "positions"),
    Column(
        *("safe", "int", "shortest one at which every layer adds in the order of the full run"),
        *("positions",),
    ),
    Column("unknown", "int", "layers whose summation is unknown at `safe`", "layers"),
    Column("differing_least", "int", "outputs at `least` with different bits", "outputs"),
    Column("differing_safe", "int", "outputs at `safe` with different bits", "outputs"),
    Column("checked", "int", "sets of new operands that the last two were run on", "sets"),
)

PROGRAMS = second(
    RUN,
    NETWORK,
    TARGET,
    CONTENT,
    key("variant", "text", "which run: `least`, `safe`, or `layerwise`"),
    Column("padded", "int", "the run's padded length", "positions"),
    FIXED,
    Column("compared", "int", "outputs that depend on data", "outputs"),
    Column("differing", "int", "of these, with bits that differ from the full run's", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column(
        *("other_than_layers", "int", "outputs of the full run that differ if run layer by layer"),
        *("outputs",),
        null="not measured",
    ),
)

DECISIONS = second(
    RUN,
    NETWORK,
    TARGET,
    CONTENT,
    key("variant", "text", "which run: `fixed`, `least`, `safe`, `layerwise`, ..."),
    key("decision", "text", "the decision over the channels: `argmax`, `top-5`, `threshold`"),
    Column("padded", "int", "the run's padded length", "positions"),
    Column("taken", "int", "decisions: one per position, or per value", "decisions"),
    Column("crossed", "int", "decisions that differ from those of the full run", "decisions"),
    Column("margin", "float", "smallest distance from a different decision", "eps * largest"),
    Column("differing", "int", "outputs with bits that differ from the full run's", "outputs"),
    Column("error", "float", "largest |output - float64's| / (eps * largest |output|)", "1"),
    Column("error_fixed", "float", "the same for the full run", "1"),
)

REPORTS = second(
    key("thread", "text", "where it was reported: `owner/repository#number`, or a name"),
    Column("number", "int", "its place in the experiment's list"),
    Column("title", "text", "what was reported, in our words"),
    Column(
        "answer", "text", "what its maintainers answered, in our words", null="no answer was read"
    ),
    Column("home", "text", "the reported library, as a target", null="no target of probe"),
    Column("reason", "text", "why it was not run", null="it was run"),
)

FINDINGS = second(
    RUN,
    key("thread", "text", "the report: `reports.thread`"),
    key("question", "text", "which two runs are compared, in words"),
    TARGET,
    Column("case_id", "text", "the left side's case: `cases.case_id`"),
    Column("against_case_id", "text", "the right side's case", null="same, at a different value"),
    Column("against_target", "text", "where the right side ran", null="on the same target"),
    Column("vary", "text", "the axis along which the two sides differ", null="none"),
    Column("at", "int", "its value on the left side", "elements of `vary`", null="no axis"),
    Column("against", "int", "its value on the right side", "elements of `vary`", null="no axis"),
    Column("compared", "int", "outputs that were expected to agree", "outputs"),
    Column("differing", "int", "of these, with different values, or on one side only", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column("bits_at", "bits", "left bits of the first differing output", null="none differs"),
    Column("bits_against", "bits", "its right bits", null="none differs"),
    Column("explained", "int", "differing outputs whose cause was searched for", "outputs"),
    Column("causes", "json", "these, counted by cause: `order`, `rounding`, `window`, ..."),
    Column("replayed", "int", "of these, reproduced bit for bit on both sides", "outputs"),
    Column(
        *("smallest", "json", "smallest case that still differs: case, operands, both summations"),
        null="not searched for",
    ),
)

REMEDIES = second(
    RUN,
    key("case_id", "text", "`cases.case_id`", null="a whole network"),
    key("network_id", "text", "`networks.network_id`", null="a single case"),
    TARGET,
    key("remedy", "text", "`default`, `pad`, `chunks=64`, `threads=1`, `stable`, ..."),
    CONTENT,
    key("fixed", "int", "full length", "positions"),
    Column("about", "text", "the remedy in a few words"),
    Column("place", "text", "the target on which the remedy runs"),
    Column("lengths", "int", "lengths whose orders were compared with that of `fixed`", "lengths"),
    Column("verdict", "text", "`exact` for all finite operands, `differs`, or `not known`"),
    Column("compared", "int", "outputs that must agree", "outputs"),
    Column("differing", "int", "of these, added in a different order than at `fixed`", "outputs"),
    Column("unknown", "int", "of these, those whose summation is unknown", "outputs"),
    Column("refusal", "text", "why it can't be used or judged", null="it can be", foreign=True),
    Column("seconds", "float", "median time of a call at `content`", "s", null="not timed"),
    Column("seconds_fixed", "float", "median time of a call at `fixed`", "s", null="not timed"),
    Column("ratio", "float", "`seconds` over the default's at `content`", "1", null="not timed"),
    Column("of_fixed", "float", "`seconds` over the default's at `fixed`", "1", null="not timed"),
    Column(
        *("ratio_fixed", "float", "`seconds_fixed` over the default's at `fixed`", "1"),
        null="not timed",
    ),
    Column(
        *("error_rms", "float", "root mean square of |output - exact| / (eps * scale) at `fixed`"),
        *("1",),
        null="not run",
    ),
    Column("error_max", "float", "the largest of these", "1", null="not run"),
    Column("keeps", "flag", "whether `fixed` has the default's bits", null="not run"),
    Column(
        "recommended", "flag", "whether it is the cheapest exact one; never for a partial model"
    ),
    Column(
        *("vary", "text", "what `content`, `fixed` and `lengths` are: `length` or `batch`"),
        null="lengths: stored before this column existed",
    ),
)

REFUSED = "refused: see `reason`"
NO_REFEREE = "no direct call of this library, or refused"
EARLIER = "not confirmed, not a number, or stored before this column existed"

REPRODUCTIONS = second(
    *PAIR,
    key("source", "text", "the experiment from whose results the finding was drawn"),
    Column("number", "int", "its place in the draw, from 0"),
    Column("found", "int", "outputs that were compared in the original case", "outputs"),
    Column("processes", "int", "fresh processes that ran the script", "processes"),
    Column("confirmed", "flag", "whether all of them gave the measured bits"),
    Column("reason", "text", "why they did not", null="they did", foreign=True),
    Column("status", "int", "exit status of the script", null="not confirmed"),
    Column("tries", "int", "smaller cases that were tried", "cases", null="not confirmed"),
    Column("runs", "int", "calls of the operator for these", "calls", null="not confirmed"),
    Column("ended", "text", "why the reduction ended: `minimal`, `budget`", null="not confirmed"),
    Column("label", "text", "the smallest case in words", null="not confirmed"),
    Column("smallest", "json", "the smallest case", null="not confirmed"),
    Column("small_summands", "int", "products of each output", "products", null="not confirmed"),
    Column("small_at", "int", "its left value of `vary`", "elements", null="not confirmed"),
    Column("small_against", "int", "its right value of `vary`", "elements", null="not confirmed"),
    Column("small_compared", "int", "its compared outputs", "outputs", null="not confirmed"),
    Column("small_elements", "int", "numbers in its operands", "elements", null="not confirmed"),
    Column("small_not_zero", "int", "of these, nonzero", "elements", null="not confirmed"),
    Column("differing", "int", "its outputs that differ", "outputs", null="not confirmed"),
    Column("max_ulp", "int", "largest distance of these", "ulp", null="none is a number"),
    Column("causes", "json", "these, by cause: `order`, `rounding`, ...", null="not confirmed"),
    Column("replayed", "int", "compared outputs replayed", "outputs", null="not confirmed"),
    Column("emulated", "flag", "whether `emulated.py` prints the same bits", null="no such file"),
    Column("lines", "int", "length of `reproduce.py`", "lines", null="not confirmed"),
    Column("found_differing", "int", "differing outputs, original case", "outputs", null=EARLIER),
    Column("found_max_ulp", "int", "largest distance of these", "ulp", null=EARLIER),
    Column("found_relative", "float", "their largest relative difference", "1", null=EARLIER),
    Column("found_causes", "json", "these, counted by cause", null=EARLIER),
    Column("found_kernels", "json", "kernels of the original case by side, source", null=EARLIER),
    Column("relative", "float", "largest relative difference of `differing`", "1", null=EARLIER),
    Column("kernels", "json", "kernels of the smallest case by side, source", null=EARLIER),
    Column("kept_cause", "flag", "whether it has the main cause and no new one", null=EARLIER),
    Column(
        *("kept_kernels", "flag", "whether the same kernels run"),
        null="the library names none, or stored before this column existed",
    ),
    Column("seconds", "float", "time from the finding to its proof", "s"),
    Column("seconds_proof", "float", "of this, in fresh processes", "s", null="not confirmed"),
)

TRIALS = since(
    3,
    RUN,
    key("number", "int", "the trial's place in the draw"),
    TARGET,
    Column("case_id", "text", "the left side's case: `cases.case_id`"),
    Column("against_target", "text", "where the right side ran", null="on the same target"),
    Column("vary", "text", "the axis along which the two sides differ", null="none"),
    Column("at", "int", "its value on the left side", "elements of `vary`", null="no axis"),
    Column("against", "int", "its value on the right side", "elements of `vary`", null="no axis"),
    Column("compared", "int", "outputs that were compared", "outputs", null=REFUSED),
    Column("differing", "int", "of these, with different values", "outputs", null=REFUSED),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="none is a number"),
    Column("causes", "json", "these, by cause: `order`, `rounding`, ...", null=REFUSED),
    Column("replayed", "int", "differing outputs replayed on both sides", "outputs", null=REFUSED),
    Column("by_order", "int", "outputs added in different orders", "outputs", null=REFUSED),
    Column("unknown", "int", "outputs whose summation is unknown", "outputs", null=REFUSED),
    Column(
        *("refereed", "int", "outputs of direct calls of the library, both sides", "outputs"),
        null=NO_REFEREE,
    ),
    Column("other", "int", "of these, with bits unlike probe's", "outputs", null=NO_REFEREE),
    Column(
        *("missed", "int", "outputs that differ by the direct calls alone", "outputs"),
        null=NO_REFEREE,
    ),
    Column("false", "int", "outputs that differ by probe alone", "outputs", null=NO_REFEREE),
    Column("unrefereed", "text", "why there is no direct call", null="there is", foreign=True),
    Column("reason", "text", "why nothing was compared", null="it was", foreign=True),
    Column("seconds", "float", "time for both sides, their reveals and the direct calls", "s"),
)

NO_WALK = "refused: see `reason`"
MODEL = (
    key("model", "text", "name of the model, of those that the experiment lists"),
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
    Column("carried", "int", "inputs and outputs differ", "operations", null=NO_WALK),
    Column(
        "own",
        "int",
        "of `carried`, those that also differ on equal inputs",
        "operations",
        null="not tested",
    ),
    Column("healed", "int", "inputs differ, outputs agree", "operations", null=NO_WALK),
    Column("one_side", "int", "operations of one run only", "operations", null=NO_WALK),
    Column("first", "text", "name of the first source", null="there is none"),
    Column("first_op", "text", "its operation, as the library calls it", null="there is none"),
    Column("first_cause", "text", "its cause", null="no source, or its cause is unknown"),
    Column("compared", "int", "numbers of the outputs that must agree", "numbers", null=NO_WALK),
    Column("differing", "int", "of these, with different bits", "numbers", null=NO_WALK),
    Column("max_ulp", "int", "largest distance of the outputs", "ulp", null="no number"),
    Column("scaled", "float", "largest difference over the largest output", "eps", null=NO_WALK),
    Column("rows", "int", "rows of the outputs that must agree", "rows", null=NO_WALK),
    Column("crossed", "int", "of these, those with a different argmax", "rows", null=NO_WALK),
    Column("plain_seconds", "float", "time of a run without recording", "s", null=NO_WALK),
    Column("watched_seconds", "float", "time of a recorded run, with digests", "s", null=NO_WALK),
    Column("plain_bytes", "int", "peak memory of a run without recording", "B", null="unknown"),
    Column("watched_bytes", "int", "peak memory of a recorded run", "B", null="unknown"),
    Column("seconds", "float", "time for everything: runs, comparison, causes", "s"),
    Column("notes", "text", "further notes", null="none", foreign=True),
    Column("reason", "text", "why nothing was compared", null="it was", foreign=True),
)

SOURCES = since(
    4,
    RUN,
    *MODEL,
    key("number", "int", "place of the operation in the run"),
    Column("name", "text", "the operation, by its place in the model"),
    Column("verdict", "text", "`source`, or `carried`: it follows one and differs by itself too"),
    Column("op", "text", "what the library calls it"),
    Column(
        "kind", "text", "`product`, `convolution`, `pool`, `reduction`, `norm`, `function`, ..."
    ),
    Column("compared", "int", "numbers that must agree", "numbers"),
    Column("differing", "int", "of these, with different bits", "numbers"),
    Column("max_ulp", "int", "largest distance", "ulp", null="no number"),
    Column("cause", "text", "why it differs: `order`, ...", null="unknown, or not searched for"),
    Column("examined", "int", "differing numbers searched for a cause", "numbers", null="none"),
    Column("replayed", "int", "of these, replayed on both sides", "numbers", null="none"),
    Column("alone", "int", "1: run alone, it gave its bits on both sides", null="not tried"),
    Column("why", "text", "the cause in a sentence", null="not searched for", foreign=True),
)

INVARIANCES = since(
    5,
    RUN,
    key("subject", "text", "name of the layer or model, of those that the experiment lists"),
    TARGET,
    key("axis", "text", "what was varied: `size`, `batch`, `order`, `padding`, `threads`"),
    key("like", "text", "`like` of the invariant mode: `largest` or `cheapest`"),
    key("threads", "int", "threads of the library", "threads"),
    Column("kind", "text", "`linear`, `conv2d`, `grouped`, ..., `model`"),
    Column("dtype", "text", "format of the numbers"),
    Column("sizes", "ranges", "sizes that were run: start, stop, ..."),
    Column("compared", "int", "numbers that must agree, of all sizes and operands", "numbers"),
    Column("plain", "int", "of these, with different bits in the unchanged library", "numbers"),
    Column("plain_sizes", "ranges", "sizes at which `plain` is not 0: start, stop, ..."),
    Column("differing", "int", "of `compared`, different in the invariant mode", "numbers"),
    Column("differing_sizes", "ranges", "sizes at which `differing` is not 0: start, stop, ..."),
    Column(
        *("kept", "flag", "whether the largest size has the unchanged library's bits"),
        null="not promised by `cheapest`",
    ),
    Column("left", "int", "operations that the mode left unchanged", "operations"),
    Column("notes", "text", "notes of the mode", null="none", foreign=True),
    Column("seconds", "float", "time for this row", "s"),
)

VERSION = 5
"""Version of the format that is written. All older ones can be read: see :data:`HISTORY`."""

HISTORY: dict[int, str] = {
    1: "The first format: every table and column that is not listed below.",
    2: "Whole networks: `networks`, `activations`, `padded_lengths`, `programs`, `decisions`. "
    "Public reports: `reports`, `findings`. `remedies`, `reproductions`.",
    3: "`trials`; `comparisons.signed_zero`, `reveals.certified`; layouts as an axis.",
    4: "Models of any shape: `walks`, `sources`.",
    5: "The invariant mode: `invariances`.",
}
"""What each version added. A column that is newer than a file reads as null."""

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
    "networks": "One row per network. If `part` is given, the other tables describe that part "
    "alone.",
    "activations": "One row per layer of a network, run at a padded length and compared with the "
    "full length.",
    "padded_lengths": "One row per valid length: how far it must be padded.",
    "programs": "One row per valid length and kind of padding: the network run end to end.",
    "decisions": "One row per decision made from a network's outputs, with the outputs' error.",
    "reports": "One row per public report of runs that were expected to agree and do not.",
    "findings": "One row per question of a public report and target: what happens today.",
    "remedies": "One row per remedy of a case or network on a target. The exact sums are those of "
    "float64; the scale is sum|x*w|, for a network the largest |output|.",
    "reproductions": "One row per finding that was drawn, reduced, and reproduced by its script.",
    "trials": "One row per random pair of runs: what probe finds, and what direct calls of the "
    "libraries give.",
    "walks": "One row per pair of runs of a model, compared operation by operation.",
    "sources": "One row per operation that differs although its inputs agree, or were made to.",
    "invariances": "One row per layer or model and varied axis: how many numbers change in the "
    "unchanged library and in the invariant mode.",
}
"""What a row of each table stands for."""

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
    """Returns 16 hex digits, a hash of everything in :data:`RUN_IDENTITY` that may decide bits.

    Time, git state and probe's version are not part of it, so the same command on the same
    software resumes its run, and an upgraded library starts a new one.
    """
    facts = {name: row.get(name) for name in RUN_IDENTITY}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def names(table: str) -> list[str]:
    """Returns the column names of a table, in order."""
    return [column.name for column in TABLES[table]]


def keys(table: str) -> list[str]:
    """Returns the names of the columns that identify a row of a table."""
    return [column.name for column in TABLES[table] if column.key]


@cache
def arrow_schema(table: str) -> pyarrow.Schema:
    """Returns the Arrow schema of a table, whose metadata has its name and the format's version."""
    import pyarrow as pa

    fields = [pa.field(column.name, column.arrow()) for column in TABLES[table]]
    return pa.schema(fields, {"probe.table": table, "probe.schema_version": str(VERSION)})


def described(table: str) -> pyarrow.Schema:
    """Returns the schema of files: ``arrow_schema`` with ``description``, ``unit`` and ``null``.

    ``null`` is what a null means; it is absent if the column is never null. ``unit`` is absent if
    there is none. The description of the table itself is ``probe.about``.
    """
    plain, about = arrow_schema(table), {b"probe.about": ABOUT[table].encode()}
    for place, column in enumerate(TABLES[table]):
        told = {"description": column.meaning, "unit": column.unit, "null": column.null or ""}
        field = plain.field(place).with_metadata({k: v for k, v in told.items() if v})
        plain = plain.set(place, field)
    return plain.with_metadata({**plain.metadata, **about})


def readme() -> str:
    """Returns the text of ``results/README.md``; a test checks that the file has exactly this."""
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

Each experiment has a folder, in it each machine has a folder, and in it each table is a Parquet
file, so that results of several machines merge by copying folders. `probe.load("results/NAME")`
reads them as pandas frames; polars and DuckDB read the same files. Columns in **bold** identify a
row. An ulp (unit in the last place) is the distance from a floating-point number to the next one,
and eps is the distance from 1 to the next larger number of the data type.

Generated by `probe.schema.readme()`, format version {version}. Do not edit.
"""


def _line(column: Column) -> str:
    name = f"**{column.name}**" if column.key else column.name
    null = "never null" if column.null is None else column.null
    kind = f"json in {TYPES['json']}" if column.type == "json" else TYPES[column.type]
    cells = (name, kind, column.unit, column.meaning, null, str(column.since))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
