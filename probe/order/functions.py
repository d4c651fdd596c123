"""Makes any Python function that adds a target, so that its order can be revealed.

The function stands where a library's product or sum stands, so the masks, the controls and the
replay are the ones that every target gets. It is called in this process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.case import floats, operands, ulp
from probe.case.arguments import choice, whole_number
from probe.case.case import Case
from probe.case.errors import Foreign, InputError, foreign
from probe.case.layout import copied
from probe.order.replay import replay
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree
from probe.targets import child
from probe.targets.backends.contract import Backend, Operator, Unsupported
from probe.targets.launch import InlineSession

Function = Callable[..., Any]

# Kinds of operands on which a function that is not a sum in one order is compared with formulas,
# how many sets of each, and over how many powers of two their sizes are spread: a formula that
# nearly adds agrees with another one on numbers of one size, and on a dozen sets by luck; a clipped
# one on small numbers, so the normal sets go through the format's range.
# ``pairs``: each has its negative, but for the last ones, so that one compensation is not enough.
SETS = (
    ("cancel", 8, 0),
    ("normal", 64, 0),
    ("normal", 32, 8),
    ("normal", 32, 24),
    ("pairs", 16, 48),
)

COUNT = sum(count for _, count, _ in SETS)


@dataclass(frozen=True)
class Own:
    """Stands for the target of a function: its name."""

    text: str
    name: str = "function"

    def __str__(self) -> str:
        return self.text


class OwnSession(InlineSession):
    """A started target that is no library. ``made``: gives its operator for a worker's spec."""

    def __init__(self, text: str, make: Callable[[dict[str, Any]], Operator]) -> None:
        self.target = Own(text)  # type: ignore[assignment]
        self.variables, self.facts = {}, {}
        self._worker = child.Worker()
        self._worker.backend = _Library(make)


class FunctionSession(OwnSession):
    """``f`` as a started target of ``case``: a sum, or a product with one row and one filter."""

    def __init__(self, f: Function, case: Case) -> None:
        module = (getattr(f, "__module__", None) or "").partition(".")[0]
        name = getattr(f, "__qualname__", None) or type(f).__name__
        plain = name.rpartition(">.")[2]
        text = plain if module in ("", "__main__", "builtins") else f"{module}.{plain}"
        super().__init__(text, lambda spec: _Call(spec, f, case.weighted))


class _Library(Backend):
    """The library that has one operator."""

    def __init__(self, make: Callable[[dict[str, Any]], Operator]) -> None:
        self.made = make

    def start(self, switches: Any, device: str | None) -> dict[str, Any]:
        """Says nothing of itself: it runs in this process already."""
        return {}

    def operator(self, spec: dict[str, Any]) -> Operator:
        return self.made(spec)


class _Call(Operator):
    """The function as an operator. It gets copies, for it may change what it is given: all at
    multiples of 64 bytes, as what NumPy's own functions do may go with where arrays begin."""

    def __init__(self, spec: dict[str, Any], f: Function, two: bool) -> None:
        super().__init__(spec)

        def call(x: np.ndarray, w: np.ndarray, b: None) -> Any:
            with np.errstate(all="ignore"):
                return f(copied(x), copied(w)) if two else f(copied(x))

        self.call = call

    def input(self, x: np.ndarray) -> np.ndarray:
        return floats.from_container(x.reshape(-1), self.spec["dtype"])

    def weights(self, w: np.ndarray) -> np.ndarray:
        return floats.from_container(w.reshape(-1), self.spec["dtype"])

    def bias(self, b: None) -> None:
        """There is none."""

    def output(self, y: Any) -> np.ndarray:
        number = one_number(y, self.spec["dtype"])
        if isinstance(number, str):
            raise Unsupported(number)
        return number.reshape(1, 1, 1)


def one_number(y: Any, dtype: str) -> np.ndarray | str:
    """One result as a container array of one element; or why it is none of ``dtype``."""
    try:
        if y is None:  # which NumPy makes NaN
            raise TypeError
        values = np.asarray(y).astype(np.float64).reshape(-1)
    except (TypeError, ValueError):
        return f"it returned {type(y).__name__}, not a number"
    if values.size != 1:
        return f"it returned {values.size} numbers, not one"
    rounded = floats.round_to(values, dtype)
    widened = floats.widen(rounded, dtype)
    if widened[0] != values[0] and not np.isnan(values[0]):
        return f"it returned {float(values[0])!r}, which is not a {dtype}"
    return rounded


def case_of_function(
    f: Function, n: int, dtype: str = "float32", products: bool | None = None
) -> Case:
    """The sum, or with two arrays the product, that ``f`` is asked as. InputError: it isn't one.

    ``f`` is called a few times with plain numbers, so that what it lacks is said at once.
    """
    dtype = choice("dtype", dtype, floats.FORMATS)
    two = _takes_two(f) if products is None else products
    case = Case("dot" if two else "sum", in_channels=whole_number("n", n), length=1, dtype=dtype)
    shown = ", ".join(["x", "w"][: 1 + two])
    for seed in range(4):
        x, w, _ = case.with_(seed=seed).operands()
        arrays = [x.reshape(-1), w.reshape(-1)][: 1 + two]
        try:
            with np.errstate(all="ignore"):
                y = foreign(f, *arrays)
        except Foreign as error:
            why = f"f({shown}) with {n} {dtype} numbers raises {error}"
            todo = "give products=False for f(x)" if two else "give products=True for f(x, w)"
            raise InputError("f", _function_name(f), why, todo) from error
        number = one_number(y, dtype)
        if isinstance(number, str):
            todo = f"let it return one {dtype}"
            todo += "" if dtype == "float64" else ", or give dtype='float64'"
            raise InputError("f", _function_name(f), f"of {n} {dtype} numbers {number}", todo)
    return case


def _takes_two(f: Function) -> bool:
    """Whether ``f`` needs two arrays; of what does not say what it needs: whether it takes them."""
    try:
        needed = [
            parameter
            for parameter in inspect.signature(f).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        try:
            foreign(f, np.ones(2), np.ones(2))
        except Foreign:
            return False
        return True
    return len(needed) == 2


def _function_name(f: Function) -> str:
    return getattr(f, "__name__", type(f).__name__)


def exactly_rounded(f: Function, case: Case) -> bool:
    """Whether ``f`` gave the exact sum, rounded once, on all ``SETS`` of operands."""
    n = case.summands
    exact = Summation(Tree.together(n), Rounding(fused=frozenset(range(n))))
    return _gives(f, case, lambda x, w: replay(exact, x, w, case.dtype))


def compensated(f: Function, case: Case) -> str:
    """Which compensated sum ``f`` gave on all ``SETS`` of operands, in words; empty: none.

    The numbers are added in their order, in their own format or in float64, and what each addition
    loses is kept beside the sum: Kahan (1965) takes it off the next number, Neumaier (1974) adds
    all of it at the end.
    """
    if case.weighted or case.dtype == "bfloat16":
        return ""
    for name, add in (("Kahan's", _kahan), ("Neumaier's", _neumaier)):
        for dtype in dict.fromkeys((case.dtype, "float64")):

            def added(x: np.ndarray, _: np.ndarray, add: Any = add, dtype: str = dtype) -> Any:
                total = add(x[:, 0].astype(dtype))
                return floats.round_to(np.asarray([total], np.float64), case.dtype)

            if _gives(f, case, added):
                return f"{name} sum in {dtype}"
    return ""


def _kahan(numbers: np.ndarray) -> Any:
    total = lost = numbers.dtype.type(0)
    for number in numbers:
        number = number - lost
        larger = total + number
        total, lost = larger, (larger - total) - number
    return total


def _neumaier(numbers: np.ndarray) -> Any:
    total = lost = numbers.dtype.type(0)
    for one in numbers:
        larger = total + one
        two = (total, one) if abs(total) >= abs(one) else (one, total)
        lost += (two[0] - larger) + two[1]
        total = larger
    return total + lost


def _gives(f: Function, case: Case, formula: Callable[[np.ndarray, np.ndarray], Any]) -> bool:
    """Whether ``f`` gave a formula's bits on all ``SETS`` of operands."""
    n = case.summands
    form = floats.FORMATS[case.dtype]
    seeded_sets = [(*each, seed) for each in SETS for seed in range(each[1])]
    for kind, count, spread, seed in seeded_sets:
        drawn = "cancel" if kind == "cancel" else "normal"
        x, w, _ = operands.generate(case.with_(operands=drawn, seed=seed))
        if kind != "cancel":  # drawn twice, so that float64's numbers have all their bits
            wide = floats.widen(x, case.dtype)
            wide = wide * floats.widen(
                operands.generate(case.with_(operands=drawn, seed=1000 + seed))[0], case.dtype
            )
            powers = operands.below(spread + 1, seed, "x", 0, x.shape) - spread // 2
            if kind == "pairs" and n > 4:
                half = (n - 1) // 2
                powers[..., half : 2 * half], powers[..., 2 * half :] = powers[..., :half], -60
                wide[..., half : 2 * half] = -wide[..., :half]
            powers = powers if case.dtype != "float16" else powers // 8
            if kind == "normal":
                top = form.emax - 4 - spread // 2 - n.bit_length() // 2
                powers = powers + int(np.linspace(form.emin, max(top, 0), 64)[seed * 64 // count])
            x = floats.round_to(np.ldexp(wide, powers), case.dtype)
        w = w if case.weighted else floats.round_to(np.ones(w.shape), case.dtype)
        x, w = x.reshape(n, 1), w.reshape(n, 1)
        arrays = [floats.from_container(array[:, 0], case.dtype) for array in (x, w)]
        with np.errstate(all="ignore"):
            number = one_number(f(*arrays[: 1 + case.weighted]), case.dtype)
            expected = formula(x, w)
        if isinstance(number, str) or not ulp.equal(number, expected, case.dtype):
            return False
    return True
