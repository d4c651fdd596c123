"""What becomes of each of PyTorch's operations: run in its class, known to be exact, or left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional

from probe.invariant import torch_attention
from probe.invariant.keeper import Keeper, Known
from probe.invariant.telling import spread
from probe.invariant.torch_calls import (
    FORMATS,
    ByPlace,
    Convolution,
    Linear,
    Pairs,
    Samples,
    Tensors,
    laid,
    tensor,
)
from probe.invariant.torch_few import Copies, Layer

EXACT = frozenset(
    "view _unsafe_view reshape _reshape_alias permute transpose t expand slice select unsqueeze "
    "squeeze clone contiguous copy _to_copy to detach alias cat stack split split_with_sizes chunk "
    "unbind index index_select gather embedding masked_fill where mul div neg abs sqrt relu clamp "
    "clamp_min clamp_max eq ne lt gt le ge logical_and logical_or logical_not "
    "bitwise_and bitwise_or bitwise_not bitwise_xor full zeros ones arange empty empty_strided "
    "new_zeros new_ones new_full new_empty new_empty_strided scalar_tensor zeros_like ones_like "
    "full_like empty_like fill zero hardtanh max_pool2d_with_indices max_pool3d_with_indices "
    "max_pool2d max_pool1d adaptive_max_pool2d mkldnn_max_pool2d argmax argmin "
    "constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d tril "
    "triu repeat flip roll sign floor ceil round trunc isnan isinf all any _local_scalar_dense "
    "lift_fresh as_strided narrow diagonal sort topk reciprocal threshold unfold im2col "
    "pixel_shuffle channel_shuffle upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d lift squeeze_ native_dropout_none nonzero masked_select index_put "
    "slice_scatter select_scatter expand_copy view_copy permute_copy equal is_same_size "
    "sym_size sym_numel sym_stride set_ resize_ result_type".split()
)
"""ATen's operations that move elements or round once: IEEE 754 leaves no choice, at any place."""

OF_ZEROS = frozenset("maximum minimum max min amax amin fmax fmin".split())
"""Which of +0 and -0 they give depends on the place in a vector: their zeros are made +0."""

ONCE_WITH_ALPHA = frozenset(("add", "sub", "rsub"))

BY_PLACE = frozenset(
    "exp expm1 exp2 log log1p log2 log10 tanh sigmoid silu gelu erf erfc sin cos tan atan sinh "
    "cosh asinh rsqrt softplus elu celu mish hardswish hardsigmoid logit leaky_relu pow".split()
)
"""Functions of one element with a vector body and a tail."""

OF_SAMPLES = frozenset(
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d "
    "upsample_trilinear3d _upsample_bilinear2d_aa".split()
)
"""Functions of a sample of the batch, which is axis 0."""

ROWS = (1 << 14, 1 << 12)
"""Pieces of what is computed row by row, in one pass over memory."""

REDUCTIONS = frozenset("mean sum linalg_vector_norm norm var std logsumexp prod cumsum".split())


class Operators:
    """One model's operations, by what they are called with."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.kept: dict[Any, Known] = {}
        self.layers: dict[Any, Layer] = {}
        self.copies = Copies()
        self.own: dict[str, Callable[..., Any]] = {
            "addmm": self.addmm,
            "mm": self.mm,
            "bmm": self.bmm,
            "baddbmm": self.baddbmm,
            "convolution": self.convolution,
            "_convolution": self.convolution,
            "native_layer_norm": self._native_layer_norm,
            "native_group_norm": self._native_group_norm,
            "native_batch_norm": self._batch_norm,
            "_native_batch_norm_legit_no_training": self._batch_norm_inference,
            "_softmax": self._softmax,
            "_log_softmax": self._softmax,
            "_safe_softmax": self._softmax,
            "_scaled_dot_product_flash_attention_for_cpu": self._flash,
        }

    def run(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> Any:
        """One operation of ATen."""
        name = func._schema.name.rpartition("::")[2]
        base = name.rstrip("_") if not name.startswith("__") else name
        if base in OF_ZEROS or (base == "clamp" and _tensors(args[1:], kwargs)):
            return _positive_zeros(func(*args, **kwargs))
        if base in EXACT or not _floating(args, kwargs):
            return func(*args, **kwargs)
        if base in ONCE_WITH_ALPHA and kwargs.get("alpha", 1) == 1 and len(args) < 3:
            return func(*args, **kwargs)
        found: Any = NotImplemented
        if base in BY_PLACE and isinstance(args[0], torch.Tensor):
            found = self._by_place(func, args, kwargs)
        elif name in self.own:
            found = self.own[name](func, *args, **kwargs)
        elif base in OF_SAMPLES or base in REDUCTIONS:
            found = self._of_samples(func, args, kwargs, base in REDUCTIONS)
        if found is NotImplemented:
            why = "it is not known whether its bits depend on batch, length or place"
            self.keeper.leave(f"{name} of {_shapes(args)}", why)
            return func(*args, **kwargs)
        if name.endswith("_") and not name.startswith("_"):
            return args[0].copy_(found)
        return found

    def _known(self, key: tuple[Any, ...], make: Callable[[], Any], axis: str = "batch") -> Known:
        """An operation by what it is called with and the number of threads."""
        key = (*key, torch.get_num_threads())
        found = self.kept.get(key)
        if found is None:
            found = self.kept[key] = self.keeper.known(make(), axis)
        return found

    # products of rows

    def linear(self, x: Any, w: Any, b: Any = None) -> Any:
        """``functional.linear``."""
        layer = self.layers.get((w.shape, x.dtype, w.dtype, b is None, torch.get_num_threads()))
        if layer is not None and x.dim() == 2:
            channels = w.shape[1]
            if x.stride() == (channels, 1) == w.stride():
                count = x.shape[0]
                if count in layer.native:
                    return functional.linear(x, w, b)
                if count:
                    return layer(x, w, b)
        if x.dtype not in FORMATS or w.dtype is not x.dtype or w.dim() != 2 or not x.numel():
            return NotImplemented
        return self._rows(x, w, b, False)

    def _rows(self, x: Any, w: Any, b: Any, turned: bool) -> Any:
        """``x @ w.T``, or ``x @ w`` if it is ``turned``, of all rows."""
        if w.stride() != (w.shape[1], 1):
            if w.t().is_contiguous() and 1 not in w.shape:
                w, turned = w.t(), not turned
            w = laid(w)
        channels, filters = w.shape if turned else w.shape[::-1]
        rows = x if x.dim() == 2 else x.reshape(-1, channels)
        rows = rows if rows.stride() == (channels, 1) else laid(rows)
        parts = channels, filters, x.dtype, b is not None, turned
        known = self._known(("linear", *parts), lambda: Linear(*parts), "rows")
        if turned:
            y = known((rows,), (w, b))
        else:
            key = w.shape, x.dtype, w.dtype, b is None, torch.get_num_threads()
            layer = self.layers.get(key)
            if layer is None:
                layer = self.layers[key] = Layer(known, self.copies)
            y = layer(rows, w, b)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], filters)

    def mm(self, func: Any, a: Any, b: Any) -> Any:
        """``a @ b``: the rows of a have nothing to do with each other."""
        if not a.numel() or not b.numel():
            return NotImplemented
        return self._rows(a, b, None, True)

    def addmm(self, func: Any, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        """``c + a @ b`` where c is a bias."""
        if beta != 1 or alpha != 1 or c.dim() != 1 or len(c) != b.shape[1] or not a.numel():
            return NotImplemented
        return self._rows(a, b, c.contiguous(), True)

    def bmm(self, func: Any, a: Any, b: Any) -> Any:
        """Products of pairs of matrices: each pair is a sample."""
        if not a.numel() or not b.numel():
            return NotImplemented
        shapes = tuple(a.shape[1:]), tuple(b.shape[1:])
        key = ("bmm", shapes, a.dtype)
        known = self._known(key, lambda: Pairs("bmm", shapes, a.dtype, torch.bmm))
        self._limit(known, "products of pairs of matrices: along the pairs alone, sizes are fixed")
        return known((laid(a), laid(b)))

    def baddbmm(self, func: Any, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        """As ``bmm``, with a summand."""
        if not a.numel() or not b.numel():
            return NotImplemented
        shapes = tuple(a.shape[1:]), tuple(b.shape[1:]), (a.shape[1], b.shape[2])
        name = f"baddbmm beta={beta} alpha={alpha}"

        def function(a: Any, b: Any, c: Any) -> Any:
            return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)

        known = self._known((name, shapes, a.dtype), lambda: Pairs(name, shapes, a.dtype, function))
        self._limit(known, "products of pairs of matrices: along the pairs alone, sizes are fixed")
        full = laid(c.expand(len(a), a.shape[1], b.shape[2]))
        return known((laid(a), laid(b), full))

    def _fixed(self, known: Known) -> None:
        """Notes an operation whose lengths are part of its shape, where lengths were wanted."""
        if "length" in self.keeper.table.sizes:
            self._limit(known, "lengths are part of an operation's shape: along the batch alone")

    def _limit(self, known: Known, why: str) -> None:
        key = known.run.operation.key
        if key not in self.keeper.report.limited:
            if self.keeper.strict:
                self.keeper.leave(key, why)
            self.keeper.report.limited[key] = why

    def convolution(
        self,
        func: Any,
        x: Any,
        w: Any,
        b: Any,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
        *_: Any,
    ) -> Any:
        """Convolutions of one to three axes, along the batch."""
        if x.dtype not in FORMATS or w.dtype is not x.dtype or not x.numel():
            return NotImplemented
        words = {"stride": stride, "padding": padding, "dilation": dilation}
        words |= {"output_padding": output_padding} if transposed else {}
        given: dict[str, Any] = {name: tuple(value) for name, value in words.items()}
        given["groups"] = groups
        key = tuple(x.shape[1:]), tuple(w.shape), x.dtype, b is not None
        known = self._known(
            ("convolution", *key, tuple(given.items()), transposed),
            lambda: Convolution(*key, given, transposed),
        )
        self._fixed(known)
        return known((laid(x),), (laid(w), b))

    # row by row

    def layer_norm(
        self, x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
    ) -> Any:
        """``functional.layer_norm``."""
        shape = tuple(shape)
        if x.dtype not in FORMATS or not x.numel():
            return NotImplemented
        here = [one for one in (weight, bias) if one is not None]
        which = weight is not None, bias is not None
        key = ("layer_norm", shape, x.dtype, eps, which, here[0].dtype if here else None)
        known = self._known(key, lambda: self._layer_norm(shape, x.dtype, eps, which, here), "rows")
        rows = laid(x.reshape(-1, *shape))
        return known((rows,), (weight, bias)).view(x.shape)

    def _layer_norm(
        self, shape: tuple[int, ...], dtype: Any, eps: float, which: tuple[bool, bool], here: Any
    ) -> Samples:
        def function(x: Any, w: Any, b: Any) -> Any:
            return functional.layer_norm(x, shape, w, b, eps)

        kind = here[0].dtype if here else dtype
        made = [tensor(spread(7 + at, "w", shape, 2), kind) for at in range(2)]
        held = tuple(one if there else None for one, there in zip(made, which, strict=True))
        name = f"layer_norm eps={eps} weight={which[0]} bias={which[1]} {FORMATS[kind]}"
        return Samples(name, [shape], dtype, function, held, ROWS)

    def _native_layer_norm(self, func: Any, x: Any, shape: Any, w: Any, b: Any, eps: float) -> Any:
        y = self.layer_norm(x, shape, w, b, eps)
        return y if y is NotImplemented else (y, x.new_empty(0), x.new_empty(0))

    def _softmax(self, func: Any, x: Any, dim: int, *options: Any) -> Any:
        dim %= max(x.dim(), 1)
        if x.dtype not in FORMATS or not x.numel() or any(options):
            return NotImplemented
        if dim != x.dim() - 1:
            return self._of_samples(func, (x, dim, *options), {}, True)
        name, size = func._schema.name.rpartition("::")[2], x.shape[-1]

        def function(rows: Any) -> Any:
            return func(rows, 1, *options)

        known = self._known(
            (name, size, x.dtype),
            lambda: Samples(name, [(size,)], x.dtype, function, (), ROWS),
            "rows",
        )
        return known((laid(x.reshape(-1, size)),)).view(x.shape)

    # samples

    def _of_samples(self, func: Any, args: Tensors, kwargs: Any, reduces: bool) -> Any:
        """A function of samples along axis 0, with options that are no tensors."""
        x, *options = args
        rest = [*options, *kwargs.values()]
        if x.dtype not in FORMATS or not x.numel() or x.dim() < 2:
            return NotImplemented
        if any(isinstance(one, torch.Tensor) for one in rest):
            return NotImplemented
        if reduces and not _keeps_first(func, x.dim(), args, kwargs):
            return NotImplemented
        name = f"{func._schema.name.rpartition('::')[2]} {rest}"

        def function(part: Any) -> Any:
            return func(part, *options, **kwargs)

        shape = tuple(x.shape[1:])
        known = self._known(
            (str(func), name, shape, x.dtype), lambda: Samples(name, [shape], x.dtype, function)
        )
        self._fixed(known)
        return known((laid(x),))

    def _native_group_norm(
        self, func: Any, x: Any, w: Any, b: Any, n: int, c: int, size: int, groups: int, eps: float
    ) -> Any:
        shape, which = tuple(x.shape[1:]), (w is not None, b is not None)
        if x.dtype not in FORMATS:
            return NotImplemented

        def function(part: Any, weight: Any, bias: Any) -> Any:
            return functional.group_norm(part, groups, weight, bias, eps)

        def make() -> Samples:
            made = [tensor(spread(7 + at, "w", (c,), 2), x.dtype) for at in range(2)]
            held = tuple(one if there else None for one, there in zip(made, which, strict=True))
            name = f"group_norm groups={groups} eps={eps} weight={which[0]} bias={which[1]}"
            return Samples(name, [shape], x.dtype, function, held)

        known = self._known(("group_norm", shape, groups, eps, which, x.dtype), make)
        return known((laid(x),), (w, b)), x.new_empty(0), x.new_empty(0)

    def _batch_norm(
        self,
        func: Any,
        x: Any,
        w: Any,
        b: Any,
        mean: Any,
        var: Any,
        training: bool,
        _: Any,
        eps: Any,
    ) -> Any:
        if training or mean is None or var is None:
            return NotImplemented
        shape, which = tuple(x.shape[1:]), (w is not None, b is not None)

        def function(part: Any, mean: Any, var: Any, w: Any, b: Any) -> Any:
            return functional.batch_norm(part, mean, var, w, b, False, 0.0, eps)

        def make() -> Samples:
            made = [tensor(spread(7 + at, "w", shape[:1], 2), mean.dtype) for at in range(4)]
            made[1] = made[1].abs()
            for at, there in enumerate(which, 2):
                made[at] = made[at] if there else None
            name = f"batch_norm eps={eps} weight={which[0]} bias={which[1]} {FORMATS[mean.dtype]}"
            return Samples(name, [shape], x.dtype, function, tuple(made))

        known = self._known(("batch_norm", shape, eps, which, x.dtype, mean.dtype), make)
        y = known((laid(x),), (mean, var, w, b))
        return y, x.new_empty(0), x.new_empty(0)

    def _batch_norm_inference(
        self, func: Any, x: Any, w: Any, b: Any, mean: Any, var: Any, momentum: Any, eps: Any
    ) -> Any:
        return self._batch_norm(func, x, w, b, mean, var, False, momentum, eps)

    # functions by place

    def gelu(self, x: Any, approximate: str = "none") -> Any:
        """``functional.gelu``."""
        return self._by_place(torch.ops.aten.gelu.default, (x,), {"approximate": approximate})

    def _by_place(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> Any:
        x, *options = args
        rest = [*options, *kwargs.values()]
        if x.dtype not in FORMATS or any(isinstance(one, torch.Tensor) for one in rest):
            return NotImplemented
        if not x.numel() or len(func._schema.returns) != 1 or "out" in kwargs:
            return NotImplemented
        base = func._schema.name.rpartition("::")[2].rstrip("_")
        call = getattr(getattr(torch.ops.aten, base), func._overloadname)

        def function(flat: Any) -> Any:
            return call(flat, *options, **kwargs)

        def make() -> ByPlace:
            name = base + "".join(f" {one}" for one in rest)
            return ByPlace(name, x.dtype, function, written if there else None)

        def written(flat: Any, out: Any) -> Any:
            return packet.out(flat, *options, **kwargs, out=out)

        packet = getattr(torch.ops.aten, base)
        there = "out" in packet.overloads() and func._overloadname == "default"
        known = self._known((base, tuple(rest), x.dtype), make)
        flat = x.contiguous().view(-1)
        return known((flat,)).view(x.shape)

    # attention

    def attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> Any:
        """``functional.scaled_dot_product_attention``."""
        four = all(one.dim() == 4 for one in (q, k, v)) and q.numel() and k.numel()
        same = q.shape[:2] == k.shape[:2] == v.shape[:2] and q.dtype is k.dtype is v.dtype
        if enable_gqa or dropout_p or not four or not same or q.dtype not in FORMATS:
            return NotImplemented
        if attn_mask is not None and (is_causal or attn_mask.dim() != 4):
            return NotImplemented
        words: dict[str, Any] = {"is_causal": True} if is_causal else {}
        words |= {} if scale is None else {"scale": float(scale)}
        length, size = q.shape[2], 0
        if length == k.shape[2] and length <= self.keeper.length:
            size = self._length(q, v, words)
        if not size and "length" in self.keeper.table.sizes:
            why = f"attention of {length} rows and {k.shape[2]} keys: along the batch alone"
            if self.keeper.strict:
                self.keeper.leave("attention", why)
            self.keeper.report.limited.setdefault(why.partition(":")[0], why)
        return self._heads(q, k, v, attn_mask, words, size)

    def _length(self, q: Any, v: Any, words: dict[str, Any]) -> int:
        """The length that self-attention is padded to; 0: there is none."""
        longest = self.keeper.length
        key = ("lengths", q.shape[3], v.shape[3], q.dtype, tuple(words.items()))
        known = self._known(
            key,
            lambda: torch_attention.Lengths(q.shape[3], v.shape[3], q.dtype, words, longest),
            "length",
        )
        step = torch_attention.STEP
        plans = known.sizes
        for size in (*range(-(-q.shape[2] // step) * step, longest, step), longest):
            if plans.usable(size):
                return size
        return 0

    def _heads(self, q: Any, k: Any, v: Any, mask: Any, words: dict[str, Any], size: int) -> Any:
        length, count = q.shape[2], q.shape[0] * q.shape[1]
        if size and (size != length or mask is not None):
            mask = (
                None
                if words.get("is_causal")
                else torch_attention.masked_wide(mask, q, length, size)
            )
        if size:
            q, k, v = (torch_attention.widened(one, size) for one in (q, k, v))
        q, k, v = (laid(one) for one in (q, k, v))
        shapes = tuple(tuple(one.shape[2:]) for one in (q, k, v))
        key = ("heads", shapes, q.dtype, mask is not None, tuple(words.items()))
        known = self._known(
            key, lambda: torch_attention.Heads(shapes, q.dtype, mask is not None, words)
        )
        if not known.sizes.usable(count):
            self.keeper.leave(known.run.operation.key, f"{count} heads of samples differ")
        return torch_attention.attend(q, k, v, mask, words)[:, :, :length]

    def _flash(
        self,
        func: Any,
        q: Any,
        k: Any,
        v: Any,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        attn_mask: Any = None,
        scale: Any = None,
    ) -> Any:
        y = self.attention(q, k, v, attn_mask, dropout_p, is_causal, scale)
        return y if y is NotImplemented else (y, q.new_empty(0))


def _positive_zeros(found: Any) -> Any:
    """The same numbers with no -0 among them, in the same memory."""
    first = found if isinstance(found, torch.Tensor) else found[0]
    if first.is_floating_point():
        first.add_(0.0)
    return found


def _tensors(args: Tensors, kwargs: dict[str, Any]) -> bool:
    return any(isinstance(one, torch.Tensor) for one in (*args, *kwargs.values()))


def _floating(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether any tensor among these has a floating format."""
    for one in (*args, *kwargs.values()):
        if isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex()):
            return True
        if isinstance(one, list | tuple) and _floating(one, {}):
            return True
    return False


def _keeps_first(func: Any, rank: int, args: Tensors, kwargs: dict[str, Any]) -> bool:
    """Whether a reduction leaves axis 0 as it is: it says along which axes it goes."""
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    axes: Any = given.get("dim")
    axes = [axes] if isinstance(axes, int) else axes or ()
    return len(axes) > 0 and all(axis % rank for axis in axes)


def _shapes(args: Tensors) -> str:
    return ", ".join("x".join(map(str, one.shape)) for one in args if isinstance(one, torch.Tensor))
