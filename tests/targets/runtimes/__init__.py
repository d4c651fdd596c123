"""Old releases and emulated processors: what is found, installed and said."""
