"""Rows on disk: atomic, merged by key, and read after damage."""
