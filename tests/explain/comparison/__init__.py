"""Two runs: which outputs must agree, what differs, and why."""
