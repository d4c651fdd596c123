"""The invariant mode, and what else keeps the bits."""
