"""Draws the pictures of answers and reproductions; ``experiments/lib`` has the notebooks'.

``pictures`` has the colours and the pictures of counts and distances, ``trees`` those of sums,
which it also writes for other programs, ``walks`` those of two runs of a model. ``draw_...`` gives
what an answer shows in a notebook, the others draw into axes that they are given.
"""

from probe.plots.pictures import (
    DIFFERS,
    FAINT,
    OWN,
    QUIET,
    STABLE,
    ULPS,
    VERDICTS,
    class_spans,
    cost_bars,
    draw_ulps,
    layer_map,
    length_strips,
    note_part,
    panels,
    share_bar,
    share_map,
    style,
    ulp_class,
    ulp_colour,
    ulp_legend,
    verdict_legend,
)

__all__ = ["DIFFERS", "FAINT", "OWN", "QUIET", "STABLE", "ULPS", "VERDICTS", "cost_bars"]
__all__ += [
    "class_spans",
    "draw_ulps",
    "layer_map",
    "length_strips",
    "note_part",
    "panels",
    "share_bar",
]
__all__ += ["share_map", "style", "ulp_class", "ulp_colour", "ulp_legend", "verdict_legend"]
