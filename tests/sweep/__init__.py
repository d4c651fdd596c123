"""Sweeps: planned, run, compared and stored."""
