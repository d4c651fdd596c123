"""What of two runs must agree, found by running; where they part, and why.

Read ``walk``: both sides are watched (``running``: does a run repeat by itself), in this process,
on a target (``apart``) or on disk (``folder``), compared and explained. A side is repeated with
different content in whatever the other side has not: other samples, later positions, padding behind
a mask. An element whose bits no repetition changes depends on nothing that the other lacks, so the
other must have it too (``repeated``). ``running`` finds that for models with inputs, ``functions``
for two functions with the arrays that they hold; ``pieces`` are chunks against the whole,
``micro_batches`` a training step in parts.

Operations are paired by name, module and order, their values by index (``pairing``); where the
programs differ, by being close on two independent inputs (``by_value``). ``match`` puts it
together. ``related``: is it one model, on the same inputs, called with the same arguments;
``difference``: regions between matched values, their verdicts, and why nothing is known.

Why an operation differs: ``source`` runs it by itself, names the cause and holds it against what
rounding can do; ``alone`` is one side's operation and what its library's users call it, ``sums``
the sum of products that it is, ``causes`` what functions by place and integers that saturate do.
``docs/models.md`` follows one comparison through these files.
"""
