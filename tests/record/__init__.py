"""Programs recorded operation by operation."""
