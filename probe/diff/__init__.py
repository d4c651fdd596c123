"""What of two runs must agree, found by running; where they part, and why.

The right run is repeated with other content in whatever the left run has not: other samples, later
positions, padding behind a mask. An element whose bits no repetition changes depends on nothing
that the left lacks, so the left must have it too (``repeated``; ``watched``: does a run repeat by
itself). Operations are paired by name, module and order, their values by index (``pairing``); where
the programs differ, by being close on two independent inputs (``by_value``). ``match`` puts it
together, ``walk`` compares. ``related``: is it one model, on the same inputs, asked for the same;
``difference``: regions between matched values, their verdicts, and why nothing is known.

Why an operation differs: ``source`` runs it by itself and names the cause; ``alone`` is one side's
operation, ``sums`` the sum that the engine is asked, ``place`` a function by place, ``saturation``
integers that saturate, ``enclosed`` what rounding can do. ``apart`` runs a program in another
process, on a target; ``folder`` is a recording on disk.
"""
