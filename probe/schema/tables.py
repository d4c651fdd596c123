"""Defines columns, and every stored table in the order in which files have its columns.

First the tables of single cases: what was run, what differs, why, how long. Then those of networks,
whole models, public reports, remedies and scripts, and of how well probe answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow


# The int64 that stands for null in arrays: no distance in ulps is that small.
NULL_INT = -(2**63)

# Our type names and the Arrow type of each. ``json`` is text with sorted keys.
TYPES = {
    "text": "string",
    "json": "string",
    "int": "int64",
    "bits": "uint64",
    "float": "float64",
    "flag": "bool",
    "time": "timestamp[us, UTC]",
    "ranges": "list<int64>",
    "indices": "list<int64>",
}


@dataclass(frozen=True)
class Column:
    """One column of a table: its name, type, unit and meaning.

    ``null`` says what a null means; None: the column is never null. Columns with ``key`` identify
    a row: of two rows with the same keys the later one counts. ``foreign`` marks text that probe
    did not write (a library's messages): host, user and paths are removed when it is stored.
    In NumPy arrays NaN and :data:`NULL_INT` stand for null.
    """

    name: str
    type: str
    meaning: str
    unit: str = ""
    null: str | None = None
    key: bool = False
    since: int = 1
    foreign: bool = False

    def arrow(self) -> pyarrow.DataType:
        """Returns the Arrow type of the column."""
        import pyarrow as pa

        types = {
            "string": pa.string(),
            "int64": pa.int64(),
            "uint64": pa.uint64(),
            "float64": pa.float64(),
            "bool": pa.bool_(),
            "timestamp[us, UTC]": pa.timestamp("us", tz="UTC"),
            "list<int64>": pa.list_(pa.int64()),
        }
        return types[TYPES[self.type]]


def key_column(
    name: str, type: str, meaning: str, unit: str = "", null: str | None = None, since: int = 1
) -> Column:
    """Returns a column that identifies a row."""
    return Column(name, type, meaning, unit, null, key=True, since=since)


def since(version: int, *columns: Column) -> tuple[Column, ...]:
    """Returns columns that a version of the format added; those that a later one did say so."""
    return tuple(replace(column, since=max(version, column.since)) for column in columns)


# Returns columns that the second version of the format added.
second = partial(since, 2)


RUN = key_column("run_id", "text", "the run that measured it: `runs.run_id`")
CASE = key_column("case_id", "text", "what was computed: `cases.case_id`")
TARGET = key_column("target", "text", "where it was computed: canonical target text")
VARY = key_column(
    *("vary", "text"),
    "the axis that was varied: `length`, `batch`, `filters`, `channels`, `layout`",
)
# The integers that stand for words of :mod:`probe.layout` in ``at`` and ``against``.
LAYOUTS = (
    "layouts by number: 1 `contiguous`, 2 `transposed`, 3 `channels_last`, 4 `strided`, "
    "1000 + N `offset:N`"
)
AT = key_column("at", "int", f"the axis' value on the left side; {LAYOUTS}", "elements of `vary`")
AGAINST = key_column("against", "int", "the axis' value on the right side", "elements of `vary`")
PAIR = (RUN, CASE, TARGET, VARY, AT, AGAINST)
PLACE = (RUN, CASE, TARGET, VARY, AT)
FLAT = "flat index into the left output, shape (batch, *spatial, filters), row-major"
RANGES = "which outputs: start, stop, start, stop, ...; " + FLAT


RUNS = (
    key_column(
        "run_id",
        "text",
        "hash of everything that may decide bits, see `probe.schema.run_id`",
    ),
    Column("started", "time", "when the run was started or last resumed", "UTC"),
    Column("experiment", "text", "the experiment's name", null="not run from an experiment"),
    Column("target", "text", "canonical target text"),
    Column("library", "text", "distribution name", null="the library did not start"),
    Column("library_version", "text", "its version", null="the library did not start"),
    Column("python_version", "text", "the target's Python", null="the library did not start"),
    Column("numpy_version", "text", "the target's NumPy", null="the library did not start"),
    Column("device", "text", "`cpu`, `gpu:0`, `arm64`, ..."),
    Column("machine", "text", "the machine's label, also the name of its results folder"),
    Column("cpu_vendor", "text", "`AuthenticAMD`, `GenuineIntel`, ...", null="not reported"),
    Column("cpu_model", "text", "model name that the processor reports", null="not reported"),
    Column("cpu_family", "int", "CPUID family", null="not an x86 processor"),
    Column("cpu_model_number", "int", "CPUID model", null="not an x86 processor"),
    Column("cpu_isa", "text", "widest vector extension: `sse41`, `avx2`, ...", null="not reported"),
    Column("cores", "int", "processors that the run may use", "logical processors"),
    Column("os", "text", "system and C library, such as `Linux glibc 2.36`"),
    Column("emulated", "text", "what emulates the processor", null="nothing: native"),
    Column("switches", "json", "every switch of the target with its value, defaults included"),
    Column("environment", "json", "the variables set for the target's process", foreign=True),
    Column("git_commit", "text", "the commit of probe's checkout", null="not run from a checkout"),
    Column(
        "git_dirty",
        "flag",
        "whether tracked source files had changes",
        null="not run from a checkout",
    ),
    Column("probe_version", "text", "version of probe"),
    Column("schema_version", "int", "version of this format"),
)

CASES = (
    key_column("case_id", "text", "hash of the case's content"),
    Column("op", "text", "`conv1d`, `conv2d`, `conv3d`, `depthwise_conv2d`, ..."),
    Column("kernel", "text", "kernel size, `5` or `1x5`", "elements of each spatial axis"),
    Column("in_channels", "int", "input channels", "channels"),
    Column("filters", "int", "output channels", "channels"),
    Column("stride", "text", "`1` or `1x2`", "elements of each spatial axis"),
    Column("dilation", "text", "`1` or `1x2`", "elements of each spatial axis"),
    Column("groups", "int", "channel groups"),
    Column("padding", "text", "`valid`, `same`, `caffe`, `1`, `0:1`, `0:1,2:2`"),
    Column("length", "int", "last spatial axis", "elements", null="given by the sweep"),
    Column("height", "text", "the other spatial axes", "elements", null="the kernel's extent"),
    Column("batch", "int", "batch size", "entries"),
    Column("dtype", "text", "`float32`, `float64`, `float16`, `bfloat16`"),
    Column("operands", "text", "kind of generated operands"),
    Column("seed", "int", "seed of the generated operands"),
    Column("summands", "int", "products added for one output, the bias not counted", "products"),
    Column("json", "json", "the whole case, as `Case.from_json` reads it"),
)

COMPARISONS = (
    *PAIR,
    Column("compared", "int", "outputs that must agree and were compared", "outputs"),
    Column(
        "not_compared",
        "int",
        "left outputs without a partner, or with a different window",
        "outputs",
    ),
    Column("differing", "int", "compared outputs whose values differ", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column("max_scaled", "float", "largest |difference| / (eps * sum|x*w|)", "1", null="not known"),
    Column("first", "int", "first differing output: " + FLAT, null="none differs"),
    Column(
        *("control", "text", "the same shape, run again: `equal`, `differs`, `alignment differs`"),
        null="not run",
    ),
    Column("digest_at", "text", "hash of the left outputs that were compared"),
    Column("digest_against", "text", "hash of the right outputs that were compared"),
    Column("kept", "int", "differing outputs that are rows of `differences`", "outputs"),
    Column("seconds", "float", "time of the left call in the library", "s", null="not timed"),
    Column(
        "signed_zero",
        "int",
        "compared outputs that are +0 on one side and -0 on the other",
        "outputs",
        null="not counted",
        since=3,
    ),
)

DIFFERENCES = (
    *PAIR,
    key_column("index", "int", FLAT),
    Column("batch", "int", "batch entry"),
    Column("row", "int", "flat index over the spatial axes except the last; 0 if it has one"),
    Column("position", "int", "index on the last spatial axis"),
    Column("channel", "int", "filter"),
    Column("bits_at", "bits", "the left value's bits, zero-extended"),
    Column("bits_against", "bits", "the right value's bits, zero-extended"),
    Column(
        "ulp", "int", "signed distance, right minus left", "ulp", null="NaN, or too large for int64"
    ),
    Column("scaled", "float", "(right - left) / (eps * sum|x*w|)", "1", null="not known"),
)

OUTPUTS = (
    *PLACE,
    key_column(
        "index", "int", "flat index into the output, shape (batch, *spatial, filters), row-major"
    ),
    Column("batch", "int", "batch entry"),
    Column("row", "int", "flat index over the spatial axes except the last; 0 if it has one"),
    Column("position", "int", "index on the last spatial axis"),
    Column("channel", "int", "filter"),
    Column("bits", "bits", "the value's bits, zero-extended"),
)

WINDOWS = (
    RUN,
    CASE,
    TARGET,
    key_column(
        "group", "int", "channel group, whose filters read the same; for pooling, the channel"
    ),
    key_column("position", "int", "output position: flat index over (batch, *spatial)"),
    Column(
        "reads",
        "indices",
        "for each product, in the order of the weights, the input it reads: flat index into x, "
        "shape (batch, *spatial, channels); -1 is padding. For pooling, of each element of the "
        "window",
    ),
    Column("as_said", "flag", "whether these are the inputs that the case's padding implies"),
    Column(
        "counted", "int", "number by which an average divides", "elements", null="not an average"
    ),
    Column("pad_with", "text", "value of the padding of pooling", null="no padding, or no pooling"),
)

FAILURES = (
    RUN,
    key_column("case_id", "text", "`cases.case_id`", null="failed before any case"),
    TARGET,
    key_column("vary", "text", "the axis that was varied", null="failed before any case"),
    key_column("at", "int", "its value", "elements of `vary`", null="not at a single value"),
    Column("kind", "text", "`unavailable`, `unsupported`, `error`, `crash`, `timeout`, ..."),
    Column("message", "text", "what went wrong, in one line", foreign=True),
    Column("stderr", "text", "the last lines that the process printed", null="none", foreign=True),
)

ORDERS = (
    key_column("order_id", "text", "hash of the tree"),
    Column("tree", "text", "the tree, such as `(((0+1)+(2+3))+4)`; leaves are product numbers"),
    Column("leaves", "int", "summands, including the bias where it is one of them", "summands"),
    Column("depth", "int", "most additions between a leaf and the root", "additions"),
    Column("children_max", "int", "most children of a node", "summands"),
    Column(
        "fprev", "int", "calls that FPRev needs for such an output", "calls", null="not counted"
    ),
)

ROUNDINGS = (
    key_column("rounding_id", "text", "hash of all columns that follow"),
    Column("style", "text", "which products are fused into an addition: `none`, `all`, `some`"),
    Column("fused", "ranges", "leaves fused with their addition: start, stop, ..."),
    Column("products", "text", "format of the products", null="the case's dtype"),
    Column("accumulator", "text", "format of the partial sums", null="the case's dtype"),
    Column("json", "json", "everything besides the tree that a replay needs"),
)

REVEALS = (
    *PLACE,
    key_column("order_id", "text", "`orders.order_id`", null="the outputs are not sums"),
    key_column("rounding_id", "text", "`roundings.rounding_id`", null="not known"),
    Column("outputs", "int", "outputs that have this order and rounding", "outputs"),
    Column("replayed", "int", "of these, reproduced bit for bit", "outputs"),
    Column("ranges", "ranges", RANGES),
    Column(
        "calls", "int", "calls of the operator on chosen operands, for the whole reveal", "calls"
    ),
    Column("checks", "int", "further calls: controls and replay", "calls", null="not counted"),
    Column("seconds", "float", "time of the whole reveal", "s"),
    Column("evidence", "text", "why the outputs are not sums", null="they are sums"),
    Column(
        "certified",
        "int",
        "of the outputs, those of which every addition and every fusion was tested",
        "outputs",
        null="not tested",
        since=3,
    ),
)

CAUSES = (
    *PAIR,
    key_column(
        "cause", "text", "`window`, `order`, `rounding`, `alignment`, `order+rounding`, ..."
    ),
    Column("outputs", "int", "differing outputs with this cause", "outputs"),
    Column("replayed", "int", "of these, reproduced bit for bit on both sides", "outputs"),
    Column("ranges", "ranges", RANGES),
    Column(
        "beyond",
        "int",
        "of these, those with a side that no order of additions can give",
        "outputs",
        null="not judged",
        since=8,
    ),
)

KERNELS = (
    *PLACE,
    key_column("source", "text", "`onednn-verbose`, `symbols`, `backend-choice`, ..."),
    Column("kernel", "text", "kernel that the library reports", null="unknown: see `missing`"),
    Column("missing", "text", "why the kernel is unknown", null="it is known", foreign=True),
)

MEASUREMENTS = (
    RUN,
    key_column("subject", "text", "what was measured, in words"),
    key_column("variant", "text", "which variant was measured: `probe`, `by hand`, ..."),
    key_column("size", "int", "amount of work: comparisons, elements, lengths"),
    key_column("repeat", "int", "number of the repetition; equal numbers were measured in turns"),
    Column("value", "float", "the measured value", "see `unit`"),
    Column("unit", "text", "`s` (wall-clock time), `MiB` (peak memory), ..."),
)

NETWORK = key_column("network_id", "text", "hash of the chain of layers with its weights")
CONTENT = key_column("content", "int", "valid length: positions of data, at the start", "positions")
PADDED = key_column("padded", "int", "length of the short run: data and padding", "positions")
FIXED = Column("fixed", "int", "full length, with which the short run is compared", "positions")

NETWORKS = second(
    NETWORK,
    Column("name", "text", "the network's name"),
    Column(
        "source", "text", "the model that it is: a file, or `module:function`", null="not given"
    ),
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
    key_column("layer", "int", "number of the layer, from 0"),
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
    Column(
        *("control", "text", "the same shape, run again: `equal`, `differs`, `alignment differs`"),
        null="not run",
    ),
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
    key_column("variant", "text", "which run: `least`, `safe`, or `layerwise`"),
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
    key_column("variant", "text", "which run: `fixed`, `least`, `safe`, `layerwise`, ..."),
    key_column(
        "decision", "text", "the decision over the channels: `argmax`, `top-5`, `threshold`"
    ),
    Column("padded", "int", "the run's padded length", "positions"),
    Column("taken", "int", "decisions: one per position, or per value", "decisions"),
    Column("crossed", "int", "decisions that differ from those of the full run", "decisions"),
    Column("margin", "float", "smallest distance from a different decision", "eps * largest"),
    Column("differing", "int", "outputs with bits that differ from the full run's", "outputs"),
    Column("error", "float", "largest |output - float64's| / (eps * largest |output|)", "1"),
    Column("error_fixed", "float", "the same for the full run", "1"),
)

REPORTS = second(
    key_column("thread", "text", "where it was reported: `owner/repository#number`, or a name"),
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
    key_column("thread", "text", "the report: `reports.thread`"),
    key_column("question", "text", "which two runs are compared, in words"),
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
    key_column("case_id", "text", "`cases.case_id`", null="a whole network"),
    key_column("network_id", "text", "`networks.network_id`", null="a single case"),
    TARGET,
    key_column("remedy", "text", "`default`, `pad`, `chunks=64`, `threads=1`, `stable`, ..."),
    CONTENT,
    key_column("fixed", "int", "full length", "positions"),
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

JUDGED_SINCE = 8
# What is proved of differing outputs, in tables of runs: see ``probe.enclosure``.
VERDICT_COUNTS = since(
    JUDGED_SINCE,
    *(
        Column(name, "int", meaning, "outputs", null="not judged, or stored before version 8")
        for name, meaning in {
            "explained": "of the differing ones, replayed on both sides",
            "within": "of the others, both sides inside of all that rounding can give",
            "beyond": "of the others, outside of it on a side: no rounding",
            "open": "of the others, neither is known",
        }.items()
    ),
)

REFUSED = "refused: see `reason`"
NO_REFEREE = "no direct call of this library, or refused"
EARLIER = "not confirmed, not a number, or stored before this column existed"

REPRODUCTIONS = second(
    *PAIR,
    key_column("source", "text", "the experiment from whose results the finding was drawn"),
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

TRIALS = (
    *since(
        3,
        RUN,
        key_column("number", "int", "the trial's place in the draw"),
        TARGET,
        Column("case_id", "text", "the left side's case: `cases.case_id`"),
        Column("against_target", "text", "where the right side ran", null="on the same target"),
        Column("vary", "text", "the axis along which the two sides differ", null="none"),
        Column("at", "int", "its value on the left side", "elements of `vary`", null="no axis"),
        Column(
            "against", "int", "its value on the right side", "elements of `vary`", null="no axis"
        ),
        Column("compared", "int", "outputs that were compared", "outputs", null=REFUSED),
        Column("differing", "int", "of these, with different values", "outputs", null=REFUSED),
        Column("max_ulp", "int", "largest absolute distance", "ulp", null="none is a number"),
        Column("causes", "json", "these, by cause: `order`, `rounding`, ...", null=REFUSED),
        Column(
            "replayed", "int", "differing outputs replayed on both sides", "outputs", null=REFUSED
        ),
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
    ),
    *VERDICT_COUNTS,
)

NOT_RUN = "not run: see `reason`"

NO_VERDICT = "conditions were asked for"

PLANTED = since(
    6,
    RUN,
    key_column("number", "int", "the pair's place in the draw"),
    TARGET,
    Column("title", "text", "what was done to one of two functions, in words", null=NOT_RUN),
    Column("planted", "text", "the causes that are right, or `nothing`", null=NOT_RUN),
    Column("direct", "int", "outputs that differ in direct calls", "outputs", null=NOT_RUN),
    Column("verdict", "text", "of the outputs: `equal`, `differs`, `unknown`", null=NOT_RUN),
    Column(
        *("differing", "int", "outputs that differ as probe says", "outputs"),
        null="the verdict is `unknown`, or not run",
    ),
    Column("cause", "text", "the first operation's cause", null="none, or unknown"),
    Column("arguments", "text", "its arguments that differ", null="none do", foreign=True),
    Column("answer", "text", "`right`, `unknown` or `false`", null=NOT_RUN),
    Column("why", "text", "the cause in a sentence", null="no operation differs", foreign=True),
    Column("reason", "text", "why it was not run", null="it was", foreign=True),
    Column("seconds", "float", "time for the direct calls and the answer", "s"),
)

PROMISES = since(
    6,
    RUN,
    key_column("number", "int", "the case's place in the draw"),
    TARGET,
    Column("case_id", "text", "the case: `cases.case_id`"),
    Column("vary", "text", "`length` or `batch`"),
    Column("upto", "int", "the largest size that was asked for", "elements of `vary`"),
    Column("classes", "int", "classes of sizes", null=REFUSED),
    Column("sizes", "int", "sizes that they or the floor promise", "sizes", null=REFUSED),
    Column("floor", "int", "the floor", "elements of `vary`", null="no floor, or refused"),
    Column("step", "int", "its multiples", "elements of `vary`", null=REFUSED),
    Column("certified", "flag", "whether every addition of all sizes was tested", null=REFUSED),
    Column(
        "compared", "int", "outputs of direct calls that were compared", "outputs", null=REFUSED
    ),
    Column("false", "int", "promised sizes that a direct call contradicts", "sizes", null=REFUSED),
    Column("expected", "int", "sizes that are only expected in a class", "sizes", null=REFUSED),
    Column("unexpected", "int", "of these, contradicted by a direct call", "sizes", null=REFUSED),
    Column("reason", "text", "why nothing was promised", null="it was", foreign=True),
    Column("seconds", "float", "time for the search and the direct calls", "s"),
)

NO_WALK = "refused: see `reason`"
MODEL = (
    key_column("model", "text", "name of the model, of those that the experiment lists"),
    TARGET,
    key_column("vary", "text", "`batch`, `length`, `padding`, `threads`, `mode`, `library`"),
    key_column("at", "text", "its value on the left side"),
    key_column("against", "text", "its value on the right side"),
)

WALKS = (
    *since(
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
        Column(
            *("first_cause", "text", "its cause: `order`, `place`, `argument`, `alignment`, ..."),
            null="no source, or its cause is unknown",
        ),
        Column(
            "compared", "int", "numbers of the outputs that must agree", "numbers", null=NO_WALK
        ),
        Column("differing", "int", "of these, with different bits", "numbers", null=NO_WALK),
        Column("max_ulp", "int", "largest distance of the outputs", "ulp", null="no number"),
        Column(
            "scaled", "float", "largest difference over the largest output", "eps", null=NO_WALK
        ),
        Column("rows", "int", "rows of the outputs that must agree", "rows", null=NO_WALK),
        Column("crossed", "int", "of these, those with a different argmax", "rows", null=NO_WALK),
        Column("plain_seconds", "float", "time of a run without recording", "s", null=NO_WALK),
        Column(
            "watched_seconds", "float", "time of a recorded run, with digests", "s", null=NO_WALK
        ),
        Column("plain_bytes", "int", "peak memory of a run without recording", "B", null="unknown"),
        Column("watched_bytes", "int", "peak memory of a recorded run", "B", null="unknown"),
        Column("seconds", "float", "time for everything: runs, comparison, causes", "s"),
        Column("notes", "text", "further notes", null="none", foreign=True),
        Column("reason", "text", "why nothing was compared", null="it was", foreign=True),
    ),
    *VERDICT_COUNTS,
    *since(
        JUDGED_SINCE,
        *(
            Column(name, "int", meaning, "decisions", null="none is known, or before version 8")
            for name, meaning in {
                "decisions": "argmaxes, top fives and signs of the outputs",
                "changed": "of these, that differ between the runs",
                "proved": "of these, that no order of additions can change",
            }.items()
        ),
    ),
)

SOURCES = (
    *since(
        4,
        RUN,
        *MODEL,
        key_column("number", "int", "place of the operation in the run"),
        Column("name", "text", "the operation, by its place in the model"),
        Column(
            "verdict", "text", "`source`, or `carried`: it follows one and differs by itself too"
        ),
        Column("op", "text", "what the library calls it"),
        Column(
            "kind", "text", "`product`, `convolution`, `pool`, `reduction`, `norm`, `function`, ..."
        ),
        Column("compared", "int", "numbers that must agree", "numbers"),
        Column("differing", "int", "of these, with different bits", "numbers"),
        Column("max_ulp", "int", "largest distance", "ulp", null="no number"),
        Column(
            *("cause", "text", "why it differs: `order`, `place`, `argument`, `alignment`, ..."),
            null="unknown, or not searched for",
        ),
        Column("examined", "int", "differing numbers searched for a cause", "numbers", null="none"),
        Column("replayed", "int", "of these, replayed on both sides", "numbers", null="none"),
        Column("alone", "int", "1: run alone, it gave its bits on both sides", null="not tried"),
        Column("why", "text", "the cause in a sentence", null="not searched for", foreign=True),
    ),
    *VERDICT_COUNTS,
)

INVARIANCES = since(
    5,
    RUN,
    key_column("subject", "text", "name of the layer or model, of those that the experiment lists"),
    TARGET,
    key_column("axis", "text", "what was varied: `size`, `batch`, `order`, `padding`, `threads`"),
    key_column("like", "text", "`like` of the invariant mode: `largest` or `cheapest`"),
    key_column("threads", "int", "threads of the library", "threads"),
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

VERDICTS = since(
    7,
    RUN,
    key_column(
        "part",
        "text",
        "`planted`, `control`, `pairs`, `reports`, `models`, `conditions`, `releases`",
    ),
    key_column("name", "text", "what was compared: the planted mistake, the model, ..."),
    TARGET,
    key_column("dtype", "text", "format of operands and results; empty where there are several"),
    key_column("summands", "int", "products of each sum; 0 where there are several"),
    Column("pairs", "int", "pairs of runs", "pairs", null="not of runs"),
    Column("outputs", "int", "outputs that differ, or were made to", "outputs", null=NO_VERDICT),
    Column("explained", "int", "of these, replayed on both sides", "outputs", null=NO_VERDICT),
    Column(
        "within",
        "int",
        "of these, inside of all that rounding can give",
        "outputs",
        null=NO_VERDICT,
    ),
    Column("beyond", "int", "of these, outside of it on a side", "outputs", null=NO_VERDICT),
    Column("unknown", "int", "of these, neither is known", "outputs", null=NO_VERDICT),
    Column(
        *(
            "effect",
            "float",
            "how many times as large a mistake that is `within` had to be, median",
        ),
        null="none is within, or not planted",
    ),
    Column(
        "decisions", "int", "argmaxes, top fives and signs of outputs", "decisions", null="no model"
    ),
    Column(
        "changed", "int", "of these, that differ between the runs", "decisions", null="no model"
    ),
    Column("proved", "int", "of these, that no order can change", "decisions", null="no model"),
    Column(
        "conditions", "text", "the smallest sets that bring the bits back", null="not asked for"
    ),
    Column("seconds", "float", "time for this row", "s"),
    Column("cause", "text", "why they differ, in words", null="none does, or not asked", since=8),
)

ACCURACIES = since(
    JUDGED_SINCE,
    *PAIR,
    key_column("index", "int", "flat index into the left output, as in `differences`"),
    Column("verdict", "text", "`explained`, `within`, `beyond` or `unknown`: can rounding give it"),
    Column("exact", "float", "the exact sum of the same products, rounded", null="no number"),
    Column("sizes", "float", "sum of |x w| of the products and the bias", "1"),
    Column("condition", "float", "sum |x w| / |sum x w|", "1", null="the exact sum is zero"),
    Column("bound", "float", "how far from `exact` rounding can lead at the most, in any order"),
    *(
        column
        for side, word in (("at", "left"), ("against", "right"))
        for column in (
            Column(
                f"depth_{side}",
                "int",
                f"most additions on the way of a product of the {word} sum",
                "additions",
                null="its order is not known",
            ),
            Column(
                f"error_{side}",
                "float",
                f"distance of the {word} result from the exact one, in ulps of that",
                "ulp",
                null="no number",
            ),
            Column(
                f"used_{side}",
                "float",
                f"the same in units of `bound`; above 1 the {word} result is no rounding",
                "1",
                null="no number",
            ),
        )
    ),
)

# Every table with its columns, in the order in which files have them.
TABLES: dict[str, tuple[Column, ...]] = {
    "runs": RUNS,
    "cases": CASES,
    "comparisons": COMPARISONS,
    "differences": DIFFERENCES,
    "outputs": OUTPUTS,
    "windows": WINDOWS,
    "failures": FAILURES,
    "orders": ORDERS,
    "roundings": ROUNDINGS,
    "reveals": REVEALS,
    "causes": CAUSES,
    "kernels": KERNELS,
    "measurements": MEASUREMENTS,
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
    "planted": PLANTED,
    "promises": PROMISES,
    "walks": WALKS,
    "sources": SOURCES,
    "invariances": INVARIANCES,
    "verdicts": VERDICTS,
    "accuracies": ACCURACIES,
}

# What a row of each table is.
ABOUT: dict[str, str] = {
    "runs": "One row per run: a target on a machine, with the state of its software.",
    "cases": "One row per case: what was computed.",
    "comparisons": "One row per case, target and pair of values of the varied axis.",
    "differences": "One row per differing output.",
    "outputs": "One row per output that an experiment stores in full, whether it differs or not.",
    "windows": "One row per output position of a group: which inputs it reads, as revealed.",
    "failures": "One row per failure of a target. A failure is not a finding.",
    "orders": "One row per distinct summation tree.",
    "roundings": "One row per distinct rounding: which products are fused, and the formats.",
    "reveals": "One row per order and rounding that some outputs of a call share.",
    "causes": "One row per cause of some differences of a comparison.",
    "kernels": "One row per kernel that the library itself reports: evidence, never a cause.",
    "measurements": "One row per repetition of a measurement, of probe or of a network.",
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
    "planted": "One row per pair of functions whose difference is known, as it was planted: what "
    "probe answers.",
    "promises": "One row per random case: at which sizes `probe thresholds` says that all rows add "
    "alike, and what direct calls of the library say at each of them.",
    "walks": "One row per pair of runs of a model, compared operation by operation.",
    "sources": "One row per operation that differs although its inputs agree, or were made to.",
    "invariances": "One row per layer or model and varied axis: how many numbers change in the "
    "unchanged library and in the invariant mode.",
    "verdicts": "One row per planted mistake, library, model or pair of conditions: which of the "
    "differing outputs rounding can explain.",
    "accuracies": "One row per differing output that was explained, of many evenly taken ones: how "
    "far each side is from the exact result, and what rounding can do at the most.",
}
