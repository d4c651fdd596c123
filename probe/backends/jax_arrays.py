"""JAX's arrays on a device and container arrays; JAX's refusals."""

import numpy as np

from probe.backends import channels_first
from probe.backends.contract import OutOfMemory, Unsupported


class Arrays:
    """Values of one dtype on one device. float64 is enabled for its own calls alone."""

    def __init__(self, jax, device, dtype):
        self.jax, self.device = jax, device
        self.narrow, self.wide = dtype == "bfloat16", dtype == "float64"

    def put(self, array):
        """An array on the device with a container array's bits."""
        array = channels_first.copied(array)
        if self.narrow:
            array = array.view(self.jax.numpy.bfloat16)
        return self.enabled(self.jax.device_put)(array, self.device)

    def container(self, y):
        """The container array of a result."""
        array = np.ascontiguousarray(y)
        return array.view(np.uint16) if self.narrow else array

    def enabled(self, function):
        """``function`` where JAX keeps the dtype. Outside of it nothing changes."""
        if not self.wide:
            return function
        if hasattr(self.jax, "enable_x64"):  # from 0.8 on
            context = self.jax.enable_x64
        else:
            from jax import experimental

            context = experimental.enable_x64

        def wide(*given):
            with context(True):
                return function(*given)

        return wide

    def refusing(self, call):
        """``call``, enabled, with JAX's refusals turned into Unsupported and OutOfMemory."""
        enabled = self.enabled(call)

        def guarded(*given):
            try:
                return enabled(*given)
            except (NotImplementedError, TypeError, ValueError) as error:
                raise Unsupported("JAX refuses: " + said(error)) from None
            except RuntimeError as error:  # XlaRuntimeError is one
                kind = OutOfMemory if "RESOURCE_EXHAUSTED" in str(error) else Unsupported
                raise kind("JAX refuses: " + said(error)) from None

        return guarded


def said(error):
    """The first line of what JAX says, at most 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
