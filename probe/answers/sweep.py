"""Finds where bits differ along an axis (``probe sweep``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe import backends, layout
from probe.answers.answer import DEFAULT_TARGET, case_of, targets_of
from probe.answers.swept import Swept
from probe.arguments import whole_numbers
from probe.budget import within
from probe.case import Case
from probe.errors import InputError
from probe.options import checked_options
from probe.progress import Tell, silent
from probe.shard import Shard, within_shard
from probe.store import Store
from probe.sweeps import Plans, SweepRequest, answer_request, axis_values
from probe.target import Target
from probe.window import axis_of, number_of

if TYPE_CHECKING:
    from probe.answers.swept_by_order import SweptByOrder


def sweep(
    case: Case,
    lengths: Iterable[int | str] | str | None,
    target: str | Target | Iterable[str | Target] = DEFAULT_TARGET,
    *,
    vary: str | None = None,
    by: str = "bits",
    store: str | Path | Store | None = None,
    control: str = "every",
    keep: int | None = None,
    workers: int | None = None,
    progress: Tell | None = None,
    zeros: str = "equal",
    shard: str = "1/1",
    cluster: str | None = None,
    time: str | None = None,
) -> Swept | SweptByOrder:
    """Runs ``case`` at many lengths and compares each with the longest, output by output.

    ``lengths``: two or more values of the axis ``vary`` (length, batch, filters, channels or
    layout; None: length, of a dense layer batch), such as ``range(5, 41)`` or ``"5..40"``. Layouts
    are words, each compared with ``contiguous``; ``lengths`` None: all that the targets keep.
    ``target``: one or several.
    ``by``: ``bits``, or ``order``: the summations are compared, for all finite operands.
    ``store``: a folder, or a store of the caller's, who closes it; what is there is not measured
    again; None keeps nothing. ``control``:
    ``every`` shape runs again, or only ``differing`` ones.
    ``keep``: differing outputs stored of each comparison; None: all. ``workers``: targets side by
    side. ``zeros``: ``differ`` makes +0 against -0 a difference, at 0 ulp, and keeps nothing;
    ``equal`` counts them. ``shard``: ``2/8`` runs the second of eight parts of the values and keeps
    it in a folder of its own beside the others'. ``cluster``: ``local:2`` or a Dask scheduler's
    address: nodes run it, and it is stored here by their machines; a target then may say
    ``machine=LABEL``. ``time``: ``30m`` (90s, 2h) runs what is likely to differ first, ends when
    the time is up and reports what was left out; the same call continues. Errors: InputError before
    anything runs. A target's failure is part of the answer.

    >>> import probe
    >>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=64)
    >>> probe.sweep(case, range(5, 41), ["tensorflow,onednn=0", "torch"])  # doctest: +SKIP
    """
    part = Shard.parse(shard)
    control, by, zeros = checked_options(control=control, by=by, zeros=zeros)
    keep, workers = checked_options(keep=keep, workers=workers)
    _suit_each_other(by, zeros, time, store, cluster, workers)
    if cluster is not None:
        from probe.cluster import sweeps as clustered

        several = [target] if isinstance(target, str | Target) else target
        wanted = list(dict.fromkeys(map(clustered.Wanted.parse, several)))
        chosen = [one.target for one in wanted]
    else:
        chosen = targets_of(target)
    vary = axis_of(case_of(case), vary)
    values = _layouts(lengths, case, chosen) if vary == "layout" else _values(lengths, vary)
    plans = Plans([case], vary, *axis_values(values, vary))
    if part.total > len(values) - 1:
        why = f"there are {len(values) - 1:,} values to compare, so some parts would have none"
        raise InputError("shard", shard, why, f"use {len(values) - 1} parts at most")
    request = SweepRequest(plans, control, keep, zeros)
    if cluster is not None:
        folder = None if store is None else Path(str(store)) / part.folder
        notes: list[str] = []
        request = replace(request, only=tuple(part.part(plans.values)))
        summary = clustered.sweep_on_nodes(
            *(cluster, request, wanted, folder), progress or silent, notes.append
        )
        return Swept(summary, plans[0].case, values, notes)
    if isinstance(store, str | Path):
        opened: AbstractContextManager[Store | None] = Store.here(Path(store) / part.folder)
    else:
        opened = nullcontext(store)
    with within(time), within_shard(part), opened as kept:
        if by == "order":
            from probe.answers import swept_by_order

            values = [*part.part(values[:-1]), values[-1]]
            return swept_by_order.sweep(case, values, vary, chosen, kept, progress)
        return Swept(answer_request(request, chosen, kept, workers, progress), case, values)


def _suit_each_other(
    by: str,
    zeros: str,
    time: str | None,
    store: object,
    cluster: str | None,
    workers: int | None,
) -> None:
    """Raises InputError for options that exclude each other."""
    if zeros == "differ" and store is not None:
        why, todo = (
            "stored results count +0 and -0 as equal",
            "store nothing: --no-store (store=None)",
        )
        raise InputError("zeros", zeros, why, todo)
    if zeros == "differ" and by == "order":
        why = "orders do not depend on the sign of zeros"
        raise InputError("zeros", zeros, why, "use --by bits")
    if time is not None and by == "order":
        why = "a sweep by order can't be resumed"
        raise InputError("time", time, why, "use --by bits, or fewer values")
    if cluster is None:
        return
    if time is not None:
        why = "nodes do not know each other's results, which decide what is run first"
        raise InputError("time", time, why, "leave out --cluster, or divide by --shard")
    if by != "bits":
        why = "sweeps by order do not run on a cluster"
        raise InputError("cluster", cluster, why, "give each machine a part: --shard i/n")
    if workers is not None:
        todo = "leave --workers out; `dask worker --nworkers` says how many a node runs"
        raise InputError("workers", workers, "the cluster's nodes decide this", todo)
    if isinstance(store, Store):
        raise InputError("store", store.path, "the nodes are different machines", "give a folder")


OFFSETS = (4, 16, 32)
"""Bytes of the offsets that a sweep of all layouts tries."""


def _layouts(given: Iterable[int | str] | None, case: Case, targets: Sequence[Target]) -> list[int]:
    """Returns the numbers of layouts, ``contiguous`` last; None: all that the targets keep."""
    if given is None:
        kept = dict.fromkeys(word for one in targets for word in backends.get(one.name).layouts)
        given = [w for w in kept if not w.startswith(layout.OFFSET) and _fits(case, w)]
        given += [
            word
            for word in (f"{layout.OFFSET}{count}" for count in OFFSETS)
            if layout.keeps_layout(word, tuple(kept)) and _fits(case, word)
        ]
    several = given.split(",") if isinstance(given, str) else list(given)
    numbers = [number_of("layout", one) for one in several]
    others, against = axis_values([one for one in numbers if one is not None], "layout")
    return [*others, against]


def _fits(case: Case, word: str) -> bool:
    try:
        case.with_(layout=word)
    except InputError:
        return False
    return True


def _values(lengths: Any, vary: str) -> list[int]:
    """Returns the values ascending, each once. InputError where they aren't whole numbers."""
    if isinstance(lengths, int | np.integer):
        why = "one length has nothing to be compared with"
        todo = f"write range(1, {lengths + 1}) or [1, {lengths}]"
        raise InputError("lengths", lengths, why, todo)
    if isinstance(lengths, str):
        return whole_numbers("lengths" if vary == "length" else f"{vary} values", lengths)
    whole = None if lengths is None else list(lengths)
    if whole is None or not all(isinstance(one, int | np.integer) for one in whole):
        todo = "write range(5, 41), [5, 9] or 5..40"
        raise InputError("lengths", lengths, "these are not whole numbers", todo)
    return sorted({int(one) for one in whole})
