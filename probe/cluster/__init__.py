"""Runs shards on other machines: Dask places and moves them, nodes answer, this process stores.

``nodes`` has what runs on a node, connects to a scheduler, and learns what every node is and has,
and whether it is believed; ``shards`` has each part of a sweep or an experiment asked until it is
answered or given up, and judges and stores what comes back. A shard is JSON, an answer is Arrow's
bytes: pickles travel only between our own processes.
"""
