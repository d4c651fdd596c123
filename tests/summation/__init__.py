"""In which order each output is added, and why two runs differ."""
