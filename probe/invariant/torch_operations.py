"""What becomes of each of PyTorch's operations: run in its class, known to be exact, or left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional
from torch.utils._pytree import tree_leaves

from probe.invariant.keeper import Keeper
from probe.invariant.kinds import Kind
from probe.invariant.telling import spread
from probe.invariant.torch_attention import Attention
from probe.invariant.torch_calls import (
    FORMATS,
    Samples,
    Tensors,
    laid,
    tensor,
)
from probe.invariant.torch_einsum import Einsum
from probe.invariant.torch_kinds import Kinds, reads
from probe.invariant.torch_native import Ready
from probe.invariant.torch_places import Places
from probe.invariant.torch_products import Met, Products
from probe.invariant.torch_recurrent import mkldnn_rnn_layer
from probe.recorders.torch_calls import facts

ROWS = (1 << 14, 1 << 12)
"""Pieces of what is computed row by row, in one pass over memory."""


class Operators:
    """One model's operations, by what they are called with."""

    def __init__(self, keeper: Keeper, parameters: Callable[[], Iterable[Any]] = tuple) -> None:
        self.keeper, self.met, self.parameters = keeper, Met(keeper), parameters
        self.ready = Ready()
        self.watched, self.places = self.ready.watched, Places(self.met, self.ready)
        self.products, self.attention = Products(self.met, self.watched), Attention(self.met)
        self.kinds = Kinds()
        self.own: dict[str, Callable[..., Any]] = {
            **self.products.own,
            "native_layer_norm": self._native_layer_norm,
            "native_group_norm": self._native_group_norm,
            "native_batch_norm": self._batch_norm,
            "_native_batch_norm_legit_no_training": self._batch_norm_inference,
            "_softmax": self._softmax,
            "_log_softmax": self._softmax,
            "_safe_softmax": self._softmax,
            "_scaled_dot_product_flash_attention_for_cpu": self._flash,
            "mkldnn_rnn_layer": lambda func, *given: mkldnn_rnn_layer(self.met, *given),
        }

        self.quick: dict[Any, Callable[..., Any]] = {
            **self.products.quick,
            **self.places.quick,
            torch.einsum: Einsum(self.products),
            functional.scaled_dot_product_attention: self.attention,
            functional.layer_norm: self.layer_norm,
            functional.batch_norm: self._batch_normed,
            functional.instance_norm: self._instance_normed,
            **dict.fromkeys(
                (functional.softmax, torch.softmax, torch.Tensor.softmax), self._softmaxed
            ),
            functional.dropout: self._dropped,
        }
        """Functions that are called often, without the dispatcher; each may say NotImplemented."""

    def run(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> Any:
        """Returns one operation of ATen."""
        kind = self.kinds(func, args, kwargs)
        watched = self.watched
        if kind is Kind.EXACT:
            if func in self.kinds.by_value:
                watched.exact = False
            if reads(func):
                watched.own = False
            return func(*args, **kwargs)
        watched.exact = False
        space, _, name = func._schema.name.rpartition("::")
        if space != "aten":  # whoever made it gave it its name
            return self._left(func, func._schema.name, args, kwargs)
        if kind is Kind.EITHER:
            watched.own = False
            return _positive_zeros(func(*args, **kwargs))
        if not _floating(args, kwargs):
            return self._of_integers(func, name, args, kwargs, kind)
        found: Any = NotImplemented
        watched.whole = False
        every = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        usual = all(one.layout is torch.strided and not one.is_nested for one in every)
        if not usual:
            return self._left(func, name, args, kwargs)
        if name in self.own:
            complex_ = any(map(torch.is_complex, filter(torch.is_tensor, args)))
            if kwargs.get("out") is None and not complex_:
                found = self.own[name](func, *args, **kwargs)
        elif kind is Kind.PLACE:
            found = self.places(func, args, kwargs)
        else:
            found = self._of_samples(func, args, kwargs)
        if found is NotImplemented:
            return self._left(func, name, args, kwargs)
        written = name.endswith("_") and not name.startswith("_")
        whole = watched.whole and (not written or kind is Kind.PLACE)
        watched.own = watched.own and whole
        if written:
            return args[0].copy_(found)
        return found

    def _left(self, func: Any, name: str, args: Tensors, kwargs: dict[str, Any]) -> Any:
        """Returns an operation as it is, and reports it, but where it is the model's own alone."""
        return self._reported(name, args, kwargs, func(*args, **kwargs))

    def _reported(self, name: str, args: Tensors, kwargs: dict[str, Any], found: Any) -> Any:
        """Returns what an operation gave as it is; reported unless there are no numbers."""
        self.watched.own = False
        both = [
            [one for one in tree_leaves(each) if torch.is_tensor(one)] for each in (args, found)
        ]
        nothing = any(each and not any(one.numel() for one in each) for each in both)
        if not nothing and not self._of_parameters(args, kwargs):
            why = "it is not known whether its bits depend on batch, length or place"
            self.keeper.leave(f"{name} of {_shapes(args)}", why, f"{name} {_samples(args)}")
        return found

    def _of_parameters(self, args: Tensors, kwargs: dict[str, Any]) -> bool:
        """Whether all tensors are the model's own parameters: such a call is always the same."""
        every = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        there = set(map(id, self.parameters()))
        return bool(every) and all(id(one) in there for one in every)

    def _of_integers(
        self, func: Any, name: str, args: Tensors, kwargs: dict[str, Any], kind: Kind
    ) -> Any:
        """Returns one operation of integers and truth values: exact, but where it gives others."""
        found = func(*args, **kwargs)
        if facts(func).random:
            self.watched.own = False
        if not _tensors(args, kwargs) or not _floating(tree_leaves(found), {}):
            return found
        self.watched.own = False
        if kind is Kind.PLACE and not kwargs:
            dtype = found.dtype
            given = [one.to(dtype) if isinstance(one, torch.Tensor) else one for one in args]
            again = self.places(func, tuple(given), {})
            if again is not NotImplemented:
                return again
        return self._reported(name, args, kwargs, found)

    # row by row

    def layer_norm(
        self,
        x: Any,
        normalized_shape: Sequence[int],
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
    ) -> Any:
        """``functional.layer_norm``."""
        shape, count = tuple(normalized_shape), torch.get_num_threads()
        kinds = [None if one is None else one.dtype for one in (weight, bias)]
        met = "layer_norm", x.shape, x.dtype, shape, eps, *kinds, count
        if self.ready(met, x):
            return torch.layer_norm(x, shape, weight, bias, eps)
        if x.dtype not in FORMATS or not x.numel():
            return NotImplemented
        here = [one for one in (weight, bias) if one is not None]
        which = weight is not None, bias is not None
        key = ("layer_norm", shape, x.dtype, eps, which, here[0].dtype if here else None)
        known = self.met.known(
            key, lambda: self._layer_norm(shape, x.dtype, eps, which, here), axis="rows"
        )
        rows = laid(x.reshape(-1, *shape))
        y = known((rows,), (weight, bias)).view(x.shape)
        self.ready.note(met, x, known, len(rows))
        return y

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

    def _dropped(self, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        """``functional.dropout``, which leaves an evaluated model's numbers as they are."""
        return NotImplemented if training else x

    def _softmaxed(
        self, x: Any, dim: Any = None, dtype: Any = None, *, _stacklevel: int = 3
    ) -> Any:
        """``torch.softmax``."""
        if self.ready(("softmax", x.shape, x.dtype, dim, dtype, torch.get_num_threads()), x):
            return torch.softmax(x, dim)
        if not isinstance(dim, int) or dtype is not None or not x.dim():
            return NotImplemented
        return self._softmax(torch.ops.aten._softmax.default, x, dim, False)

    def _softmax(self, func: Any, x: Any, dim: int, *options: Any) -> Any:
        dim %= max(x.dim(), 1)
        if x.dtype not in FORMATS or not x.numel() or any(options):
            return NotImplemented
        if dim != x.dim() - 1:
            return self._of_samples(func, (x, dim, *options), {})
        name, size = func._schema.name.rpartition("::")[2], x.shape[-1]

        def function(rows: Any) -> Any:
            return func(rows, 1, *options)

        known = self.met.known(
            (name, size, x.dtype),
            lambda: Samples(name, [(size,)], x.dtype, function, (), ROWS),
            axis="rows",
        )
        rows = laid(x.reshape(-1, size))
        y = known((rows,)).view(x.shape)
        if name == "_softmax":
            for axis in (dim, dim - x.dim()):
                met = "softmax", x.shape, x.dtype, axis, None, torch.get_num_threads()
                self.ready.note(met, x, known, len(rows))
        return y

    # samples

    def _of_samples(self, func: Any, args: Tensors, kwargs: Any) -> Any:
        """Returns a function of samples along axis 0, with options that are not tensors."""
        x, *options = args or (None,)
        rest = [*options, *kwargs.values()]
        if not isinstance(x, torch.Tensor) or any(map(torch.is_tensor, tree_leaves(rest))):
            return NotImplemented
        if x.dtype not in FORMATS or not x.numel() or x.dim() < 2:
            return NotImplemented
        if not self.kinds.apart(func, x, options, kwargs):
            return NotImplemented
        name = f"{func._schema.name.rpartition('::')[2]} {rest}"

        def function(part: Any) -> Any:
            return func(part, *options, **kwargs)

        shape = tuple(x.shape[1:])
        known = self.met.known(
            (str(func), name, shape, x.dtype), lambda: Samples(name, [shape], x.dtype, function)
        )
        self.keeper.limit_lengths(known)
        y = known((laid(x),))
        self.ready.note(None, x, known, len(x))
        return y

    def _native_group_norm(
        self, func: Any, x: Any, w: Any, b: Any, n: int, c: int, size: int, groups: int, eps: float
    ) -> Any:
        shape, which = tuple(x.shape[1:]), (w is not None, b is not None)
        if x.dtype not in FORMATS or not x.numel():
            return NotImplemented

        def function(part: Any, weight: Any, bias: Any) -> Any:
            return functional.group_norm(part, groups, weight, bias, eps)

        def make() -> Samples:
            made = [tensor(spread(7 + at, "w", (c,), 2), x.dtype) for at in range(2)]
            held = tuple(one if there else None for one, there in zip(made, which, strict=True))
            name = f"group_norm groups={groups} eps={eps} weight={which[0]} bias={which[1]}"
            return Samples(name, [shape], x.dtype, function, held)

        known = self.met.known(("group_norm", shape, groups, eps, which, x.dtype), make)
        y = known((laid(x),), (w, b))
        self.ready.note(None, x, known, len(x))
        return y, x.new_empty(0), x.new_empty(0)

    def _instance_normed(
        self,
        x: Any,
        running_mean: Any = None,
        running_var: Any = None,
        weight: Any = None,
        bias: Any = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        """``functional.instance_norm`` with the statistics of each sample."""
        if running_mean is not None or running_var is not None or not use_input_stats:
            return NotImplemented
        if x.dtype not in FORMATS or not x.numel() or x.dim() < 3:
            return NotImplemented
        shape, which = tuple(x.shape[1:]), (weight is not None, bias is not None)

        def function(part: Any, w: Any, b: Any) -> Any:
            return functional.instance_norm(part, None, None, w, b, eps=eps)

        def make() -> Samples:
            made = [tensor(spread(7 + at, "w", shape[:1], 2), x.dtype) for at in range(2)]
            held = tuple(one if there else None for one, there in zip(made, which, strict=True))
            name = f"instance_norm eps={eps} weight={which[0]} bias={which[1]}"
            return Samples(name, [shape], x.dtype, function, held)

        known = self.met.known(("instance_norm", shape, eps, which, x.dtype), make)
        self.keeper.limit_lengths(known)
        return known((laid(x),), (weight, bias))

    def _batch_norm(
        self,
        func: Any,
        x: Any,
        w: Any,
        b: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: Any,
        eps: Any,
    ) -> Any:
        y = self._batch_normed(x, mean, var, w, b, training, momentum, eps)
        return y if y is NotImplemented else (y, x.new_empty(0), x.new_empty(0))

    def _batch_normed(
        self,
        x: Any,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: Any = 0.1,
        eps: Any = 1e-5,
    ) -> Any:
        """``functional.batch_norm``."""
        mean, var, w, b = running_mean, running_var, weight, bias
        met = None
        if not training and mean is not None and var is not None:
            kinds = [None if one is None else one.dtype for one in (mean, var, w, b)]
            met = "batch_norm", x.shape, x.dtype, eps, *kinds, torch.get_num_threads()
            if self.ready(met, x):
                cudnn = torch.backends.cudnn.enabled
                return torch.batch_norm(x, w, b, mean, var, False, 0.0, eps, cudnn)
        if training or mean is None or var is None or x.dtype not in FORMATS or not x.numel():
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

        known = self.met.known(("batch_norm", shape, eps, which, x.dtype, mean.dtype), make)
        y = known((laid(x),), (mean, var, w, b))
        self.ready.note(met, x, known, len(x))
        return y

    def _batch_norm_inference(
        self, func: Any, x: Any, w: Any, b: Any, mean: Any, var: Any, momentum: Any, eps: Any
    ) -> Any:
        return self._batch_norm(func, x, w, b, mean, var, False, momentum, eps)

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
    """Returns the same numbers with no -0 among them, in the same memory."""
    for one in tree_leaves(found):
        if one.is_floating_point():
            one.add_(0.0)
    return found


def _tensors(args: Tensors, kwargs: dict[str, Any]) -> bool:
    return any(isinstance(one, torch.Tensor) for one in (*args, *kwargs.values()))


def _floating(args: Any, kwargs: dict[str, Any]) -> bool:
    """Returns whether any tensor among these has a floating format."""
    for one in (*args, *kwargs.values()):
        if isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex()):
            return True
        if isinstance(one, list | tuple) and _floating(one, {}):
            return True
    return False


def _samples(args: Tensors) -> list[Any]:
    """Returns the shapes without the first axis: the same for every batch."""
    every = [one for one in args if isinstance(one, torch.Tensor)]
    return ["nested" if one.is_nested else tuple(one.shape[1:]) for one in every]


def _shapes(args: Tensors) -> str:
    every = [one for one in args if isinstance(one, torch.Tensor)]
    return ", ".join("nested" if one.is_nested else "x".join(map(str, one.shape)) for one in every)
