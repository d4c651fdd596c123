"""Rows on disk: atomic, merged by key, partitioned, and read after damage."""
