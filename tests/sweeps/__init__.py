"""From one call in a child process to a sweep that is kept in the store."""
