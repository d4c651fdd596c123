"""Runs shards on other machines: Dask places and moves them, nodes answer, this process stores.

``nodes`` connects to a scheduler, learns what every node is and has, and whether it is believed;
``node`` is what runs there; ``dealing`` has each shard asked until it is answered or given up;
``answers`` judges and reads what comes back; ``sweeps`` and ``scripts`` say what a sweep and an
experiment ask. A shard is JSON, an answer is Arrow's bytes: pickles travel only between our own
processes.
"""
