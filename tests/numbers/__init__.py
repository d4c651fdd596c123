"""Bits, values, their rounding and comparison, and the operands that go in."""
