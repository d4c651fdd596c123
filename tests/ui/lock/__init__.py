"""Bits that were accepted: kept, checked, and why they changed."""
