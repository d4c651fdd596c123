"""Runs shards on other machines: Dask places, moves and repeats them, this process stores.

``nodes`` has what runs on a node, connects to a scheduler, and asks each node which machine it is
and which targets it has; ``shards`` divides a sweep or an experiment into Dask's tasks, and stores
what comes back. A shard is JSON, an answer is Arrow's bytes.
"""
