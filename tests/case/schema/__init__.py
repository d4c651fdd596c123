"""The columns of the stored tables."""
