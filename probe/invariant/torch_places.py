"""Functions of one element in PyTorch, whose bits may depend on the place in a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional

from probe.invariant.keeper import Known
from probe.invariant.torch_calls import ALIGNED, FORMATS, ByPlace, Tensors
from probe.invariant.torch_native import Ready
from probe.invariant.torch_products import Met

GRAIN = 1 << 15  # elements from which PyTorch shares a function's out among threads


class Places:
    """Those of one model. ``quick``: by the functions that models call."""

    def __init__(self, met: Met, ready: Ready) -> None:
        self.met, self.ready = met, ready
        self.placed: dict[Any, Known] = {}
        self.quick = self._elementwise()

    def _elementwise(self) -> dict[Any, Callable[..., Any]]:
        """Functions of one element that models call by themselves, not in place."""
        aten, found = torch.ops.aten, dict[Any, Callable[..., Any]]()

        def gelu(x: Any, approximate: str = "none") -> Any:
            met = "gelu", approximate, x.shape, x.dtype, torch.get_num_threads()
            if self.ready(met, x):
                return functional.gelu(x, approximate=approximate)
            return self(aten.gelu.default, (x,), {"approximate": approximate}, met)

        def of(packet: Any) -> Callable[..., Any]:
            def run(x: Any, inplace: bool = False, *, out: Any = None) -> Any:
                if inplace or out is not None:
                    return NotImplemented
                met = packet, x.shape, x.dtype, torch.get_num_threads()
                return call(x) if self.ready(met, x) else self(call, (x,), {}, met)

            call = packet.default

            return run

        for name in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "rsqrt"):
            run = of(getattr(aten, name))
            found |= dict.fromkeys((getattr(torch, name), getattr(torch.Tensor, name)), run)
        for name in ("silu", "hardswish", "hardsigmoid", "mish"):
            found[getattr(functional, name)] = of(getattr(aten, name))
        return found | {functional.gelu: gelu}

    def __call__(self, func: Any, args: Tensors, kwargs: dict[str, Any], met: Any = None) -> Any:
        x, *options = args
        if not isinstance(x, torch.Tensor):
            return self._power(*args) if len(args) == 2 and not kwargs else NotImplemented
        rest = [*options, *kwargs.values()]
        if x.dtype not in FORMATS or not x.numel():
            return NotImplemented
        if any(isinstance(one, torch.Tensor) for one in rest):
            return NotImplemented
        key = func, tuple(options), tuple(kwargs.items()), x.dtype, torch.get_num_threads()
        known = self.placed.get(key)
        if known is None:
            if len(func._schema.returns) != 1 or "out" in kwargs:
                return NotImplemented
            known = self.placed[key] = self._placed(func, options, kwargs, x.dtype)
        flat = x.contiguous().view(-1)
        y = known((flat,)).view(x.shape)
        plan = known.plans.get(len(flat))
        if self._by_rows(x, known):
            self.ready.watched.whole = True
        elif plan and (plan[-1].places < plan[-1].size or not x.is_contiguous()):
            self.met.keeper.by_place(known.run.operation.key)
        else:
            self.ready.note(met, x, known, len(flat))
        return y

    def _by_rows(self, x: Any, known: Known) -> bool:
        """Returns whether PyTorch calls such an array row by row, each as a call of its own: a part
        of the columns of a matrix, whose rows are whole vectors and are not shared by threads."""
        if x.dim() != 2 or x.is_contiguous() or x.stride(1) != 1 or x.numel() >= GRAIN:
            return False
        aligned = not (x.data_ptr() | x.stride(0) * x.element_size()) % ALIGNED
        return aligned and known.plan(x.shape[1]) is not None and known.whole(x.shape[1])

    def _power(self, base: Any, x: Any) -> Any:
        """A number to the power of each element."""
        if x.dtype not in FORMATS or not x.numel() or isinstance(base, complex):
            return NotImplemented

        def function(flat: Any) -> Any:
            return torch.pow(base, flat)

        known = self.met.known(
            ("power of", base, x.dtype),
            lambda: ByPlace(f"power of {base}", x.dtype, function),
            axis="place",
        )
        return known((x.contiguous().view(-1),)).view(x.shape)

    def _placed(
        self, func: Any, options: Sequence[Any], kwargs: dict[str, Any], dtype: Any
    ) -> Known:
        rest = [*options, *kwargs.values()]
        base = func._schema.name.rpartition("::")[2].rstrip("_")
        call = getattr(getattr(torch.ops.aten, base), func._overloadname)

        def function(flat: Any) -> Any:
            return call(flat, *options, **kwargs)

        def make() -> ByPlace:
            name = base + "".join(f" {one}" for one in rest)
            return ByPlace(name, dtype, function, written if there else None)

        def written(flat: Any, out: Any) -> Any:
            return packet.out(flat, *options, **kwargs, out=out)

        packet = getattr(torch.ops.aten, base)
        there = "out" in packet.overloads() and func._overloadname == "default"
        return self.met.known((base, tuple(rest), dtype), make, axis="place")
