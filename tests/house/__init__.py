"""What holds for the checkout itself: imports, installing, what may be published."""

import importlib.util


def script(path):
    """A Python file outside of any package, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
