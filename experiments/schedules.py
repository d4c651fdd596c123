"""Do chunks, tiles, streams and caches give the numbers of the whole, and is it rounding if not?

Mistakes that users made are planted into six models, beside schedules with nothing wrong. Decoders,
a state-space scan and a streaming convolution are run by prefixes, caches, chunks and drafts, and
the first operation that differs is held against a referee that calls the operations itself. Sizes
that are said to keep the bits are held against random prompts. Of tiles and chunks of channels of
convolutions it is predicted from the orders of their sums whether bits stay, before they are run.
Training steps in micro-batches are held against the whole batch, and gloo's all-reduce of all sizes
against what the order of a few places predicts.

Writes results/schedules/<machine>/*.parquet; notebooks/schedules.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import probe
from lib import frame
from probe import Case, Target
from probe.diff.pieces import Piece, Schedule
from probe.explain.outputs import output_difference
from probe.explain.runs import outputs_of_call
from probe.order.summation import Summation
from probe.sizes.recognition import UNKNOWN, Recogniser
from probe.targets.launch import Sessions
from probe.ui.answers.schedule import Scheduled

TARGETS = ("torch", "tensorflow,onednn=0")

HERE = "torch,threads=1"
"""Where models run, in this process: small ones take longer on several threads."""

SIDE, HALO = 256, 3
"""Of the picture, and what three 3x3 convolutions read beside a tile."""

TILES = (8, 16, 32, 64, 128)
WIDTHS = (16, 64)
CHUNKS = (4, 8, 16, 32)
"""Of 64 filters, how many are computed at once."""

PROMPTS = 200

WORLDS = (2, 3, 4, 5, 6, 7, 8)
SIZES = 10_000
LARGE = tuple(size + more for size in (16384, 65536, 262144, 1048575) for more in (-1, 0, 1))
BUCKETS = 200
"""Pieces of an array that are reduced alone."""

DTYPES = ("float32", "bfloat16")
FLOATS = ("float32", "float32")

LARGER: Row = {"width": 256, "layers": 4}
"""Of the decoders whose time is measured."""

PREFILLS, TURNS = (32, 64, 96), 20

Key = tuple[str, str, str, str, str, str]
Row = dict[str, Any]


@frame.script
def main(experiment: frame.Experiment) -> None:
    if not experiment.quick:
        measure_costs(experiment)
    with SESSIONS:
        experiment.answer("schedules", questions(experiment.quick), lambda key: key[2])


def measure_costs(experiment: frame.Experiment) -> None:
    """Stores what a step behind a cache costs."""
    import torch

    from lib.scheduled import DECODERS

    torch.set_num_threads(int(HERE.rpartition("=")[2]))
    with experiment.store("steps behind a cache") as (kept, _):
        known = {row[1] for row in kept.done_keys("measurements")}
        for name, how in DECODERS.items():
            if name not in known:
                run = frame.stored_run(HERE, kept, experiment.name)
                named = {"run_id": run, "subject": name, "repeat": 0}
                for variant, size, seconds in costs(how):
                    cost = {"variant": variant, "size": size, "value": seconds}
                    kept.append("measurements", named | cost | {"unit": "processor s"})


SESSIONS = Sessions()


def questions(quick: bool) -> Iterator[tuple[Key, Callable[[], Row]]]:
    """What is asked, by the columns that name it, and what answers it."""
    if quick:
        for bug in ("", "overlap too short", "state dropped"):
            yield _key("mistakes" if bug else "right", "sum", "stream:4", bug), partial(plain, bug)
        return
    import torch

    from lib import scheduled, streamed_files, training

    torch.set_num_threads(int(HERE.rpartition("=")[2]))
    for part, several in (("mistakes", scheduled.mistakes()), ("right", scheduled.right())):
        for each in several:
            yield _key(part, each.name, each.at, each.planted), partial(planted, each)
    for mistake in ("", "state dropped"):
        for at in streamed_files.SCHEDULES:
            part = "mistakes" if mistake else "models"
            key = _key(part, "file of a voice detector", at, mistake, target="onnxruntime")
            yield key, partial(file, at, mistake)
    for name, how in scheduled.DECODERS.items():
        for dtype in DTYPES:
            for mode in ("invariant mode", "as it is"):
                key = _key("invariant", f"{name}, {mode}", "all of a prompt", dtype=dtype)
                yield key, partial(invariant, how, dtype, mode)
    for target in TARGETS:
        for width in WIDTHS:
            for size in TILES:
                key = _key("tiles", f"{width} channels", f"tiles:{size}x{size}", target=target)
                yield key, partial(tiles, target, width, size)
        for chunk in CHUNKS:
            key = _key("channels", "64 channels", f"channels:{chunk}", target=target)
            yield key, partial(channels, target, chunk)
    for name, make, x in scheduled.models():
        for dtype in DTYPES:
            for at in scheduled.SCHEDULES:
                key = _key("models", name, at, dtype=dtype)
                yield key, partial(scheduled_model, make, x, dtype, at)
            # of bfloat16 no size is said to keep the bits
            for kind in ("prefix", "stream") if dtype == "float32" else ():
                key = _key("sizes", name, kind, dtype=dtype)
                yield key, partial(sizes, make, x, dtype, kind)
    for world in reversed(WORLDS):
        yield _key("collectives", f"{world} ranks", "all-reduce"), partial(collective, world)
    for part, steps in (("gradients", training.right()), ("gradients", training.wrong())):
        for step in steps:
            at = f"micro-batches:{step.parts}"
            key = _key(part, step.name, at, step.planted, dtype=step.dtype)
            yield key, partial(gradients, step)


def _key(
    part: str,
    model: str,
    at: str,
    planted: str = "",
    *,
    dtype: str = "float32",
    target: str = HERE,
) -> Key:
    return part, model, "reference" if model == "sum" else target, at, dtype, planted


# ---- models in this process ----


def asked(model: Any, x: np.ndarray, at: str, vary: str, **how: Any) -> Scheduled:
    given: Row = {"inputs": {"x": x}, "explain": False, "progress": lambda _: None}
    answer = probe.network(model, vary=vary, at=at, **given | how)
    assert isinstance(answer, Scheduled)
    return answer


def numbers(differences: Sequence[Any]) -> Row:
    """How many elements of outputs were compared, and how many differ."""
    total = sum(each.elements for each in differences)
    return {
        "outputs": total,
        "compared": total - sum(each.not_compared + each.window for each in differences),
        "differing": sum(each.differing for each in differences),
        "max_ulp": max((each.max_ulp or 0 for each in differences), default=None),
    }


def counted(answer: Scheduled) -> Row:
    report = answer.to_json()
    kinds = [words.partition(":")[0] for words in answer.mistakes]
    first = "" if answer.walked is None else getattr(answer.walked.found.first, "op", "")
    return {
        "verdict": answer.verdict,
        "called": "; ".join(kinds) or ("rounding" if first else answer.verdict),
        **numbers([each for piece in answer.found for each in piece.differences]),
        **{name: report[name] for name in ("window", "far", "lost", "doubled")},
        "enters": report["enters"],
        "first": first or None,
    }


def planted(each: Any) -> Row:
    """A schedule with something wrong, or nothing; ``right``: whether the answer says so, at the
    operation where it enters."""
    answer = asked(each.model(), each.x, each.at, each.vary)
    row, wrong = counted(answer), bool(answer.mistakes)
    named = row["enters"] is not None and row["enters"].startswith(tuple(each.enters.split("|")))
    return row | {"right": wrong and named if each.planted else not wrong}


def scheduled_model(make: Callable[..., Any], x: np.ndarray, dtype: str, at: str) -> Row:
    """A model by a schedule; ``right``: whether its first source is the referee's, with as many
    elements, or none differs in either."""
    from lib.scheduled import First, referee

    model, stateful = make(dtype=dtype), not at.startswith("prefix")
    shown = model if stateful else First(model)
    answer = asked(shown, x, at, "schedule:x:1")
    spans = [piece.piece.inputs[0] for piece in answer.found]
    name, count = referee(model, x, spans, stateful)
    return against_referee(answer, name.removesuffix(".default"), count, x.shape[1], 1)


def against_referee(answer: Scheduled, name: str, count: int, length: int, axis: int) -> Row:
    row = counted(answer) | {"referee": name or None}
    sources = [] if answer.walked is None else answer.walked.found.sources[:2]
    named = any(each.differing == count and (name in each.op or each.grouped) for each in sources)
    positions = np.zeros(length, int)
    for piece in answer.found:
        for each in piece.differences:
            others = tuple(other for other in range(each.apart.ndim) if other != axis)
            positions[slice(*piece.piece.kept[0])] += each.apart.sum(axis=others)
    row["positions"] = positions.tolist()
    # what differs inside may be gone in the outputs, and then no operation was asked
    same = answer.verdict == "equal" or not (count or sources)
    return row | {"right": not answer.mistakes and (named if row["differing"] else same)}


def file(at: str, mistake: str) -> Row:
    """An ONNX file with states, by a schedule; ``right`` as of ``planted`` or of a model."""
    from lib.streamed_files import POSITIONS, detector, file_referee, inputs

    with tempfile.TemporaryDirectory() as folder:
        path = detector(Path(folder) / "detector.onnx", mistake)
        answer = asked(path, inputs()["x"], at, "schedule:x:0", inputs=inputs())
        name, count = file_referee(path, [piece.piece.inputs[0] for piece in answer.found])
    row = against_referee(answer, name, count, POSITIONS, 0)
    if mistake:
        named = (row["enters"] or "").startswith(name)
        row["right"] = bool(answer.mistakes) and bool(name) and named
    return row


def sizes(make: Callable[..., Any], x: np.ndarray, dtype: str, kind: str) -> Row:
    """Sizes that keep the bits, as it is said, and how many of them random prompts contradict."""
    import torch

    from lib.scheduled import First, parts

    model = make(dtype=dtype)
    # a stream of small pieces takes many runs
    every = range(1, x.shape[1]) if kind == "prefix" else range(4, x.shape[1], 4)
    shown = First(model) if kind == "prefix" else model
    answer = asked(shown, x, f"{kind}:8", "schedule:x:1", sizes=every)
    said = [each["at"] for each in answer.safe if each["verdict"] == "equal"]
    draw, broken = np.random.default_rng(1), set[int]()
    with torch.no_grad():
        for number in range(PROMPTS if said else 0):
            numbers = draw.standard_normal(x.shape) * 10.0 ** draw.integers(-2, 3)
            # numbers that cancel: pairs of either sign, a hair apart
            numbers[..., 1::2] = -numbers[..., :-1:2] * (1 + 1e-3 * draw.standard_normal())
            tokens = draw.integers(0, x.max() + 1, x.shape) if x.dtype.kind == "i" else numbers
            prompt = torch.from_numpy(tokens.astype(x.dtype))
            whole = model(prompt)[0]
            # all sizes in turn: 200 prompts ask each of them some ten times
            for size in said[number % 5 :: 5]:
                stops = [*range(size, x.shape[1], size), x.shape[1]]
                part = parts(model, prompt, [size] if kind == "prefix" else stops)
                if not torch.equal(part, whole[:, : part.shape[1]]):
                    broken.add(size)
    return counted(answer) | {
        "safe": [n for size in said for n in (size, size + 1)],
        "broken": len(broken),
        "prompts": PROMPTS,
        "right": not broken,
    }


def gradients(step: Any) -> Row:
    """A training step in micro-batches against the whole batch's; ``right``: whether each operation
    that differs by itself has a cause that replays and PyTorch adds the gradients so, or a mistake
    is named where it enters."""
    both = step.step(step.parts), step.step(1)
    answer = probe.first_difference(*both, time="20m", progress=lambda _: None)
    found = answer.found
    causes = [cause for cause in found.causes.values() if cause.differing]
    apart = sum(one.verdict == "source" or bool(one.differing_alone) for one in found.operations)
    explained = len(causes) == apart and all(cause.explained for cause in causes)
    kinds = dict.fromkeys(cause.kind or "not explained" for cause in causes)
    right = not found.enters and explained and (step.loss != "mean" or step.added())
    return {
        "verdict": answer.verdict,
        "called": f"mistake at {found.enters}" if found.enters else ", ".join(kinds) or "equal",
        **numbers(found.outputs_by_index),
        "enters": found.enters or None,
        "first": None if found.first is None else found.first.op,
        "right": found.enters.startswith(step.enters) if step.planted else right,
    }


def invariant(how: Row, dtype: str, mode: str) -> Row:
    """A decoder by steps, prefill, chunks and drafts, against the whole prompt: logits that differ;
    ``right``: none does in the invariant mode."""
    import torch

    from lib.scheduled import TOKENS, Decoder, parts
    from probe.sizes import stable

    # a length of whole blocks of 16 rows: of others the last rows have bits of their own
    model, x = Decoder(**how, dtype=dtype, fused=True), torch.from_numpy(TOKENS[:, :64])
    size = x.shape[1]
    if mode == "invariant mode":
        sizes = {"batch": range(1, 3), "length": range(1, size + 1)}
        model, _ = stable.invariant(model, sizes, example=x)
    cuts = [[p, *range(p + 1, size + 1)] for p in (1, 7, 16, 33)]
    cuts += [[*range(c, size, c), size] for c in (3, 8, 16, 17)]
    cuts += [[size - draft, size] for draft in (1, 2, 3, 4, 8)]
    row: Row = {"differing": 0, "outputs": 0}
    positions = np.zeros(size, int)
    with torch.no_grad():
        whole = model(x)[0]
        for stops in cuts:
            apart = parts(model, x, stops) != whole
            row["differing"] += int(apart.sum())
            row["outputs"] += apart.numel()
            positions += apart.sum(dim=(0, 2)).numpy()
    row |= {"compared": row["outputs"], "max_ulp": None, "positions": positions.tolist()}
    row |= called(row["differing"])
    return row | {"right": mode != "invariant mode" or not row["differing"]}


def called(differing: int, why: str = "rounding") -> Row:
    return {"verdict": "differs" if differing else "equal", "called": why if differing else "equal"}


def costs(how: Row) -> Iterator[tuple[str, int, float]]:
    """Processor seconds of a decoder's steps behind a cache, and of prompts, as it is and in the
    invariant mode: variant, keys or positions, and the least of turns that alternate."""
    import torch

    from lib.scheduled import PLACES, WORDS, Decoder
    from probe.sizes import stable

    model: Any = Decoder(**how, **LARGER, fused=True)
    x = torch.from_numpy(np.random.default_rng(0).integers(0, WORDS, (1, PLACES)))
    lengths = {"batch": range(1, 3), "length": range(1, PLACES + 1)}
    kept, _ = stable.invariant(model, lengths, example=x)
    least: dict[tuple[str, int], float] = {}
    with torch.no_grad():
        for _ in range(TURNS):
            for name, called in (("as it is", model), ("invariant mode", kept)):
                for size in PREFILLS:
                    _least(least, (f"prefill, {name}", size), partial(called, x[:, :size]))
                _, *state = called(x[:, : PREFILLS[0]])
                for at in range(PREFILLS[0], PLACES):
                    call = partial(called, x[:, at : at + 1], *state)
                    _, *state = _least(least, (f"step, {name}", at), call)
    for (variant, size), seconds in least.items():
        yield variant, size, seconds


def _least(least: dict[Any, float], key: Any, call: Callable[[], Any]) -> Any:
    begun = time.process_time()
    returned = call()
    least[key] = min(time.process_time() - begun, least.get(key, math.inf))
    return returned


def collective(world: int) -> Row:
    """Gloo's all-reduce: orders are revealed of each rank's chunk at one size, and predict the bits
    at all others and of pieces alone. ``differing``: numbers that are others than in the largest
    array; ``right``: all of all ranks were predicted."""
    from lib.collectives import MOST, Ranks, chunk, predicted

    draw, differences = np.random.default_rng(world), list[Any]()
    with Ranks(world) as ranks:
        orders = [ranks.order(1000, n * chunk(1000, world)) for n in range(world)]
        sums = [order.found.orders.summations[0] for order in orders]
        given = draw.standard_normal((world, MOST)) * 10.0 ** draw.integers(-3, 4, (world, MOST))
        ranks.given[:, :MOST] = given.astype(np.float32)
        places = np.arange(MOST)
        known = predicted(sums, ranks.given[:, :MOST])
        whole = known[places // chunk(MOST, world), places]
        starts = draw.integers(0, SIZES // 2, BUCKETS)
        asked_for = [(0, size) for size in (*range(1, SIZES + 1), *LARGE)]
        asked_for += [(int(start), int(start + size)) for start, size in enumerate(starts, 1)]
        wrong, positions = 0, np.zeros(SIZES // 100, int)
        for begin in range(0, len(asked_for), 50):
            some = asked_for[begin : begin + 50]
            for (start, stop), found in zip(some, ranks.reduced(some), strict=True):
                at = places[: stop - start] // chunk(stop - start, world)
                expected = known[at, places[start:stop]]
                wrong += int((found != expected).sum())
                differences.append(output_difference(found[0], whole[start:stop], FLOATS))
                if not start and stop <= SIZES:
                    positions[(stop - 1) // 100] += differences[-1].differing
    trees = "; ".join(dict.fromkeys(str(order.tree) for order in orders))
    row = numbers(differences)
    row |= {"positions": positions.tolist(), "first": trees, "right": not wrong}
    return row | called(row["differing"], "order") | {"predicted": not row["differing"]}


def plain(bug: str) -> Row:
    """A running sum in pieces, for a quick run without a library."""

    def total(x: Any, state: Any = None) -> Any:
        begin = np.float32(0) if state is None or bug == "state dropped" else state
        y = np.cumsum(x[:, 1:] if bug == "overlap too short" else x, axis=1) + begin
        return y, y[:, -1:]

    x = np.random.default_rng(0).standard_normal((1, 16, 2)).astype(np.float32)
    answer = asked(total, x, "stream:4", "schedule:x:1")
    return counted(answer) | {"right": bool(bug) == bool(answer.mistakes)}


# ---- convolutions on targets ----


def _layer(width: int, height: int, length: int, filters: int | None = None) -> Case:
    shape: Row = {"height": height, "length": length, "padding": "same"}
    return Case("conv2d", 3, width, filters or width, **shape, seed=3)


def needed(tile: Piece) -> tuple[tuple[int, int], ...]:
    """Rows and columns that the first layer must give: more than the last, which are kept."""
    return tuple(
        (max(a, begin - HALO + 1), min(b, end + HALO - 1))
        for (begin, end), (a, b) in zip(tile.kept, tile.inputs, strict=True)
    )


def inside(spans: Iterable[tuple[int, int]], origin: Iterable[tuple[int, int]]) -> Any:
    """Spans as slices that count from where others begin."""
    pairs = zip(spans, origin, strict=True)
    return tuple(slice(begin - start, end - start) for (begin, end), (start, _) in pairs)


def orders(target: str, case: Case) -> np.ndarray:
    """How every output is added: numbers of sums, below 0 where that isn't known.

    Of shape (rows, columns, filters). No output is left out: the last block of a matrix product may
    be one row, which is added by another kernel.
    """
    assert case.length is not None
    summations = _SUMMATIONS.setdefault((target, case.in_channels), [])
    session = SESSIONS.of(Target.parse(target))
    recogniser = Recogniser(session, case.with_(length=None), summations=summations)
    pattern = recogniser.pattern(case.length)
    if not pattern.steady:
        return np.full(case.output_shape()[1:], UNKNOWN)
    return np.array(recogniser.kinds)[pattern.kinds].reshape(case.output_shape()[1:])


_SUMMATIONS: dict[tuple[str, int], list[Summation]] = {}
"""By target and channels: sums that were met already are tried first."""


def alike(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether all outputs are added alike, and that is known."""
    return bool((left == right).all() and (left >= 0).all())


@cache
def _of_picture(target: str, width: int) -> np.ndarray:
    return orders(target, _layer(width, SIDE, SIDE))


def tiles(target: str, width: int, size: int) -> Row:
    """Three convolutions of a picture in tiles: first it is predicted whether bits stay."""
    pieces = Schedule.parse(f"tiles:{size}x{size}+overlap:{HALO}").pieces((SIDE, SIDE))
    same = True
    # a tile of each kind: a call's last outputs are kept in the picture's last tile alone
    for tile in pieces:
        if all(begin in (0, size, SIDE - size) for begin, _ in tile.kept):
            (top, bottom), (left, right) = tile.inputs
            part = orders(target, _layer(width, bottom - top, right - left))
            picture = _of_picture(target, width)[inside(needed(tile), ((0, SIDE), (0, SIDE)))]
            same &= alike(part[inside(needed(tile), tile.inputs)], picture)
    x, w, _ = _layer(width, SIDE, SIDE).operands()
    whole, differences = _thrice(target, x, w), list[Any]()
    positions = np.zeros(SIDE, int)
    for tile in pieces:
        given, kept = (tuple(slice(*span) for span in spans) for spans in (tile.inputs, tile.kept))
        part = _thrice(target, x[:, given[0], given[1]], w)
        inner = inside(tile.kept, tile.inputs)
        piece, same_places = part[:, inner[0], inner[1]], whole[:, kept[0], kept[1]]
        differences.append(output_difference(piece, same_places, FLOATS))
        positions[kept[1]] += (piece != same_places).sum(axis=(0, 1, 3))
    return _against_prediction(differences, same) | {"positions": positions.tolist()}


def _thrice(target: str, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(3):
        x = np.ascontiguousarray(x)
        case = _layer(x.shape[3], x.shape[1], x.shape[2])
        x = outputs_of_call(SESSIONS.of(Target.parse(target)), case, (x, w, None))
    return x


def channels(target: str, chunk: int) -> Row:
    """A convolution's filters in chunks: first it is predicted whether bits stay."""
    whole_case, part_case = (_layer(64, 64, 64, filters) for filters in (64, chunk))
    whole_orders, part_orders = orders(target, whole_case), orders(target, part_case)
    same = alike(np.tile(part_orders, 64 // chunk), whole_orders)
    x, w, _ = whole_case.operands()
    session = SESSIONS.of(Target.parse(target))
    whole, differences = outputs_of_call(session, whole_case, (x, w, None)), list[Any]()
    for start in range(0, 64, chunk):
        filters = slice(start, start + chunk)
        part = outputs_of_call(session, part_case, (x, np.ascontiguousarray(w[..., filters]), None))
        differences.append(output_difference(part, whole[..., filters], FLOATS))
    return _against_prediction(differences, same)


def _against_prediction(differences: Sequence[Any], same: bool) -> Row:
    row = numbers(differences)
    row |= called(row["differing"])
    return row | {"predicted": same, "right": same == (not row["differing"])}


if __name__ == "__main__":
    main()
