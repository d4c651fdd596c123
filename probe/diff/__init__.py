"""What of two runs must agree, found by running; where they part, and why.

The right run is repeated with other content in whatever the left run has not: other samples, later
positions, padding behind a mask (``lacking``). An element whose bits no repetition changes depends
on nothing that the left lacks, so the left must have it too (``repeated``). Operations are paired
by
name, module and order, their values by index (``pairing``); where the programs differ, by being
close on two independent inputs (``by_value``). ``match`` puts it together, ``walk`` compares.

Why an operation differs: ``source`` runs it by itself and names the cause; ``alone`` is one side's
operation, ``sums`` the sum that the engine is asked, ``place`` a function by place. ``apart`` runs
a
program in another process, ``on_target`` on another target.
"""
