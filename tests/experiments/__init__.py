"""Each experiment in seconds, and its notebook on what that stored."""
