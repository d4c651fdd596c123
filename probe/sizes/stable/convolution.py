"""Defines the functions for tensors of either library, and a convolution's checked sizes."""

from importlib import import_module

from probe.case.geometry import BY_SIZE, WindowSizes

# Formats in which a product of two values of the key's format is exact.
WIDER = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
    "float64": (),
}


def conv(x, w, b=None, stride=1, dilation=1, groups=1, padding="valid", accumulate=None):
    """Computes a prefix-stable convolution of ``x``, in the layout of its library.

    TensorFlow: x (batch, *spatial, channels), w (*kernel, channels / groups, filters).
    PyTorch: x (batch, channels, *spatial), w (filters, channels / groups, *kernel).
    Both: b (filters,) or None; one to three spatial axes; a depthwise convolution has as many
    groups as channels. ``stride`` and ``dilation``: a number, or one an axis. ``padding``:
    ``valid``, ``same`` (TensorFlow's, also with strides), ``same_lower`` (the odd zero goes
    before), or a pair of zeros before and after, one an axis.
    ``accumulate``: a wider format, see above; None is x's own.

    Returns the outputs in the same layout and x's dtype. Differentiable. Raises ValueError.
    """
    return _functions_for(x).conv(x, w, b, stride, dilation, groups, padding, accumulate)


def dense(x, w, b=None, accumulate=None):
    """Computes a dense layer whose rows don't depend on each other: ``x @ w + b`` (torch: ``w.T``).

    x (..., in_channels); w (in_channels, filters) in TensorFlow, (filters, in_channels) in PyTorch;
    b (filters,) or None. Products are added in the order of the channels, the bias last.
    ``accumulate``: as of ``conv``. Returns (..., filters) in x's dtype. Differentiable; the weight
    gradient is a sum over all rows. Raises ValueError.
    """
    functions = _functions_for(x)
    if len(getattr(w, "shape", ())) != 2:
        raise ValueError("w=%s: it takes two axes, channels and filters" % _said(w))
    return functions.dense(x, w, b, accumulate)


def _functions_for(x):
    """Returns the module for a tensor's library."""
    root = type(x).__module__.split(".")[0]  # asked without an import: one library may lack
    if root not in ("torch", "tensorflow", "keras"):
        there = "a tensor of TensorFlow or PyTorch"
        raise ValueError(f"x={root}.{type(x).__name__}: no library of ours; give {there}")
    name = "torch" if root == "torch" else "tensorflow"
    return import_module("probe.sizes.stable." + name)


def _said(value):
    """What is said of an operand: its shape, of anything else its type."""
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__


def check_operands(x, w, b, channels, geometry):
    """``channels``: of x; None: they are not known yet. ValueError."""
    if x.dtype != w.dtype:
        raise ValueError(f"w={w.dtype}: x is {x.dtype}; give both in one format")
    if channels is not None and channels != geometry.channels:
        why = f"w takes {geometry.channels} channels with groups={geometry.groups}"
        raise ValueError(f"x={_said(x)}: it has {channels} channels, and {why}")
    if b is not None and _said(b) != (geometry.filters,):
        raise ValueError(f"b={_said(b)}: w has {geometry.filters} filters")


class ConvolutionSizes:
    """A convolution's sizes and options, checked; its input's sizes are given later.

    They may be a library's own scalars.

    ``kernel``: a tuple; ``depth``, channels of a group, and ``filters``: numbers; the rest as of
    ``conv``. ValueError: ``name=value: why``.
    """

    def __init__(self, kernel, depth, filters, stride, dilation, groups, padding):
        rank = len(kernel)
        if not isinstance(groups, int):
            raise ValueError(f"groups={groups}: it takes a whole number")
        channels = depth * groups
        if not 1 <= rank <= 3:
            raise ValueError(
                f"w={rank + 2} axes: a convolution has 1 to 3 spatial ones and two more"
            )
        self.kernel, self.channels, self.filters = kernel, channels, filters
        self.stride = _one_an_axis("stride", stride, rank)
        self.dilation = _one_an_axis("dilation", dilation, rank)
        if groups < 1 or channels % groups or filters % groups:
            why = f"must divide {channels} channels and {filters} filters"
            raise ValueError(f"groups={groups}: {why}")
        self.groups, self.depth = groups, depth
        padding = _checked_padding(padding, rank)
        self.windows = WindowSizes(kernel, self.stride, self.dilation, padding)
        self.extents, self.places = self.windows.extents, self.windows.places()
        self.seen = self.windows.seen

    def around(self, sizes, maximum=max):
        """Returns zeros (before, after) of each axis, and the outputs on each axis: two lists."""
        spans = self.windows.spans(sizes, maximum)
        return [(span.before, span.after) for span in spans], [span.outputs for span in spans]

    def transposed(self):
        """Returns the words of the convolution from output gradients to those of the padded input.

        The output gradients are spread out and have ``extent - 1`` zeros around them.
        """
        return {"dilation": self.dilation, "groups": self.groups}


def accumulator(dtype, wanted):
    """Returns the name of the format to add in.
    ValueError where a product of ``dtype`` isn't exact."""
    if wanted is None or wanted == dtype:
        return dtype
    if wanted not in WIDER.get(dtype, ()):
        there = ", ".join(WIDER.get(dtype, ())) or "none"
        why = f"not wide enough for exact products of {dtype}"
        raise ValueError(f"accumulate={wanted}: {why}; there is {there}")
    return wanted


def _one_an_axis(name, value, rank):
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(values) != rank or any(not isinstance(step, int) or step < 1 for step in values):
        why = f"one whole number from 1 up, or {rank} of them"
        raise ValueError(f"{name}={value}: it takes {why}")
    return values


def _checked_padding(padding, rank):
    if padding in ("valid",) + BY_SIZE:
        return padding
    pairs = list(padding) if isinstance(padding, (tuple, list)) else []
    if len(pairs) == 2 and rank == 1 and all(isinstance(one, int) for one in pairs):
        pairs = [pairs]
    fits = all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs)
    whole = fits and all(isinstance(n, int) and n >= 0 for pair in pairs for n in pair)
    if len(pairs) != rank or not whole:
        why = f"it takes valid, same, same_lower, or pairs of zeros for each of {rank} axes"
        raise ValueError(f"padding={padding}: {why}")
    return [tuple(pair) for pair in pairs]
