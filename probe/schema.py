"""THE columns: name, type, unit, meaning, what null means, since which version.

The store, ``results/README.md`` and the notebooks are derived from or checked against this file.
pyarrow is imported only where it is asked for, so that importing this module costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

VERSION = 2
"""Version of the format that is written. Every older one is read: see :data:`HISTORY`."""

HISTORY: dict[int, str] = {
    1: "The first format: every table and column that is not said to be younger.",
    2: "Whole networks: `networks`, `activations`, `padded_lengths`, `programs`, `decisions`. "
    "Public reports: `reports`, `findings`. `remedies`, `reproductions`.",
}
"""What each version changed. A column that is younger than a file reads as null."""

NULL_INT = -(2**63)
"""The int64 that stands for null in arrays: no distance in ulps is as small."""

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
"""Our type names and the Arrow type of each. ``json`` is text with sorted keys."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    ``null`` says what a null means; None: the column is never null. Columns with ``key`` identify
    a row: of two rows with the same keys the later one counts. ``foreign`` text was written by
    something else (a library's messages): host, user and paths are taken out when it is stored.
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
        """Arrow type of the column."""
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


def _key(
    name: str, type: str, meaning: str, unit: str = "", null: str | None = None, since: int = 1
) -> Column:
    return Column(name, type, meaning, unit, null, key=True, since=since)


def _second(*columns: Column) -> tuple[Column, ...]:
    """Columns of a table that the second version of the format brought."""
    return tuple(replace(column, since=2) for column in columns)


_RUN = _key("run_id", "text", "the run that measured it: `runs.run_id`")
_CASE = _key("case_id", "text", "what was computed: `cases.case_id`")
_TARGET = _key("target", "text", "where it was computed: canonical target text")
_VARY = _key("vary", "text", "the axis that was changed: `length`, `batch`, `filters`, `channels`")
_AT = _key("at", "int", "the axis' value on the left side", "elements of `vary`")
_AGAINST = _key("against", "int", "the axis' value on the right side", "elements of `vary`")
_PAIR = (_RUN, _CASE, _TARGET, _VARY, _AT, _AGAINST)
_PLACE = (_RUN, _CASE, _TARGET, _VARY, _AT)
_FLAT = "flat index into the left output, shape (batch, *spatial, filters), row-major"
_RANGES = "which outputs: start, stop, start, stop, ...; " + _FLAT

_RUNS = (
    _key(
        "run_id",
        "text",
        "hash of all that may decide bits, see `probe.schema.run_id`",
    ),
    Column("started", "time", "when the run was started, or last continued", "UTC"),
    Column("experiment", "text", "the experiment's name", null="not run from an experiment"),
    Column("target", "text", "canonical target text"),
    Column("library", "text", "distribution name", null="the library did not start"),
    Column("library_version", "text", "its version", null="the library did not start"),
    Column("python_version", "text", "the target's Python", null="the library did not start"),
    Column("numpy_version", "text", "the target's NumPy", null="the library did not start"),
    Column("device", "text", "`cpu`, `gpu:0`, `arm64`, ..."),
    Column("machine", "text", "the machine's label, also the name of its results folder"),
    Column("cpu_vendor", "text", "`AuthenticAMD`, `GenuineIntel`, ...", null="not told"),
    Column("cpu_model", "text", "model name as the processor tells it", null="not told"),
    Column("cpu_family", "int", "CPUID family", null="not an x86 processor"),
    Column("cpu_model_number", "int", "CPUID model", null="not an x86 processor"),
    Column("cpu_isa", "text", "widest vector extension: `sse41`, `avx2`, ...", null="not told"),
    Column("cores", "int", "processors that the run may use", "logical processors"),
    Column("os", "text", "system and C library, such as `Linux glibc 2.36`"),
    Column("emulated", "text", "what emulates the processor", null="nothing: native"),
    Column("switches", "json", "every switch of the target with its value, defaults included"),
    Column("environment", "json", "the variables set for the target's process", foreign=True),
    Column("git_commit", "text", "the commit of probe's checkout", null="not run from a checkout"),
    Column("git_dirty", "flag", "whether tracked source files had changes", null="not a checkout"),
    Column("probe_version", "text", "version of probe"),
    Column("schema_version", "int", "version of this format"),
)

_CASES = (
    _key("case_id", "text", "hash of the case's content"),
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

_COMPARISONS = (
    *_PAIR,
    Column("compared", "int", "outputs that must agree and were compared", "outputs"),
    Column("not_compared", "int", "left outputs with no partner, or another window", "outputs"),
    Column("differing", "int", "compared outputs whose values differ", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column("max_scaled", "float", "largest |difference| / (eps * sum|x*w|)", "1", null="not known"),
    Column("first", "int", "first differing output: " + _FLAT, null="none differs"),
    Column("control", "text", "the same shape again: `equal` or `differs`", null="not run"),
    Column("digest_at", "text", "hash of the left outputs that were compared"),
    Column("digest_against", "text", "hash of the right outputs that were compared"),
    Column("kept", "int", "how many differing outputs are rows of `differences`", "outputs"),
    Column("seconds", "float", "time of the left call in the library", "s", null="not timed"),
)

_DIFFERENCES = (
    *_PAIR,
    _key("index", "int", _FLAT),
    Column("batch", "int", "batch entry"),
    Column("row", "int", "flat index over the spatial axes except the last; 0 if it has one"),
    Column("position", "int", "index on the last spatial axis"),
    Column("channel", "int", "filter"),
    Column("bits_at", "bits", "the left value's bits, zero-extended"),
    Column("bits_against", "bits", "the right value's bits, zero-extended"),
    Column("ulp", "int", "signed distance, right minus left", "ulp", null="NaN, or over 63 bits"),
    Column("scaled", "float", "(right - left) / (eps * sum|x*w|)", "1", null="not known"),
)

_OUTPUTS = (
    *_PLACE,
    _key("index", "int", "flat index into the output, shape (batch, *spatial, filters), row-major"),
    Column("batch", "int", "batch entry"),
    Column("row", "int", "flat index over the spatial axes except the last; 0 if it has one"),
    Column("position", "int", "index on the last spatial axis"),
    Column("channel", "int", "filter"),
    Column("bits", "bits", "the value's bits, zero-extended"),
)

_WINDOWS = (
    _RUN,
    _CASE,
    _TARGET,
    _key("group", "int", "channel group: its filters read alike; of pooling the channel"),
    _key("position", "int", "output position: flat index over (batch, *spatial)"),
    Column(
        "reads",
        "indices",
        "for each product, in the order of the weights, the input it reads: flat index into x, "
        "shape (batch, *spatial, channels); -1: padding. Of pooling: of each place of the window",
    ),
    Column("as_said", "flag", "whether these are the inputs that the case's padding says"),
    Column("counted", "int", "what an average divides by", "elements", null="not an average"),
    Column("pad_with", "text", "what padding puts into pooling", null="no padding, or no pooling"),
)

_FAILURES = (
    _RUN,
    _key("case_id", "text", "`cases.case_id`", null="failed before any case"),
    _TARGET,
    _key("vary", "text", "the axis that was changed", null="failed before any case"),
    _key("at", "int", "its value", "elements of `vary`", null="not at one value"),
    Column("kind", "text", "`unavailable`, `unsupported`, `error`, `crash`, `timeout`, ..."),
    Column("message", "text", "one line", foreign=True),
    Column("stderr", "text", "tail of what the process printed", null="nothing", foreign=True),
)

_ORDERS = (
    _key("order_id", "text", "hash of the tree"),
    Column("tree", "text", "the tree, such as `(((0+1)+(2+3))+4)`; leaves count the products"),
    Column("leaves", "int", "summands, the bias included where it is one", "summands"),
    Column("depth", "int", "most additions between a leaf and the root", "additions"),
    Column("children_max", "int", "most children of a node", "summands"),
    Column(
        "fprev", "int", "calls that FPRev needs for one such output", "calls", null="not counted"
    ),
)

_ROUNDINGS = (
    _key("rounding_id", "text", "hash of all columns that follow"),
    Column("style", "text", "which products are fused into an addition: `none`, `all`, `some`"),
    Column("fused", "ranges", "leaves fused with their addition: start, stop, ..."),
    Column("products", "text", "format in which products are taken", null="the case's dtype"),
    Column("accumulator", "text", "format of the partial sums", null="the case's dtype"),
    Column("json", "json", "everything that a replay needs beside the tree"),
)

_REVEALS = (
    *_PLACE,
    _key("order_id", "text", "`orders.order_id`", null="not a sum"),
    _key("rounding_id", "text", "`roundings.rounding_id`", null="not known"),
    Column("outputs", "int", "outputs that have this order and rounding", "outputs"),
    Column("replayed", "int", "of these, reproduced bit for bit", "outputs"),
    Column("ranges", "ranges", _RANGES),
    Column("calls", "int", "calls of the operator that asked questions, whole reveal", "calls"),
    Column("checks", "int", "calls beside them: controls, replay", "calls", null="not counted"),
    Column("seconds", "float", "time of the whole reveal", "s"),
    Column("evidence", "text", "why it is not a sum", null="it is one"),
)

_CAUSES = (
    *_PAIR,
    _key("cause", "text", "`window`, `order`, `rounding`, `order+rounding`, `unexplained`, ..."),
    Column("outputs", "int", "differing outputs with this cause", "outputs"),
    Column("replayed", "int", "of these, reproduced bit for bit on both sides", "outputs"),
    Column("ranges", "ranges", _RANGES),
)

_KERNELS = (
    *_PLACE,
    _key("source", "text", "`onednn-verbose`, `symbols`, `backend-choice`, ..."),
    Column("kernel", "text", "what the library says it ran", null="could not be asked: `missing`"),
    Column("missing", "text", "why it could not be asked", null="it was", foreign=True),
)

_MEASUREMENTS = (
    _RUN,
    _key("subject", "text", "what was measured, in words"),
    _key("variant", "text", "in which way: `probe`, `by hand`, ..."),
    _key("size", "int", "how much work it was: comparisons, elements, lengths"),
    _key("repeat", "int", "number of the repetition; those of one number were made in turns"),
    Column("value", "float", "what was measured", "see `unit`"),
    Column("unit", "text", "`s` (by the clock), `MiB` (most memory held)"),
)

_NETWORK = _key("network_id", "text", "hash of the chain of layers with its weights")
_CONTENT = _key("content", "int", "positions of content, at the beginning", "positions")
_PADDED = _key("padded", "int", "length of the short run, content and padding", "positions")
_FIXED = Column("fixed", "int", "length of the fixed run", "positions")

_NETWORKS = _second(
    _NETWORK,
    Column("name", "text", "what it is called"),
    Column("source", "text", "what `Network.load` makes it from", null="not told"),
    Column("layers", "int", "how many layers, activations and pools included", "layers"),
    Column("dtype", "text", "`float32`, `float64`, `float16`"),
    Column("in_channels", "int", "channels of the input", "channels"),
    Column("filters", "int", "channels of the output", "channels"),
    Column("field", "int", "what an output of the last layer reads of the input", "positions"),
    Column("jump", "int", "how far apart neighbouring outputs read", "positions"),
    Column("json", "json", "the layers in the words of a description, without their numbers"),
)

_ACTIVATIONS = _second(
    _RUN,
    _NETWORK,
    _TARGET,
    _CONTENT,
    _PADDED,
    _key("layer", "int", "number of the layer, from 0"),
    _FIXED,
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

_PADDED_LENGTHS = _second(
    _RUN,
    _NETWORK,
    _TARGET,
    _CONTENT,
    _FIXED,
    Column("outputs", "int", "outputs of the fixed run", "positions"),
    Column("kept", "int", "outputs up to the last one that reads content", "positions"),
    Column("least", "int", "shortest padded length that has them all", "positions"),
    Column(
        *("safe", "int", "shortest one at which every layer adds them as in the fixed run"),
        *("positions",),
    ),
    Column("unknown", "int", "layers whose way of adding is not known at `safe`", "layers"),
    Column("differing_least", "int", "outputs at `least` with other bits", "outputs"),
    Column("differing_safe", "int", "outputs at `safe` with other bits", "outputs"),
    Column("checked", "int", "sets of fresh operands for the last two", "sets"),
)

_PROGRAMS = _second(
    _RUN,
    _NETWORK,
    _TARGET,
    _CONTENT,
    _key("variant", "text", "which run: `least`, `safe`, or `layerwise`"),
    Column("padded", "int", "the run's padded length", "positions"),
    _FIXED,
    Column("compared", "int", "outputs that read content", "outputs"),
    Column("differing", "int", "of these, with other bits than the fixed run's", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column(
        *("other_than_layers", "int", "outputs of the fixed run with other bits layer by layer"),
        *("outputs",),
        null="not asked",
    ),
)

_DECISIONS = _second(
    _RUN,
    _NETWORK,
    _TARGET,
    _CONTENT,
    _key("variant", "text", "which run: `fixed`, `least`, `safe`, `layerwise`, ..."),
    _key("decision", "text", "what is decided of the channels: `argmax`, `top-5`, `threshold`"),
    Column("padded", "int", "the run's padded length", "positions"),
    Column("taken", "int", "positions (or values) that were decided on", "decisions"),
    Column("crossed", "int", "decisions that are not those of the fixed run", "decisions"),
    Column("margin", "float", "smallest distance from being decided otherwise", "eps * largest"),
    Column("differing", "int", "outputs with other bits than the fixed run's", "outputs"),
    Column("error", "float", "largest |output - float64's| / (eps * largest |output|)", "1"),
    Column("error_fixed", "float", "the same of the fixed run", "1"),
)

_REPORTS = _second(
    _key("thread", "text", "where it was reported: `owner/repository#number`, or a name"),
    Column("number", "int", "its place in the experiment's list"),
    Column("title", "text", "what was reported, in our words"),
    Column("answer", "text", "what its maintainers answered, in our words", null="none was read"),
    Column("home", "text", "the reported library, as a target", null="it is none"),
    Column("reason", "text", "why it was not run", null="it was"),
)

_FINDINGS = _second(
    _RUN,
    _key("thread", "text", "the report: `reports.thread`"),
    _key("question", "text", "which two runs ought to agree, in words"),
    _TARGET,
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

_REMEDIES = _second(
    _RUN,
    _key("case_id", "text", "`cases.case_id`", null="a whole network"),
    _key("network_id", "text", "`networks.network_id`", null="a single case"),
    _TARGET,
    _key("remedy", "text", "`default`, `pad`, `chunks=64`, `threads=1`, `stable`, ..."),
    _CONTENT,
    _key("fixed", "int", "length of the fixed run", "positions"),
    Column("about", "text", "what it is, in a few words"),
    Column("place", "text", "the target that it runs on"),
    Column("lengths", "int", "lengths whose orders were compared with the fixed one's", "lengths"),
    Column("verdict", "text", "`exact` whatever the operands, `differs`, or `not known`"),
    Column("compared", "int", "outputs that must agree", "outputs"),
    Column("differing", "int", "of these, added in another way than at `fixed`", "outputs"),
    Column("unknown", "int", "of these, added in a way that is not known", "outputs"),
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
    Column("recommended", "flag", "whether it is the cheapest exact one"),
)

_REPRODUCTIONS = _second(
    *_PAIR,
    _key("source", "text", "the experiment in whose results the finding was drawn"),
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
    Column("seconds", "float", "from the finding to its proof", "s"),
    Column("seconds_proof", "float", "of these, in fresh processes", "s", null="not confirmed"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "runs": _RUNS,
    "cases": _CASES,
    "comparisons": _COMPARISONS,
    "differences": _DIFFERENCES,
    "outputs": _OUTPUTS,
    "windows": _WINDOWS,
    "failures": _FAILURES,
    "orders": _ORDERS,
    "roundings": _ROUNDINGS,
    "reveals": _REVEALS,
    "causes": _CAUSES,
    "kernels": _KERNELS,
    "measurements": _MEASUREMENTS,
    "networks": _NETWORKS,
    "activations": _ACTIVATIONS,
    "padded_lengths": _PADDED_LENGTHS,
    "programs": _PROGRAMS,
    "decisions": _DECISIONS,
    "reports": _REPORTS,
    "findings": _FINDINGS,
    "remedies": _REMEDIES,
    "reproductions": _REPRODUCTIONS,
}
"""Every table with its columns, in the order in which files have them."""

ABOUT: dict[str, str] = {
    "runs": "One row a run: one target, on one machine, in one state of its software.",
    "cases": "One row a case: what was computed.",
    "comparisons": "One row a case, target and pair of values of the changed axis.",
    "differences": "One row a differing output.",
    "outputs": "One row an output that an experiment wanted in full, whether it differs or not.",
    "windows": "One row an output position of a group: what it reads, as read off the target.",
    "failures": "One row a failure of a target. Failures are not findings.",
    "orders": "One row a distinct summation tree.",
    "roundings": "One row a distinct way of rounding.",
    "reveals": "One row an order and rounding that some outputs of a call have.",
    "causes": "One row a cause of some differences of a comparison.",
    "kernels": "One row a kernel that the library itself names: evidence, never a cause.",
    "measurements": "One row a repetition of a measurement: of probe, or of a network.",
    "networks": "One row a network.",
    "activations": "One row a layer of a network, run at a padded length against the fixed one.",
    "padded_lengths": "One row a length of content: how far to pad it.",
    "programs": "One row a length of content and a way to pad it: the network as one program.",
    "decisions": "One row a decision taken of a network's outputs, and their error.",
    "reports": "One row a public report of runs that ought to agree and don't.",
    "findings": "One row a question of a public report on a target: what it gives here today.",
    "remedies": "One row a remedy of a case or network on a target. The exact sums are float64's; "
    "the scale is sum|x*w|, of a network the largest |output|.",
    "reproductions": "One row a finding that was drawn, made small, and run by its script.",
}

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
