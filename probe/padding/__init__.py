"""Finds the padded sizes of a recorded model that change no bit, and says what to do there.

``positions`` finds which positions of the padded axis each operation reads, and derives what a run
of any size shares with the full one, ``computing`` asks operations alone whether they compute alike
there, ``search`` decides which sizes are safe for content of any length, ``plan`` runs the model at
them, also with constants put in behind operations, before it writes them down for the user.
"""
