"""The kernels that a library itself reports."""
