"""Padded sizes of a model that change no bit."""
