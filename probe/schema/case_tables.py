"""Defines columns, and the tables of single cases: what was run, what differs, why, how long."""

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

TABLES = {
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
}

ABOUT = {
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
}
