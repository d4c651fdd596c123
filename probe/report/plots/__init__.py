"""Draws the pictures of answers and reproductions; ``experiments/lib`` has the notebooks'.

``pictures`` has the colours and the pictures of counts and distances, ``trees`` those of sums,
which it also writes for other programs, ``walks`` those of two runs of a model. ``draw_...`` gives
what an answer shows in a notebook, the others draw into axes that they are given.
"""

from probe.report.plots.pictures import DIFFERS as DIFFERS
from probe.report.plots.pictures import FAINT as FAINT
from probe.report.plots.pictures import OWN as OWN
from probe.report.plots.pictures import QUIET as QUIET
from probe.report.plots.pictures import STABLE as STABLE
from probe.report.plots.pictures import ULPS as ULPS
from probe.report.plots.pictures import VERDICTS as VERDICTS
from probe.report.plots.pictures import class_spans as class_spans
from probe.report.plots.pictures import cost_bars as cost_bars
from probe.report.plots.pictures import draw_ulps as draw_ulps
from probe.report.plots.pictures import layer_map as layer_map
from probe.report.plots.pictures import length_strips as length_strips
from probe.report.plots.pictures import note_part as note_part
from probe.report.plots.pictures import panels as panels
from probe.report.plots.pictures import share_bar as share_bar
from probe.report.plots.pictures import share_map as share_map
from probe.report.plots.pictures import style as style
from probe.report.plots.pictures import ulp_class as ulp_class
from probe.report.plots.pictures import ulp_colour as ulp_colour
from probe.report.plots.pictures import ulp_legend as ulp_legend
from probe.report.plots.pictures import verdict_legend as verdict_legend
