"""``python -m probe`` is the command ``probe``."""

from probe.ui.cli import main

if __name__ == "__main__":
    main()
