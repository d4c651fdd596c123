"""Tables of networks, reports, remedies and scripts."""

from __future__ import annotations

from probe.schema.measurements import PAIR, RUN, TARGET, Column, key, second, since

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
