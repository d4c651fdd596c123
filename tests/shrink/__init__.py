"""A smaller case that fails in the same way."""
