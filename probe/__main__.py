"""``python -m probe`` is the command ``probe``."""

from probe.cli import main

main()
