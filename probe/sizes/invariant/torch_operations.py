"""What becomes of each of PyTorch's operations: run in its class, known to be exact, or left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tag
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from probe.order.semantics import MORE
from probe.record.torch_calls import array, aten_call, changed_by, dtype, op_facts, tensors
from probe.sizes.invariant.keeper import LEFT, Keeper, ReadyOperation
from probe.sizes.invariant.operations import (
    NOT_ROUNDED_ONCE,
    ROWS,
    AskedCall,
    OperationKind,
    named_kind,
    operation_kind,
    samples_apart,
    spread_numbers,
    unlike,
)
from probe.sizes.invariant.torch_calls import (
    ALIGNED,
    FORMATS,
    PositionalCall,
    Tensors,
    TorchByPlace,
    TorchSamples,
    WatchedCalls,
    aligned_contiguous,
    is_weight,
    tensor,
)
from probe.sizes.invariant.torch_products import MetOperations, Products
from probe.sizes.invariant.torch_sequences import Attention, mkldnn_rnn_layer


class TorchOperations:
    """One model's operations, by what they are called with."""

    def __init__(self, keeper: Keeper, parameters: Callable[[], Iterable[Any]] = tuple) -> None:
        self.keeper, self.met, self.parameters = keeper, MetOperations(keeper), parameters
        self.watched = WatchedCalls()
        self.places = Places(self.met, self.watched)
        self.products, self.attention = Products(self.met, self.watched), Attention(self.met)
        self.kinds = Kinds()

        def attended(
            func: Any, q: Any, k: Any, v: Any, *rest: Any, attn_mask: Any = None, **words: Any
        ) -> Any:
            return _with_statistics(1, self.attention(q, k, v, attn_mask, *rest, **words))

        self.handlers: dict[str, Callable[..., Any]] = {
            **self.products.handlers,
            "native_layer_norm": self._layer_norm,
            "native_group_norm": self._group_norm,
            "native_batch_norm": self._batch_norm,
            "_native_batch_norm_legit_no_training": partial(self._batch_norm, training=False),
            **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), self._softmax),
            "_scaled_dot_product_flash_attention_for_cpu": attended,
            "mkldnn_rnn_layer": lambda func, *args: mkldnn_rnn_layer(self.met, *args),
        }

        self.quick: dict[Any, Callable[..., Any]] = {
            **self.products.quick,
            torch.einsum: self._einsum,
            torch.cdist: self._distances,
            functional.scaled_dot_product_attention: self.attention,
            functional.instance_norm: PositionalCall.of(
                functional.instance_norm, self._instance_norm
            ),
            # it leaves an evaluated model's numbers as they are
            functional.dropout: lambda x, p=0.5, training=True, inplace=False: (
                NotImplemented if training else x
            ),
        }
        """Functions that are called often, without the dispatcher; each may say NotImplemented."""

    def run(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> Any:
        kind = self.kinds(func, args, kwargs)
        watched = self.watched
        if kind is OperationKind.EXACT:
            if not self.kinds.general:
                watched.exact = False
            # it gives numbers to the program, which may then call others
            if Tag.data_dependent_output in func.tags or Tag.dynamic_output_shape in func.tags:
                watched.native = False
            return func(*args, **kwargs)
        watched.exact = False
        space, _, name = func._schema.name.rpartition("::")
        y: Any = NotImplemented
        if space != "aten":  # whoever made it gave it its name
            name = func._schema.name
        elif kind is OperationKind.EITHER:
            watched.native = False
            y = func(*args, **kwargs)
            for part in tree_leaves(y):
                if part.is_floating_point():
                    # -0 + 0 is +0, and no other number changes
                    part.add_(0.0)
            return y
        elif not _floating(args, kwargs):  # of integers: exact, but where it gives others
            y = func(*args, **kwargs)
            if op_facts(func).random:
                watched.native = False
            made = tensors((args, kwargs)) and _floating(tree_leaves(y), {})
            return self._left(name, args, kwargs, y) if made else y
        else:
            watched.native_now = False
            operands = tensors((args, kwargs))
            plain = all(x.layout is torch.strided and not x.is_nested for x in operands)
            if plain and not any(map(torch.is_complex, operands)):
                y = self._in_class(func, name, args, kwargs, kind)
        if y is NotImplemented:
            return self._left(name, args, kwargs, func(*args, **kwargs))
        written = name.endswith("_") and not name.startswith("_")
        native = watched.native_now and (not written or kind is OperationKind.PLACE)
        watched.native = watched.native and native
        return args[0].copy_(y) if written else y

    def _in_class(
        self, func: Any, name: str, args: Tensors, kwargs: dict[str, Any], kind: OperationKind
    ) -> Any:
        if name not in self.handlers:
            if kind is OperationKind.PLACE:
                return self.places(func, args, kwargs)
            return self._of_samples(func, args, kwargs)
        if kwargs.get("out") is not None:
            return NotImplemented
        return self.handlers[name](func, *args, **kwargs)

    def _left(self, name: str, args: Tensors, kwargs: dict[str, Any], y: Any) -> Any:
        """What an operation gave as it is; reported unless there are no numbers."""
        self.watched.native = False
        both = [tensors(args), tensors(y)]
        nothing = any(side and not any(map(torch.numel, side)) for side in both)
        parameters, read = set(map(id, self.parameters())), tensors((args, kwargs))
        # a call of the model's own parameters alone is always the same
        if not nothing and not (read and all(id(x) in parameters for x in read)):
            operands = [x for x in args if isinstance(x, torch.Tensor)]
            said = ("nested" if x.is_nested else "x".join(map(str, x.shape)) for x in operands)
            # without the first axis it is the same for every batch
            kind = ["nested" if x.is_nested else tuple(x.shape)[1:] for x in operands]
            self.keeper.leave(f"{name} of {', '.join(said)}", LEFT, f"{name} {kind}")
        return y

    # of the first operand's samples alone

    def _layer_norm(self, func: Any, x: Any, shape: Sequence[int], *rest: Any) -> Any:
        def call(*args: Any) -> Any:
            return func(*args)[0]

        if not x.numel():
            return NotImplemented
        rows, args = x.reshape(-1, *shape), (tuple(shape), *rest)
        y = self._of_samples(func, (rows, *args), {}, call, "rows")
        return _with_statistics(2, y if y is NotImplemented else y.view(x.shape))

    def _softmax(self, func: Any, x: Any, dim: int, *options: Any) -> Any:
        if x.dim() and dim % x.dim() == x.dim() - 1 and x.numel() and not any(options):
            rows = x.reshape(-1, x.shape[-1])
            y = self._of_samples(func, (rows, 1, *options), {}, axis="rows")
            return y if y is NotImplemented else y.view(x.shape)
        return self._of_samples(func, (x, dim, *options), {})

    def _group_norm(self, func: Any, x: Any, w: Any, b: Any, *sizes: Any) -> Any:
        def call(x: Any, w: Any, b: Any, groups: int, eps: float) -> Any:
            return functional.group_norm(x, groups, w, b, eps)

        *_, groups, eps = sizes
        return _with_statistics(
            2, self._of_samples(func, (x, w, b, groups, eps), {}, call, "batch")
        )

    def _batch_norm(self, func: Any, x: Any, w: Any, b: Any, *rest: Any, **words: bool) -> Any:
        mean, var, *options = rest
        training, eps = words.get("training", options[0]), options[-1]
        if training or mean is None or var is None:
            return NotImplemented

        def call(x: Any, w: Any, b: Any, mean: Any, var: Any, eps: float) -> Any:
            return functional.batch_norm(x, mean, var, w, b, False, 0.0, eps)

        args = x, w, b, mean, var, eps
        return _with_statistics(2, self._of_samples(func, args, {}, call, "batch"))

    def _instance_norm(self, x: Any, *options: Any) -> Any:
        """``functional.instance_norm`` with the statistics of each sample: PyTorch's operations
        below it see one sample of all channels."""
        mean, var, weight, bias, of_input, _, eps = options
        if mean is not None or var is not None or not of_input or x.dim() < 3:
            return NotImplemented

        def call(x: Any, w: Any, b: Any, eps: float) -> Any:
            return functional.instance_norm(x, None, None, w, b, eps=eps)

        func = torch.ops.aten.instance_norm.default
        return self._of_samples(func, (x, weight, bias, eps), {}, call, "batch")

    # samples

    def _of_samples(
        self,
        func: Any,
        args: Tensors,
        kwargs: Any,
        call: Any = None,
        axis: str = "",
    ) -> Any:
        """A function of samples along axis 0; ``call``: what is run in its place.

        Of several operands some have samples, others are the same for all of them. ``axis``: the
        first operand alone has samples: ``rows``, of which a sample has several, or those of a
        ``batch``; not given: what has is asked.
        """
        leaves, form = tree_flatten((tuple(args), kwargs))
        operands = tensors(leaves)
        if not operands or operands[0].dim() < 2:
            return NotImplemented
        dtype = operands[0].dtype
        if dtype not in FORMATS or not all(map(torch.numel, operands)):
            return NotImplemented
        carries = (True, *(False,) * (len(operands) - 1))
        if not axis and not (carries := self.kinds.samples(func, leaves, form)):
            return NotImplemented
        for x, its in zip(operands, carries, strict=True):  # whole numbers are held at most
            if x.dtype is not dtype and (its or (x.is_floating_point() and not axis)):
                return NotImplemented
        xs = list(compress(operands, carries))
        held = [x for x, its in zip(operands, carries, strict=True) if not its]
        shapes = [tuple(x.shape[1:]) for x in xs]
        rest, samples = [], set(map(id, compress(operands, carries)))
        for argument in leaves:
            if id(argument) in samples:
                continue
            if isinstance(argument, torch.Tensor):
                # all samples share it: whole numbers by what they are
                bits = argument.contiguous().numpy().tobytes() if _integral(argument) else b""
                sizes = "x".join(map(str, argument.shape))
                rest.append(sizes + (f" {crc32(bits):x}" if bits else ""))
            else:
                rest.append(argument)
        name = f"{func._schema.name.rpartition('::')[2]} {rest}"

        def function(*parts: Any) -> Any:
            both = iter(parts[: len(xs)]), iter(parts[len(xs) :])
            args, kwargs = refilled(options, form, (next(both[not its]) for its in carries))
            return (call or func)(*args, **kwargs)

        def make() -> TorchSamples:
            positive = "batch_norm" in name  # a variance
            drawn = [
                tensor(spread_numbers(7 + n, "w", tuple(x.shape), 2), x.dtype)
                if x.is_floating_point()
                else x.clone()  # places: drawn ones might lie outside
                for n, x in enumerate(held)
            ]
            pieces = ROWS if axis == "rows" else ()
            if positive:
                drawn[-1].abs_()
            return TorchSamples(name, shapes, dtype, function, tuple(drawn), pieces, positive)

        options = [leaf[:0] if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        kinds = (x.dtype for x in held)
        key = str(func), name, *shapes, dtype, carries, *kinds
        ready = self.met.ready(key, make, axis=axis or "batch")
        if not axis:
            self.keeper.limit_lengths(ready)
        fixed = tuple(map(aligned_contiguous, held))
        y = ready(tuple(map(aligned_contiguous, xs)), fixed)
        if sum(carries) == 1 and all(x is same for x, same in zip(held, fixed, strict=True)):
            self.watched.note(operands[0], ready, len(operands[0]))
        return y

    def _einsum(self, equation: Any, *operands: Any) -> Any:
        """``torch.einsum`` of samples along the first axis of an operand and of the answer.

        Below what a mode sees PyTorch makes it a product of pairs of matrices, and takes more than
        two operands in an order that depends on their sizes: of one pair the rows have the batch.
        """
        if len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = tuple(operands[0])
        if not isinstance(equation, str):
            return NotImplemented
        inputs, arrow, answer = equation.partition("->")
        terms, func = inputs.split(","), torch.ops.aten.einsum.default
        for first in range(len(operands)):  # which of them has the samples is asked
            order = sorted(range(len(operands)), key=lambda at: at != first)
            back = [order.index(at) for at in range(len(operands))]

            def call(_: str, moved: Sequence[Any], back: Sequence[int] = back) -> Any:
                return torch.einsum(equation, *(moved[at] for at in back))

            spelled = ",".join(terms[at] for at in order) + arrow + answer
            moved = [operands[at] for at in order]
            y = self._of_samples(func, (spelled, moved), {}, call)
            if y is not NotImplemented:
                return y
        return NotImplemented

    def _distances(self, x1: Any, x2: Any, p: float = 2.0) -> Any:
        """``torch.cdist``: from 26 rows on a product of matrices, below it another kernel. So it is
        one operation here, whose sizes are in one class or not."""
        func = torch.ops.aten._cdist_forward.default
        if x1.dim() != x2.dim() or x1.dim() < 2:
            return NotImplemented
        return self._of_samples(
            func, (x1, x2, float(p), 0), {}, lambda a, b, *_: torch.cdist(a, b, p)
        )


def _with_statistics(count: int, y: Any) -> Any:
    """A result beside the statistics that nothing reads at inference: empty ones."""
    return y if y is NotImplemented else (y, *(y.new_empty(0) for _ in range(count)))


def refilled(leaves: Sequence[Any], form: Any, tensors: Iterable[Any]) -> Any:
    """Arguments whose tensors are these, one after the other."""
    fed = iter(tensors)
    return tree_unflatten([next(fed) if torch.is_tensor(leaf) else leaf for leaf in leaves], form)


def _integral(x: Any) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _floating(args: Any, kwargs: dict[str, Any]) -> bool:
    return any(
        not _integral(x)
        if isinstance(x, torch.Tensor)
        else isinstance(x, list | tuple) and _floating(x, {})
        for x in (*args, *kwargs.values())
    )


# What PyTorch's operations are, asked at the calls that a model makes.
#
# The schema says what only looks at memory or gives numbers to the program, its tags what draws
# random numbers, a few names what IEEE 754 defines, and running it the rest.


# Calls that are kept. Numbers that change at every call, as a step of time, would add to them.
MOST = 1 << 14

# Arguments that choose what is computed by what they are: an axis, a mode, an exponent.
VALUES = frozenset((bool, str, int, type(None)))

# Operations that move elements, or make whole numbers, at any sizes and numbers, where they do so
# at some.
MOVING = frozenset(
    "cat stack clone contiguous copy _unsafe_view index_select gather embedding masked_fill where"
    " constant_pad_nd"
    " repeat flip roll fill zero zeros ones full zeros_like ones_like full_like new_zeros new_ones"
    " new_full arange scalar_tensor".split()
)

# What writes some elements of an operand into places that another names: one place may be named
# twice, and chance decides then.
WRITING = frozenset("scatter index_put _index_put_impl index_copy put masked_scatter".split())

# Elements from which a call is asked about by its first two samples.
LARGE = 1 << 16


class Kinds:
    """What the operations of one model are, by what they are called with.

    ``general``: whether the last one is that at any sizes and with any numbers.
    """

    def __init__(self) -> None:
        self.general = True
        self._kinds: dict[Any, tuple[OperationKind, bool]] = {}
        self._samples: dict[Any, tuple[bool, ...]] = {}

    def __call__(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> OperationKind:
        """What a call of an operation of ATen is. It is run a few times, on copies, where
        this is not known."""
        key = (
            func,
            *map(_what_decides, args),
            *((n, _what_decides(kwargs[n])) for n in kwargs),
        )
        # of all sizes; of these; and with these numbers
        operands = [x for x in tensors((args, kwargs)) if not x.is_nested and x.dim()]
        sized = *key, *((min(len(x), 2), *x.shape[1:]) for x in operands)
        numbers = *sized, repr([x for x in (*args, *kwargs.values()) if isinstance(x, float)])
        for each in (key, sized, numbers):
            if each in self._kinds:
                kind, self.general = self._kinds[each]
                return kind
        if len(self._kinds) >= MOST:
            self._kinds.clear()
        kind, self.general, once = self._of_call(func, args, kwargs)
        exact = kind in (OperationKind.EXACT, OperationKind.EITHER)
        if not once:
            kept = key if self.general else numbers if exact else sized
            self._kinds[kept] = kind, self.general
        return kind

    def _of_call(
        self, func: Any, args: Tensors, kwargs: dict[str, Any]
    ) -> tuple[OperationKind, bool, bool]:
        """What a call is, whether that holds at all sizes and numbers, and whether it is
        said of this call alone."""
        facts, schema = op_facts(func), func._schema
        if not schema.name.startswith("aten::") or facts.random:
            return OperationKind.SOME, True, False
        whole = all("Tensor" not in str(each.type) for each in schema.returns)
        # it looks at memory in another way, or gives numbers to the program
        if facts.view or facts.turns or facts.empty or whole:
            return OperationKind.EXACT, True, False
        if any(x.layout is not torch.strided or x.is_nested for x in tensors((args, kwargs))):
            return OperationKind.SOME, False, True
        try:
            call = asked_call(func, *_first_samples(args, kwargs))
        except (RuntimeError, IndexError):  # a size among its arguments is that of all samples
            call = asked_call(func, args, kwargs)
        pointwise = Tag.pointwise in func.tags or call.name == "_to_copy"
        if pointwise and (named := named_kind(call)) is not None:
            # what adds a multiple, or rounds to tenths, is told by its numbers, and so is a power
            given = {*list(facts.defaults)[: len(args)], *kwargs}
            return named, not given & {"exponent", *MORE}, False
        if call.name in WRITING:
            return _written_kind(call), False, True
        try:
            kind = operation_kind(replace(call, name=""))
        except (RuntimeError, IndexError):  # an operation that doesn't take other numbers
            return OperationKind.SOME, False, False
        return kind, kind is OperationKind.EXACT and call.name in MOVING, False

    def samples(self, func: Any, leaves: Sequence[Any], form: Any) -> tuple[bool, ...]:
        """Which operands have samples along their first axes where an operation works on each by
        itself; empty: it does not, or gives several tensors.

        ``leaves``, ``form``: of its arguments. Operands with as many entries as the first have
        samples, but for parameters; or the first alone.
        """
        operands = tensors(leaves)
        alike = tuple(len(x) == len(operands[0]) and not is_weight(x) for x in operands if x.dim())
        shapes = [x.shape[its:] for x, its in zip(operands, alike, strict=False)]
        rest = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        key = func, str(form), repr(rest), alike, *shapes, *(x.dtype for x in operands)
        if key in self._samples:
            return self._samples[key]
        self._samples[key] = ()
        numbers = tuple(its and not _integral(x) for x, its in zip(operands, alike, strict=False))
        for carries in dict.fromkeys((alike, numbers, (True, *(False,) * (len(operands) - 1)))):
            if len(carries) != len(operands) or not carries[0]:
                continue
            try:  # of three too: a batch of two may fit what is held by chance
                calls = []
                for count in (3, 2):
                    both = zip(operands, carries, strict=True)
                    part = [
                        x[:1].expand(count, *x.shape[1:]).contiguous() if its else x
                        for x, its in both
                    ]
                    calls.append(asked_call(func, *refilled(leaves, form, part)))
                fits = len(calls[1].gives) == 1 and calls[1].gives[0] in FORMATS.values()
                fits = fits and len(calls[1].reads) == len(part)
                if fits and all(samples_apart(call, carries) for call in calls):
                    self._samples[key] = carries
                    break
            except (RuntimeError, IndexError):  # sizes that go with the batch
                continue
        return self._samples[key]


def asked_call(func: Any, args: Tensors, kwargs: dict[str, Any]) -> AskedCall:
    """A call that can be asked about; it changes copies where it changes anything."""
    into, _ = changed_by(op_facts(func), args, kwargs)
    if into:
        args, kwargs = tree_map_only(torch.Tensor, torch.clone, (tuple(args), kwargs))
        into, _ = changed_by(op_facts(func), args, kwargs)
    with torch.no_grad():
        outputs = tensors(func(*args, **kwargs))
        returned = len(outputs)
        outputs += [x for x in into if not any(x is y for y in outputs)]
        call, _, again = aten_call(func, args, kwargs, outputs, returned, range(len(outputs)))

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        if again is None:
            raise RuntimeError(f"{call.op} can't be run alone")
        return again(arrays)

    squares = call.op == "pow" and call.count == 1 and call.get("exponent") == 2
    return AskedCall(
        "square" if squares else call.op,
        run,
        [np.array(array(x)) for x in call.tensors],
        [dtype(x.dtype) for x in call.tensors],
        call.dtypes,
        frozenset(call.more()),
        call.op in NOT_ROUNDED_ONCE,
    )


def _written_kind(call: AskedCall) -> OperationKind:
    """What an operation is that writes into places: exact where each place is named once, so that
    as many results change as there are elements to write."""
    sources = [n for n in call.floating() if n]
    count = max((call.reads[n].size for n in sources), default=0)
    filled = [
        [np.full_like(x, 2 if n in some else 0) if n in call.floating() else x
         for n, x in enumerate(call.reads)]
        for some in ([], sources)
    ]  # fmt: skip
    before, after = (call.run(reads)[0] for reads in filled)
    changed = int(unlike(before, after).sum())
    return OperationKind.EXACT if sources and changed == count else OperationKind.SOME


def _first_samples(args: Tensors, kwargs: dict[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """Arguments with two samples of large tensors alone: what it is doesn't depend on how
    many there are."""
    operands = tensors((args, kwargs))
    count = len(operands[0]) if operands and operands[0].dim() else 0
    if count <= 2 or max(map(torch.numel, operands)) < LARGE:
        return args, kwargs
    shapes = {x.shape[:1] for x in operands if x.dim()}
    if len(shapes) > 1 or any(is_weight(x) for x in operands):
        return args, kwargs
    first = tree_map_only(torch.Tensor, lambda x: x[:2] if x.dim() else x, (tuple(args), kwargs))
    return first[0], first[1]


def _what_decides(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return argument.dtype
    return argument if type(argument) in VALUES else type(argument)


# Functions of one element in PyTorch, whose bits may depend on the place in a vector.


# Elements from which PyTorch shares a function's out among threads (at::parallel).
GRAIN = 1 << 15


class Places:
    """Those of one model: of one tensor, or of two such as ``hypot``, and numbers beside them."""

    def __init__(self, met: MetOperations, watched: WatchedCalls) -> None:
        self.met, self.watched = met, watched
        self.placed: dict[Any, ReadyOperation] = {}

    def __call__(self, func: Any, args: Tensors, kwargs: dict[str, Any]) -> Any:
        xs = [x for x in args if isinstance(x, torch.Tensor)]
        rest = [x for x in (*args, *kwargs.values()) if not isinstance(x, torch.Tensor)]
        if not 1 <= len(xs) <= 2 or len(xs) + len(rest) != len(args) + len(kwargs):
            return NotImplemented
        dtype = xs[0].dtype
        if dtype not in FORMATS or any(x.dtype is not dtype or not x.numel() for x in xs):
            return NotImplemented
        # None where a tensor stands
        numbers = tuple(None if isinstance(x, torch.Tensor) else (x,) for x in args)
        key = func, numbers, tuple(kwargs.items()), dtype, torch.get_num_threads()
        ready = self.placed.get(key)
        if ready is None:
            odd = any(isinstance(number, complex) for number in rest)
            if odd or len(func._schema.returns) != 1 or "out" in kwargs:
                return NotImplemented
            ready = self.placed[key] = self._placed(func, numbers, kwargs, dtype)
        x, *others = torch.broadcast_tensors(*xs) if len(xs) > 1 else xs
        y = ready(tuple(flat.contiguous().view(-1) for flat in (x, *others))).view(x.shape)
        plan = ready.plans.get(x.numel()) or ()
        if others:
            tail = not ready.is_one_call(x.numel())  # the library's own call has one somewhere
        elif self._by_rows(x, ready):
            self.watched.native_now = True
            return y
        else:
            tail = bool(plan) and (plan[-1].places < plan[-1].size or not x.is_contiguous())
        if tail:
            self.met.keeper.by_place(ready.operation.key)
        elif not others:
            self.watched.note(x, ready, x.numel())
        return y

    def _by_rows(self, x: Any, ready: ReadyOperation) -> bool:
        """Whether PyTorch calls such an array row by row, each as a call of its own: a part
        of the columns of a matrix, whose rows are whole vectors and are not shared by threads."""
        if x.dim() != 2 or x.is_contiguous() or x.stride(1) != 1 or x.numel() >= GRAIN:
            return False
        aligned = not (x.data_ptr() | x.stride(0) * x.element_size()) % ALIGNED
        return aligned and ready.plan(x.shape[1]) is not None and ready.is_one_call(x.shape[1])

    def _placed(
        self, func: Any, numbers: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any
    ) -> ReadyOperation:
        base = func._schema.name.rpartition("::")[2].rstrip("_")
        packet = getattr(torch.ops.aten, base)
        call, inputs = getattr(packet, func._overloadname), numbers.count(None)
        options = [number[0] for number in numbers if number]

        def function(*flat: Any) -> Any:
            fed = iter(flat)
            return call(*(number[0] if number else next(fed) for number in numbers), **kwargs)

        def make() -> TorchByPlace:
            # where a number stands first: of ``2.0 ** x``, not of ``x ** 2.0``
            words = base, *(["of"] if numbers[0] else []), *options, *kwargs.values()
            name = " ".join(map(str, words))
            return TorchByPlace(name, dtype, function, inputs)

        return self.met.ready((base, numbers, *kwargs.values(), dtype), make, axis="place")
