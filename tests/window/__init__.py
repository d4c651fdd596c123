"""Which inputs an output reads, and which outputs must agree."""
