"""Collects the kernels that a library reports: evidence beside a cause, never the cause itself.

``sources`` reads oneDNN's log and samples native functions, ``observing`` asks every source that
applies to a target.
"""

from probe.kernels.observing import (
    ASKED,
    SOURCES,
    KernelSource,
    Naming,
    by_source,
    computing,
    kernel_rows,
    observe,
)
from probe.kernels.sources import Kernel, KernelQuestion

__all__ = ["ASKED", "SOURCES", "Kernel", "KernelQuestion", "KernelSource", "Naming", "by_source"]
__all__ += ["computing", "kernel_rows", "observe"]
