"""Why two runs differ, of one case and of a whole store."""
