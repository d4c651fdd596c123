"""Runs questions on other machines: Dask moves them, nodes answer, this process stores.

``nodes`` connects to a scheduler, learns what every node is and has, and moves question sets;
``node`` is what runs there; ``dealing`` gives each node shards and takes them elsewhere where it is
lost; ``answers`` judges and reads what comes back; ``sweeps`` and ``scripts`` say what a sweep and
an experiment ask. A question set is JSON, an answer is Arrow's
bytes: pickles travel only between our own processes.
"""
