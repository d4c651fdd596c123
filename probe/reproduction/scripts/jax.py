"""JAX: lax.conv_general_dilated and jnp.matmul under jax.jit, channels last."""

from __future__ import annotations

from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction.scripts.contract import Library, flat, lines, pairs_of, restored
from probe.target import Target
from probe.window import code

PRODUCTS = {
    "matmul": "jnp.matmul(x, w)",
    "dot": "jnp.dot(x, w)",
    "sum": "jnp.sum(x, axis=-1)",
    "dense": "jnp.dot(x, w)",
}


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    if case.op in PRODUCTS:
        computed = [f"y = {PRODUCTS[case.op]}"]
    else:
        write = code.POOLING if case.pool else code.CONVOLUTIONS
        computed = list(lines(write["jax"](case, pairs_of(case))))
    biased = case.bias is not None
    given = ["x", *(["w"] if case.weighted else []), *(["b"] if biased else [])]
    values = dict(zip(("x", "w", "b"), (*flat(case), "b"), strict=True))
    body = ["", "@jax.jit", f"def jitted({', '.join(given)}):"]
    body += [f"    {line}" for line in computed] + [
        "    return y + b" if biased else "    return y"
    ]
    arguments = ", ".join(array(case, values[name]) for name in given)
    wide = ".astype(jnp.float32)" if case.dtype == "bfloat16" else ""
    body += ["", f"y = np.asarray(jitted({arguments}){wide})", f"return {restored(case, 'y')}"]
    imports = ["import jax", "import jax.numpy as jnp"]
    if "lax." in "".join(computed):
        imports.append("from jax import lax")
    setup = configured(target, case)
    return Library("JAX", "jax.__version__", tuple(imports), tuple(body), setup, ("jax",))


def array(case: Case, value: str) -> str:
    """An array on JAX's device."""
    kind = ", jnp.bfloat16" if case.dtype == "bfloat16" else ""
    return f"jnp.asarray({value}{kind})"


def configured(target: Target, case: Case) -> tuple[str, ...]:
    """float64, the device, TF32."""
    found = ['jax.config.update("jax_enable_x64", True)'] * (case.dtype == "float64")
    switches = dict(target.switches)
    if "tf32" in switches:
        precision = {"0": "highest", "1": "default"}[switches["tf32"]]
        found.append(f'jax.config.update("jax_default_matmul_precision", "{precision}")')
    if target.device != "cpu":
        number = target.device.partition(":")[2]
        found.append(f'jax.config.update("jax_default_device", jax.devices("gpu")[{number}])')
    return tuple(found)
