"""Tables of whole networks."""

from __future__ import annotations

from probe.schema.columns import RUN, TARGET, Column, key, second

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
    Column("unknown", "int", "layers whose way of adding is not known at `safe`", "layers"),
    Column("differing_least", "int", "outputs at `least` with other bits", "outputs"),
    Column("differing_safe", "int", "outputs at `safe` with other bits", "outputs"),
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
    Column("differing", "int", "of these, with other bits than the fixed run's", "outputs"),
    Column("max_ulp", "int", "largest absolute distance", "ulp", null="no distance is a number"),
    Column(
        *("other_than_layers", "int", "outputs of the fixed run with other bits layer by layer"),
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
    Column("differing", "int", "outputs with other bits than the fixed run's", "outputs"),
    Column("error", "float", "largest |output - float64's| / (eps * largest |output|)", "1"),
    Column("error_fixed", "float", "the same of the fixed run", "1"),
)

TABLES = {
    "networks": NETWORKS,
    "activations": ACTIVATIONS,
    "padded_lengths": PADDED_LENGTHS,
    "programs": PROGRAMS,
    "decisions": DECISIONS,
}

ABOUT = {
    "networks": "One row a network. What other tables say of one with a `part` holds for that part "
    "alone.",
    "activations": "One row a layer of a network, run at a padded length against the fixed one.",
    "padded_lengths": "One row a length of content: how far to pad it.",
    "programs": "One row a length of content and a way to pad it: the network as one program.",
    "decisions": "One row a decision taken of a network's outputs, and their error.",
}
