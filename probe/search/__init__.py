"""Searches over releases: bisection."""
