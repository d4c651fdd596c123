"""Native symbols as a reader knows them: demangled, without template arguments and parameters."""

from __future__ import annotations

import ctypes
import re
from functools import cache

GENERATED = "jit"
"""The name of code that was generated at run time and has none of its own."""

_ANONYMOUS = re.compile(r"\[JIT\]|//anon|\[anon|anon_inode|memfd:|/?perf-\d+\.map|/dev/zero")
_GENERATED_NAME = re.compile(r"([A-Za-z_]\w+)(?:\.\d+)?$")
_NUMERICAL = re.compile(
    r"""Eigen::(?!\w*(?:Thread|Event|Barrier|Notification|RunQueue|MaxSize))
    | dnnl::impl::cpu:: | tensorflow::(?:functor::|\w*Depthwise) | tflite:: | ruy::
    | at::native:: | xla::cpu:: | __xla_cpu_runtime_ | xnn_ | Mlas | mkl_ | cblas_ | [sd]gemm""",
    re.VERBOSE,
)
_PREPARING = re.compile(
    r"""Blocking | UseCustom | CachingSizes | caching_sizes | _ctx_t | _pd_t | engine | storage
    | stream | scales | _args | _comp_offset | _init$ | init_ | check_ | [Mm]alloc | _free
    | mayiuse | cpu_isa | xla::cpu::\w*(?:Executable|Thunk)
    | (?P<made>\b\w+)::~?(?P=made)$""",
    re.VERBOSE,
)
_FUNCTION = re.compile(r"std::_Function_handler<.*?\), (?P<function>.*)>::_M_invoke")
_LAMBDA = re.compile(r"::\{lambda.*|'lambda.*")
_OPERATOR = re.compile(r"operator(?:<=>|<<=?|>>=?|<=?|>=?|->\*?|\(\))")
_SPELLED = {"<": "\1", ">": "\2", "(": "\3", ")": "\4"}


def readable(symbol: str, library: str) -> str | None:
    """The short name of a sampled symbol in numerical code; None for all other code.

    ``symbol``: as the object file has it; ``library``: the name of that file, or perf's word for
    generated code. Only what computes is named: the rest of a library dispatches, allocates and
    waits, and is the same for every kernel.
    """
    if _ANONYMOUS.search(library):
        named = _GENERATED_NAME.match(symbol)
        return named[1] if named else GENERATED
    name = shorten(demangle(symbol))
    if not _NUMERICAL.match(name) or _PREPARING.search(name):
        return None
    return name


def shorten(name: str) -> str:
    """``Eigen::internal::gebp_kernel`` of a demangled C++ name of some thousand letters.

    A lambda counts as the function that it is written in, also where a ``std::function`` calls it,
    and ``run`` and a call operator as their class.
    """
    if wrapped := _FUNCTION.match(name):
        name = wrapped["function"]
    name = _LAMBDA.sub("", name).replace("(anonymous namespace)::", "")
    name = _OPERATOR.sub(lambda found: "".join(_SPELLED.get(c, c) for c in found[0]), name)
    kept, depth = [], 0
    for character in name:
        depth -= character in ">)"
        if depth == 0 and character not in ">)<(":
            kept.append(character)
        depth += character in "<("
    words = re.sub(r"\s+const\b|\[[^]]*\]|\bdecltype\b|&", "", "".join(kept)).split()
    name = words[-1] if words else ""
    for spelled, character in ((new, old) for old, new in _SPELLED.items()):
        name = name.replace(spelled, character)
    return name.removesuffix("::operator()").removesuffix("::run")


def demangle(symbol: str) -> str:
    """A mangled C++ name as it was written; any other name, and without libstdc++, as it is.

    perf's own demangling takes seconds: it demangles a library's million names for the few asked.
    """
    library = _runtime()
    if library is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    address = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    name = ctypes.string_at(address).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return name


@cache
def _runtime() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library
