"""The conditions that decide bits here: facts by name, one value each.

``cores``, ``processor``, ``isa``, ``architecture``; ``blas.LIBRARY``, the processor whose kernels
its OpenBLAS took; ``threads.LIBRARY``; ``flag.VARIABLE``, a variable or setting that chooses
kernels; ``library.NAME``, the release of each numeric library that was loaded. No host name and no
path is a fact.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import xxhash

from probe import machine
from probe.backends.arrays import CORES, PREFIXES, SUFFIXES, Arrays
from probe.backends.contract import ONEDNN_ISA, isa_variables
from probe.backends.jax import ISA as XLA_ISA

Facts = dict[str, str | int]

LIBRARIES = {
    **{name: name for name in ("numpy", "scipy", "torch", "jax", "jaxlib", "keras", "pandas")},
    **{name: name for name in ("tensorflow", "onnxruntime", "openvino", "polars", "numba")},
    **{name: name for name in ("transformers", "xgboost", "lightgbm", "numexpr", "torchvision")},
    "cv2": "opencv-python-headless",
    "ai_edge_litert": "ai-edge-litert",
    "sklearn": "scikit-learn",
    "mkl": "mkl",
    "scipy_openblas64": "scipy-openblas64",
}
"""Modules that compute numbers, and the distribution of each."""

ALSO = {
    "cv2": ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless"),
    "tensorflow": ("tensorflow-cpu", "tensorflow-intel"),
    "onnxruntime": ("onnxruntime-gpu",),
}
"""Further distributions that may bring a module."""

FLAGS = (
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE"),
    *("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", "XLA_FLAGS", "MKL_CBWR"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "TF_ENABLE_ONEDNN_OPTS"),
    *("TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL", "TF_DETERMINISTIC_OPS", "TF_XLA_FLAGS"),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE", "NVIDIA_TF32_OVERRIDE"),
    *("CUBLAS_WORKSPACE_CONFIG", "KERAS_BACKEND", "JAX_ENABLE_X64", "JAX_PLATFORMS"),
    *("JAX_DEFAULT_MATMUL_PRECISION", "TORCHINDUCTOR_EMULATE_PRECISION_CASTS", "NUMBA_CPU_NAME"),
    *("CUDA_VISIBLE_DEVICES", "NUMBA_CPU_FEATURES", "MKL_DYNAMIC"),
)
"""Variables of the environment that choose kernels, formats or devices."""

THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "PJRT_NPROC"),
    *("TF_NUM_INTRAOP_THREADS", "NUMEXPR_NUM_THREADS", "POLARS_MAX_THREADS", "NUMBA_NUM_THREADS"),
)
"""Variables that set how many threads libraries take."""

SETS = {
    "torch": ("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    **dict.fromkeys(("numpy", "scipy", "scipy_openblas64"), ("OPENBLAS_NUM_THREADS",)),
    "tensorflow": ("TF_NUM_INTRAOP_THREADS",),
}
"""What sets the threads of a library that says how many it takes."""

CORES_OF = "PROBE_CORES"
"""Not a library's variable: how many processors a process that runs a check again may use."""


def here(libraries: Iterable[str] = ()) -> Facts:
    """Returns the conditions of this process; ``libraries``: also these, loaded or not.

    Costs some 20 ms the first time and 0.1 ms later, when nothing else was loaded meanwhile.
    """
    loaded = [name for name in LIBRARIES if sys.modules.get(name) is not None]
    found: Facts = dict(_machine())
    for name in dict.fromkeys((*loaded, *libraries)):
        found[f"library.{name}"] = _release(name)
    found |= {f"flag.{name}": os.environ[name] for name in FLAGS if os.environ.get(name)}
    found |= {f"threads.{name}": os.environ[name] for name in THREADS if os.environ.get(name)}
    found |= _settings()
    for name, (core, threads) in _blas(tuple(loaded)).items():
        found[f"blas.{name}"] = core()
        found[f"threads.{name}"] = threads()
    return found


def key(facts: Mapping[str, str | int]) -> str:
    """Returns the name of a set of conditions in the lock: 10 digits of a digest."""
    text = "\n".join(f"{name}={facts[name]}" for name in sorted(facts))
    return xxhash.xxh3_128_hexdigest(text.encode())[:10]


def _machine() -> Facts:
    cores = machine.cores()  # it may be changed meanwhile: os.sched_setaffinity
    facts: Facts = {"cores": cores, "processor": machine.label(), "isa": machine.isa() or "unknown"}
    return facts | {"architecture": platform.machine()}


@cache
def _release(name: str) -> str:
    """Returns the installed release of a library by its module's name; ``none`` without one."""
    for one in (LIBRARIES.get(name, name), *ALSO.get(name, ())):
        try:
            return metadata.version(one)
        except metadata.PackageNotFoundError:
            continue
    found = getattr(sys.modules.get(name), "__version__", None)
    return found if isinstance(found, str) else "none"


def _settings() -> Facts:
    """Returns what libraries that are loaded were set to, where it isn't their default."""
    found: Facts = {}
    if (torch := sys.modules.get("torch")) and hasattr(torch, "get_num_threads"):
        found["threads.torch"] = torch.get_num_threads()
        if torch.cuda.is_initialized():
            found["processor.gpu"] = torch.cuda.get_device_name()
        if torch.are_deterministic_algorithms_enabled():
            found["flag.torch.deterministic"] = 1
        if not torch.backends.mkldnn.enabled:
            found["flag.torch.mkldnn"] = 0
        if (precision := torch.get_float32_matmul_precision()) != "highest":
            found["flag.torch.float32_matmul_precision"] = precision
    if (jax := sys.modules.get("jax")) and hasattr(jax, "config"):
        if getattr(jax.config, "jax_enable_x64", False):
            found["flag.jax.x64"] = 1
        if precision := getattr(jax.config, "jax_default_matmul_precision", None):
            found["flag.jax.default_matmul_precision"] = str(precision)
    if (tensorflow := sys.modules.get("tensorflow")) and hasattr(tensorflow, "config"):
        threads = tensorflow.config.threading.get_intra_op_parallelism_threads()
        found |= {"threads.tensorflow": threads} if threads else {}
        experimental = tensorflow.config.experimental
        if getattr(experimental, "is_op_determinism_enabled", lambda: False)():
            found["flag.tensorflow.deterministic"] = 1
    if (cv2 := sys.modules.get("cv2")) and hasattr(cv2, "getNumThreads"):
        found["threads.cv2"] = cv2.getNumThreads()
    return found


@cache
def _blas(loaded: tuple[str, ...]) -> dict[str, tuple[_BlasFunction, _BlasFunction]]:
    """Returns what asks the OpenBLAS of each library which kernels it took, and its threads.

    ``loaded``: the libraries so far: with each, another OpenBLAS may have come. Linux alone says
    what a process has loaded.
    """
    try:
        maps = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return {}
    found = {}
    for path in sorted(set(re.findall(r"(/\S*openblas\S*)$", maps, re.MULTILINE))):
        folder = Path(path).parent.name
        name = folder.removesuffix(".libs") if folder.endswith(".libs") else "system"
        name = {"opencv_python_headless": "cv2", "lib": "scipy_openblas64"}.get(name, name)
        core, threads = (
            _BlasFunction.of(path, what) for what in ("get_corename", "get_num_threads")
        )
        if core is not None and threads is not None:
            found[name] = core, threads
    return found


ASKED = "get_corename", "get_num_threads"


class _BlasFunction:
    """A function of an OpenBLAS without arguments."""

    def __init__(self, function: ctypes._NamedFuncPointer, text: bool) -> None:
        function.restype = ctypes.c_char_p if text else ctypes.c_int
        self.function = function

    @classmethod
    def of(cls, path: str, what: str) -> _BlasFunction | None:
        """Returns ``openblas_WHAT`` of a library; its name has a prefix and a suffix in wheels."""
        try:
            library = ctypes.CDLL(path)
        except OSError:
            return None
        for name in (f"{a}openblas_{what}{b}" for a in PREFIXES for b in SUFFIXES):
            if hasattr(library, name):
                return cls(getattr(library, name), what == "get_corename")
        return None

    def __call__(self) -> str | int:
        found = self.function()
        return found.decode() if isinstance(found, bytes) else int(found)


Apart = dict[str, dict[str, tuple[str | int | None, str | int | None]]]
"""Differences by condition (``processor``, ``threads``, ``flag VAR``, ``release LIB``): the facts
behind each, with the entry's value and ours."""


def apart(entry: Mapping[str, str | int], ours: Mapping[str, str | int]) -> Apart:
    """Returns the conditions in which an entry differs from ours; empty: all that it says holds.

    What the entry does not say (a library that was not loaded then) does not count, apart from
    flags: without a variable is a condition too. An OpenBLAS of another release, or chosen by a
    flag, is no condition of its own: it follows from these.
    """
    found: Apart = {}
    for name in dict.fromkeys((*entry, *ours)):
        theirs, own = entry.get(name), ours.get(name)
        kind, _, rest = name.partition(".")
        chosen = kind == "flag" or (kind == "threads" and rest in THREADS)
        if theirs == own or (not chosen and (theirs is None or own is None)):
            continue
        library = rest.partition(".")[0]
        if kind == "flag" and library in LIBRARIES and f"library.{library}" not in ours:
            continue  # not loaded (yet): it can't say how it is set
        if kind == "blas" and (
            entry.get(f"library.{rest}") != ours.get(f"library.{rest}")
            or entry.get("flag.OPENBLAS_CORETYPE") != ours.get("flag.OPENBLAS_CORETYPE")
        ):
            continue
        group = {"flag": f"flag {rest}", "library": f"release {rest}"}.get(kind, kind)
        group = {"cores": "threads", "threads": "threads"}.get(group, group)
        group = "processor" if group in ("isa", "blas", "architecture", "processor") else group
        found.setdefault(group, {})[name] = theirs, own
    return found


def restoring(group: str, facts: Mapping[str, tuple[str | int | None, str | int | None]]) -> Facts:
    """Returns variables that bring a condition of an entry back, as far as a process can have it.

    Empty values are to be unset. Of another processor: its instruction set, for every library that
    can be limited; sizes of caches stay. Releases are installed: :mod:`probe.lock.reruns`.
    """
    kind, _, name = group.partition(" ")
    if kind == "flag":
        return {name: facts[f"flag.{name}"][0] or ""} if name in FLAGS else {}
    if kind == "threads":
        found: Facts = {}
        for fact, (theirs, _) in facts.items():
            kind, _, name = fact.partition(".")
            if kind == "cores":
                found[CORES_OF] = theirs or ""
            elif name in THREADS:
                found[name] = theirs or ""
            else:  # set by a program, or taken from the number of cores
                found |= dict.fromkeys(SETS.get(name, ()), theirs or "")
        return found
    if kind == "processor":
        return _limited(facts)
    return {}


def _limited(facts: Mapping[str, tuple[str | int | None, str | int | None]]) -> Facts:
    """Returns variables that limit instructions to those of an entry's processor."""
    isa = str(facts.get("isa", (None, None))[0])
    found = limits(isa) if isa in ONEDNN_ISA else {}
    for name, (core, _) in facts.items():
        if name.startswith("blas.") and core:
            found["OPENBLAS_CORETYPE"] = core
    return found


def limits(isa: str) -> Facts:
    """Returns variables that limit oneDNN, OpenBLAS, XLA, PyTorch and NumPy to an instruction set
    in oneDNN's spelling. Eigen's kernels, which are compiled for one, follow none of them."""
    level = next(one for one in ("avx512", "avx2", "avx", "sse41") if isa.startswith(one))
    found: Facts = dict(isa_variables({"isa": isa}))
    found["OPENBLAS_CORETYPE"] = CORES[level if level != "avx512" else "avx512_core"]
    xla = XLA_ISA[{"sse41": "sse42"}.get(level, level)]
    found["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={xla}".strip()
    found["ATEN_CPU_CAPABILITY"] = level if level in ("avx2", "avx512") else "default"
    cpu = {"avx512": "x86_v4", "avx2": "x86_v3"}.get(level, "x86_v2")
    return found | dict(Arrays.environment({"cpu": cpu}, "cpu"))
