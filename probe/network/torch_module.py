"""Reads PyTorch modules whose forward is a chain, nested ones included.

Other modules are traced by ``torch.fx``, and their graph must be a chain of modules. A file is a
pickled module (``torch.save(module, path)``), which runs code when it is read and so needs trust;
weights alone say no architecture. Classes that are not PyTorch's own end the chain, or are traced.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from probe.activations import ACTIVATIONS
from probe.errors import InputError
from probe.geometry import Windows
from probe.network import reading
from probe.network.chain import Network, Suffix
from probe.network.description import Writer
from probe.network.reading import (
    Progress,
    Stop,
    chain,
    first_is_long,
    other_dtype,
    unreadable,
)
from probe.trust import TO_ONNX, WHOLE_MODULE, check_pickle, missing

IMPORTABLE = "put the module's class where it can be imported (PYTHONPATH=FOLDER), not in __main__"
IDLE = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "Identity")
ENDLESS = {
    "LSTM": reading.STEPS,
    "GRU": reading.STEPS,
    "RNN": reading.STEPS,
    "MultiheadAttention": reading.PAIRS,
    "TransformerEncoderLayer": reading.PAIRS,
    "TransformerEncoder": reading.PAIRS,
    "Flatten": reading.WHOLE,
}
MODULES = {row.module: name for name, row in ACTIVATIONS.items() if row.module}
"""Modules of activations, and the names that we have for them."""

FUNCTIONS = {
    **{name: module for module, name in MODULES.items()},
    "dropout": "Dropout",
    "max_pool1d": "MaxPool1d",
    "max_pool2d": "MaxPool2d",
    "avg_pool1d": "AvgPool1d",
    "avg_pool2d": "AvgPool2d",
}
"""Functions of ``torch.nn.functional``, and the modules that compute the same."""

UNPACKS = ("getitem", "getattr", "size")
"""Steps of a traced forward that compute nothing."""


def from_file(path: Path, height: tuple[int, ...] | None, trust: bool) -> Network:
    """Returns the chain of a pickled module.
    InputError without ``trust``, or where it can't be read."""
    check_pickle(path, trust)
    try:
        import torch
    except ImportError:
        raise missing("torch") from None
    try:
        with warnings.catch_warnings():  # about how the file was written
            warnings.simplefilter("ignore")
            module = torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as error:
        raise unreadable(path, error, f"{IMPORTABLE}, or {TO_ONNX}") from None
    except Exception as error:
        raise unreadable(path, error) from None
    if not isinstance(module, torch.nn.Module):
        why = f"it holds {type(module).__name__}, and weights alone do not define an architecture"
        raise InputError("network", path, why, WHOLE_MODULE)
    return from_object(module, height).with_(name=path.name)


def from_object(module: Any, height: tuple[int, ...] | None) -> Network:
    """Reads the chain of a module; its first layer has the number of axes and channels."""
    parts = list(_leaves(module, ""))
    rank, channels = _input(module, parts)
    writer, progress = Writer(rank, channels, _dtype(module)), Progress(_count(module))
    suffix: Suffix | None = None
    try:
        for name, part in parts:
            if isinstance(part, Stop):
                raise part
            _write(writer, name, part)
            progress.reached(writer)
    except Stop as stop:
        suffix = stop.suffix
    shape: tuple[int | None, ...] = (*(1,) * (rank - 1), None)
    if rank == 2 and first_is_long(tuple(writer.layers), (None, None)):
        shape = shape[::-1]
    found = chain(writer, shape, height, type(module).__name__, suffix, progress)
    return found.with_(note=_in_training(parts))


def _in_training(parts: list[tuple[str, Any]]) -> str:
    """Says which layers are in training mode, where they compute something else than in use."""
    names = [
        f"{name} ({type(part).__name__})"
        for name, part in parts
        if not isinstance(part, Stop) and part.training and _trains(part)
    ]
    if not names:
        return ""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"examined in evaluation mode, although the model is in training mode: {shown}"


def _trains(part: Any) -> bool:
    """Returns whether a module computes something else in training mode."""
    kind = type(part).__name__
    return kind.startswith("BatchNorm") or ("Dropout" in kind and part.p > 0)


def _is_sequence(module: Any) -> bool:
    """Returns whether a module runs its children one after the other, and nothing else."""
    import torch

    sequence = torch.nn.Sequential
    return isinstance(module, sequence) and type(module).forward is sequence.forward


def _is_leaf(module: Any) -> bool:
    """PyTorch's own modules, and those of other classes that have nothing inside."""
    if _is_sequence(module):
        return False
    return _is_own(module) or not list(module.children())


def _is_own(module: Any) -> bool:
    """Returns whether a module's class is PyTorch's: only then its name says what it computes."""
    return str(type(module).__module__).startswith("torch.nn.")


def _hooked(module: Any) -> bool:
    """Returns whether code is run around the module's forward, or in its place."""
    replaced = "forward" in vars(module)
    return bool(module._forward_hooks or module._forward_pre_hooks or replaced)


def _leaves(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """(name, module) in the order of the data; a Stop in place of what is not a chain."""
    name, kind = prefix.rstrip(".") or type(module).__name__, type(module).__name__
    if _hooked(module):
        yield name, Stop(name, kind, reading.HOOKED)
    elif _is_sequence(module):
        for child_name, child in module.named_children():
            yield from _leaves(child, f"{prefix}{child_name}.")
    elif _is_leaf(module):
        yield name, module if _is_own(module) else Stop(name, kind, reading.CUSTOM)
    else:
        yield from _traced(module, prefix)


def _count(module: Any) -> int | None:
    """Modules without children and functions of the forward; None where it can't be traced."""
    import torch

    if _is_leaf(module):
        return 1
    if _is_sequence(module):
        found = [_count(child) for child in module.children()]
    else:
        try:
            graph = torch.fx.symbolic_trace(module).graph
        except Exception:
            return None
        found = [
            _count(module.get_submodule(node.target)) if node.op == "call_module" else 1
            for node in graph.nodes
            if node.op.startswith("call_")
            and getattr(node.target, "__name__", node.target) not in UNPACKS
        ]
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def _traced(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    import torch

    try:
        graph = torch.fx.symbolic_trace(module).graph
    except Exception as error:
        why = f"can't be traced: {' '.join(str(error).split())[:120]}"
        todo = "write its forward without branches on values, as a chain of modules"
        yield prefix, Stop(prefix.rstrip(".") or "module", type(module).__name__, why, todo)
        return
    before = None
    for node in graph.nodes:
        if node.op == "placeholder" and before is None:
            before = node
        elif node.op == "get_attr":  # numbers of the model's own
            continue
        elif node.op == "output":
            if node.args != (before,):
                yield prefix, Stop(f"{prefix}output", "output", reading.OUTPUTS)
            return
        elif node.op == "call_module" and node.args == (before,) and not node.kwargs:
            before = node
            yield from _leaves(module.get_submodule(node.target), f"{prefix}{node.target}.")
        elif node.args[:1] == (before,) and (part := _of_function(node, module)) is not None:
            before = node
            yield f"{prefix}{node.name}", part
        else:
            said = getattr(node.target, "__name__", str(node.target))
            yield prefix, Stop(f"{prefix}{node.name}", said, _why(node, before, said))
            return


def _why(node: Any, before: Any, said: str) -> str:
    """Returns why the chain ends at a step of a traced forward."""
    given = [one for one in node.all_input_nodes if one.op != "get_attr"]
    if node.op == "placeholder" or len(given) > 1:
        return reading.JOINS
    if given != [before]:
        return reading.FORKS
    return reading.WHOLE if said in ("flatten", "mean", "amax") else reading.UNKNOWN


def _of_function(node: Any, module: Any) -> Any:
    """The module that computes what a traced function of its input does; None for others."""
    import torch
    from torch.nn import functional

    kinds = {getattr(functional, name): kind for name, kind in FUNCTIONS.items()}
    kinds |= {getattr(torch, name): FUNCTIONS[name] for name in ("relu", "tanh", "sigmoid")}
    methods = {name: FUNCTIONS[name] for name in ("relu", "tanh", "sigmoid")}
    kind = (methods if node.op == "call_method" else kinds).get(node.target)
    if kind is None or len(node.args) > 5:  # behind these, functions and modules disagree
        return None
    if kind == "Dropout":
        drops = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", True)
        return None if drops and not module.training else torch.nn.Dropout().train(bool(drops))
    try:
        return getattr(torch.nn, kind)(*node.args[1:], **node.kwargs)
    except TypeError:
        return None


def _input(module: Any, parts: list[tuple[str, Any]]) -> tuple[int, int]:
    """(spatial axes, channels) of the first layer that says."""
    for _, part in parts:
        if isinstance(part, Stop) and part is parts[0][1]:
            todo = part.suffix.todo
            raise InputError("network", type(module).__name__, part.suffix.text, todo)
        kind = type(part).__name__
        if kind in ("Conv1d", "Conv2d", "Conv3d"):
            return int(kind[4]), part.in_channels
    name, first = parts[0] if parts else ("", None)
    why = "it has no convolution, from which the axes and channels of the input would follow"
    if (kind := type(first).__name__) in ENDLESS:
        why = f"there is no layer to examine: {name} ({kind}) {ENDLESS[kind]}"
    raise InputError("network", type(module).__name__, why, "give a chain of convolutions")


def _dtype(module: Any) -> str:
    first = next(iter(module.parameters()), None)
    return "float32" if first is None else str(first.dtype).removeprefix("torch.")


def _write(writer: Writer, name: str, part: Any) -> None:
    kind = type(part).__name__
    if kind in IDLE:
        return
    for parameter in part.parameters():
        if (dtype := str(parameter.dtype).removeprefix("torch.")) != writer.dtype:
            raise Stop(name, kind, other_dtype(dtype, writer.dtype))
    if kind in ("Conv1d", "Conv2d", "Conv3d"):
        _convolution(writer, name, part, kind)
    elif kind in ("MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d"):
        _pool(writer, name, part, kind)
    elif kind in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d") and part.track_running_stats:
        _normalisation(writer, name, part)
    elif kind.startswith(("ConstantPad", "ZeroPad")):
        if min(part.padding) < 0:
            raise Stop(name, kind, "crops (its padding is negative)")
        pairs = np.reshape(part.padding, (-1, 2))[::-1].tolist()
        value = float(getattr(part, "value", 0.0))
        padding = [tuple(pair) for pair in pairs]
        writer.add("pad", name, padding=padding, parameters={"value": value} if value else {})
    elif kind in MODULES:
        _activation(writer, name, part, kind)
    elif kind == "Softmax" and part.dim == 1:
        writer.add("activation", name, activation="softmax")
    else:
        whole = reading.WHOLE if kind.startswith("Adaptive") else reading.UNKNOWN
        raise Stop(name, kind, ENDLESS.get(kind, whole))


def _array(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.detach().cpu().numpy()
    return found


def _convolution(writer: Writer, name: str, part: Any, kind: str) -> None:
    if part.padding_mode != "zeros":
        raise Stop(name, kind, f"pads with its own elements ({part.padding_mode})")
    pads = part.padding
    if pads == "same":  # PyTorch's own, stride 1: the odd zero goes after
        windows = Windows(part.kernel_size, part.stride, part.dilation, "same")
        pads = windows.pads(part.kernel_size)
    weights = np.moveaxis(_array(part.weight), (0, 1), (-1, -2))
    words: dict[str, Any] = {
        "kernel": part.kernel_size,
        "stride": part.stride,
        "dilation": part.dilation,
        "padding": pads,
        "groups": part.groups,
        "filters": part.out_channels,
        "weights": weights,
    }
    if part.bias is not None:
        words["bias"] = _array(part.bias)
    writer.add(f"conv{kind[4]}d", name, **words)


def _pool(writer: Writer, name: str, part: Any, kind: str) -> None:
    rank = int(kind[-2])
    every = _each(part.padding, rank)
    if kind.startswith("Avg") and getattr(part, "divisor_override", None):
        raise Stop(name, kind, "has its own divisor")
    counted = kind.startswith("Avg") and part.count_include_pad and any(every)
    words = {
        "kernel": _each(part.kernel_size, rank),
        "stride": _each(part.stride, rank),
        "dilation": _each(getattr(part, "dilation", 1), rank),
        "padding": every,
        "ceil_mode": bool(part.ceil_mode),
        "pad_with": "zeros" if counted else "nothing",
    }
    writer.add(f"{kind[:3].lower()}_pool{rank}d", name, **words)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (int(value),) * rank


def _normalisation(writer: Writer, name: str, part: Any) -> None:
    """Scale and shift as PyTorch rounds them: the shift's product is not rounded by itself."""
    mean, variance = _array(part.running_mean), _array(part.running_var)
    one = variance.dtype.type(1)
    scale = one / np.sqrt(variance + variance.dtype.type(part.eps))
    if part.affine:
        scale = scale * _array(part.weight)
    shift = -mean.astype(np.float64) * scale + (_array(part.bias) if part.affine else 0.0)
    writer.add("normalisation", name, scale=scale, shift=shift)


def _activation(writer: Writer, name: str, part: Any, kind: str) -> None:
    parameters = {}
    if kind == "LeakyReLU":
        parameters = {"alpha": float(part.negative_slope)}
    elif kind == "ELU":
        parameters = {"alpha": float(part.alpha)}
    elif kind == "GELU" and part.approximate != "none":
        raise Stop(name, kind, f"is approximated by {part.approximate}")
    elif kind == "Softplus" and (part.beta, part.threshold) != (1, 20):
        raise Stop(name, kind, "has its own beta or threshold")
    writer.add("activation", name, activation=MODULES[kind], parameters=parameters)
