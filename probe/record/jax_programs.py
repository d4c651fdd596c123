"""Jaxprs of JAX: traversed once, run, looked into while compiled, written as text, compared.

A program (a function under ``jax.jit``) is flattened to steps whose values have numbers; all that
is done with one is done with these steps.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from probe.case.errors import Foreign, foreign
from probe.order.semantics import Call, Operand
from probe.record.contract import Lines
from probe.record.graphs import Body, Interpreter, Key, Node, repeated

# Primitives that run a jaxpr once, and the parameter that has it.
INNER = {
    **dict.fromkeys(("jit", "pjit", "checkpoint", "remat2", "shard_map"), "jaxpr"),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call"), "call_jaxpr"),
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}

# Primitives that run jaxprs as often as their inputs say.
LOOPS = ("scan", "while", "cond")

# Steps up to which a loop is run, and labelled, step by step.
MOST_STEPS = 512


# arrays


@functools.cache
def is_key(dtype: Any) -> bool:
    """Whether it is the format of random keys, which are arrays of integers inside."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


_name = functools.cache(str)  # NumPy puts the name of a dtype together anew each time


def aval_of(aval: Any) -> tuple[tuple[int, ...], str]:
    """(shape, dtype's name) of an abstract value; of a random key those of its data."""
    dtype = getattr(aval, "dtype", "token")
    if dtype != "token" and is_key(dtype):
        aval = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, dtype))
        dtype = aval.dtype
    return tuple(getattr(aval, "shape", ())), _name(dtype)


# Random generators, by what the dtype of their keys says: ``key<fry>``.
GENERATORS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}


def _jax_array(array: np.ndarray, dtype: Any) -> Any:
    """JAX's array of container bits. Integers that stand for another format stay that."""
    if is_key(dtype):
        kind = _name(dtype).removeprefix("key<").removesuffix(">")
        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=GENERATORS[kind])
    if array.dtype.kind == "u" and array.dtype != dtype and array.itemsize == dtype.itemsize:
        array = array.view(dtype)
    return jax.numpy.asarray(array)


def bits_in(value: Any) -> np.ndarray:
    """The bits of an array as a container array: those of formats that NumPy hasn't as
    unsigned integers, a random key's as its data."""
    array = np.asarray(jax.random.key_data(value) if is_key(value.dtype) else value)
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def literal_of(atom: Any) -> np.ndarray:
    return np.asarray(atom.val, dtype=atom.aval.dtype)


class PrimitiveCall:
    """A call of a primitive or program, which runs it alone on container arrays. ``ins``: abstract
    values of what it reads."""

    def __init__(self, primitive: Any, params: Mapping[str, Any], ins: Sequence[Any]) -> None:
        self.primitive, self.params, self.ins = primitive, params, ins
        self.wide = bool(jax.config.jax_enable_x64)

    def table_call(self, outs: Sequence[Any]) -> Call:
        """The call as the table is asked about it. ``outs``: abstract values of its results."""
        reads = [Operand(n, *aval_of(aval)) for n, aval in enumerate(self.ins)]
        gives, dtypes = zip(*map(aval_of, outs), strict=True) if outs else ((), ())
        return Call(self.primitive.name, self.params, reads, gives, dtypes)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        # as it was when it was recorded: JAX would take float64 for float32 otherwise
        with jax.enable_x64(self.wide):
            # behind its operands may be the arrays that a program closed over
            both = zip(arrays, self.ins, strict=False)
            operands = [_jax_array(array, aval.dtype) for array, aval in both]
            return [bits_in(value) for value in bind(self.primitive, self.params, operands)]

    def lines(self) -> Lines | None:
        """Lines as a user writes them: ``jax.lax`` in Python, programs as ``@jax.jit``. The same
        functions, with the same numbers, are the same primitives and so the same compiled code.
        None: there is no such text."""
        within = inner(self.primitive, self.params)
        if within is not None:
            return _program(flat_of(within), len(self.ins))
        text = lax_text(self.primitive, self.params, self.ins)
        return text and (lambda names, y: [f"{y} = {text(list(names)[: len(self.ins)])}"])


def bind(primitive: Any, params: Mapping[str, Any], operands: Sequence[Any]) -> list[Any]:
    results = primitive.bind(*operands, **primitive.get_bind_params(params))
    return list(results) if primitive.multiple_results else [results]


def params_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """A primitive's parameters, plain enough for JSON; what is not a number or name as text."""
    plain = (str, int, float, bool, type(None))
    return {
        name: value if isinstance(value, plain) else str(value)
        for name, value in params.items()
        if "jaxpr" not in name and name != "branches"
    }


# the one traversal


@dataclass(eq=False)
class Equation(Node):
    """An equation: ``native`` its primitive, ``words`` the parameters; ``ins``, ``outs``: abstract
    values. Keys: variables of its jaxpr; of a flat program numbers of values, those below zero of
    arrays that functions closed over, or literals. ``path``: the scopes that it is in."""

    ins: Sequence[Any] = ()
    outs: Sequence[Any] = ()

    def called(self) -> Call:
        return PrimitiveCall(self.native, self.words, self.ins).table_call(self.outs)


def _body_of(closed: Any) -> Body:
    """A closed jaxpr; literals are among its constants."""
    jaxpr = closed.jaxpr
    constants: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))

    def key(atom: Any) -> Any:
        if not isinstance(atom, core.Literal):
            return atom
        constants[len(constants)] = atom
        return len(constants) - 1

    nodes = []
    for eqn in jaxpr.eqns:
        ins, outs = ([atom.aval for atom in atoms] for atoms in (eqn.invars, eqn.outvars))
        called = eqn.primitive, eqn.primitive.name, [*map(key, eqn.invars)], eqn.outvars
        path = str(eqn.source_info.name_stack)
        nodes.append(Equation(*called, words=eqn.params, path=path, ins=ins, outs=outs))
    return Body(nodes, jaxpr.invars, [*map(key, jaxpr.outvars)], constants)


class FlatProgram(Interpreter):
    """A jaxpr with those of the functions that it calls in their place, its values numbered: its
    inputs, then what its equations give. Loops are equations.

    ``ins``: abstract values of its inputs; ``consts``: the arrays that functions closed over,
    numbered -1, -2, ...; ``closed_over``: these, and those of functions that its loops run;
    ``outputs``: numbers, or literals.
    """

    def __init__(self, closed: Any) -> None:
        self.ins = [atom.aval for atom in closed.jaxpr.invars]
        self.equations: list[Equation] = []
        self.consts: list[Any] = []
        self._given, self._places = len(self.ins), dict[int, int]()
        self.outputs = self.walk(_body_of(closed), range(len(self.ins)), "")

    def constants_of(self, body: Body, inside: str) -> dict[Key, Any]:
        for value in body.constants.values():
            # by its class: NumPy's arrays that a function closed over have a `val` too
            if not isinstance(value, core.Literal) and id(value) not in self._places:
                self._places[id(value)] = ~len(self.consts)
                self.consts.append(value)
        return {key: self._places.get(id(value), value) for key, value in body.constants.items()}

    def run_node(self, node: Equation, read: list[Any], inside: str) -> Sequence[Any]:
        path = "/".join(filter(None, (inside, node.path)))
        within = inner(node.native, node.words)
        if within is not None:
            return self.walk(_body_of(within), read, path)
        gives = range(self._given, self._given + len(node.gives))
        self._given += len(gives)
        self.equations.append(replace(node, slots=tuple(read), gives=tuple(gives), path=path))
        return gives

    @functools.cached_property
    def closed_over(self) -> list[Any]:
        arrays = {id(value): value for value in self.consts}
        for eqn in self.equations:
            for closed in bodies(eqn.words):
                arrays.update((id(value), value) for value in flat_of(closed).closed_over)
        return list(arrays.values())

    @property
    def direct(self) -> bool:
        """Whether it is one equation on its own inputs, in order."""
        if len(self.equations) != 1:
            return False
        eqn, inputs = self.equations[0], tuple(range(len(self.ins)))
        return eqn.slots == inputs and list(eqn.gives) == self.outputs

    def run(
        self,
        inputs: Sequence[Any],
        consts: Sequence[Any],
        step: Callable[[int, Equation, list[Any]], Sequence[Any]],
        literal: Callable[[Any], Any] = literal_of,
    ) -> tuple[list[Any], list[Any]]:
        """All values, by number, and the results. ``step``: gives the results of an
        equation, by its number, itself and what it reads: arrays, labels, text, ..."""
        values = list(inputs)
        for place, eqn in enumerate(self.equations):
            reads = [self.read(each, values, consts, literal) for each in eqn.slots]
            values += step(place, eqn, reads)
        return values, [self.read(output, values, consts, literal) for output in self.outputs]

    def read(
        self, atom: Any, values: Sequence[Any], consts: Sequence[Any], literal: Callable[..., Any]
    ) -> Any:
        """What an equation or the program's caller reads."""
        if not isinstance(atom, int):
            return literal(atom)
        return values[atom] if atom >= 0 else consts[~atom]


_FLAT: Any = weakref.WeakKeyDictionary()


def flat_of(closed: Any) -> FlatProgram:
    """A closed jaxpr, flattened; once for each, as long as it is in use."""
    if closed not in _FLAT:
        _FLAT[closed] = FlatProgram(closed)
    flat: FlatProgram = _FLAT[closed]
    return flat


def inner(primitive: Any, params: Mapping[str, Any]) -> Any:
    """The closed jaxpr that a primitive runs once; None where it doesn't."""
    name = INNER.get(primitive.name)
    jaxpr = params.get(name) if name else None
    if primitive.name == "shard_map" and params["mesh"].size > 1:
        return None  # it runs on parts of its inputs
    if jaxpr is None or hasattr(jaxpr, "consts"):
        return jaxpr
    return core.ClosedJaxpr(jaxpr, ())


def bodies(params: Mapping[str, Any]) -> Iterator[Any]:
    """The closed jaxprs among a primitive's parameters: of a loop, a solver, a scatter."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(item, "jaxpr") and hasattr(item, "consts"):
                yield item
            elif hasattr(item, "eqns") and not item.constvars:
                yield core.ClosedJaxpr(item, ())


def constants(params: Mapping[str, Any]) -> list[Any]:
    """The arrays that functions which a primitive runs closed over, each once."""
    arrays = {
        id(value): value for closed in bodies(params) for value in flat_of(closed).closed_over
    }
    return list(arrays.values())


# run


def unrolled(primitive: Any, params: Mapping[str, Any], args: Sequence[Any]) -> list[Any] | None:
    """The results of a program's equations, run one by one, or of a loop's or a choice's
    steps, as code without such a primitive would run them. None: there are too many."""
    within = inner(primitive, params)
    if within is not None:
        return _eval(within, args)
    if primitive.name == "cond":
        return _eval(params["branches"][_concrete(args[0])], args[1:])
    if primitive.name == "while":
        ahead, behind = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

        def state_again(step: int, state: Sequence[Any]) -> Sequence[Any] | None:
            goes = step < MOST_STEPS and _eval(params["cond_jaxpr"], [*args[:ahead], *state])
            return [*args[ahead:behind], *state] if goes and _concrete(*goes) else None

        body = params["body_jaxpr"]
        states, results = repeated(lambda _, read: _eval(body, read), args[behind:], state_again)
        return states if len(results) < MOST_STEPS else None
    consts, length = params["num_consts"], params["length"]
    if not 0 < length <= MOST_STEPS:
        return None
    carry = consts + params["num_carry"]
    lines = [
        [lax.index_in_dim(arg, n, 0, keepdims=False) for n in range(length)] for arg in args[carry:]
    ]
    order = range(length)[::-1] if params["reverse"] else range(length)

    def elements(step: int, state: Sequence[Any]) -> Sequence[Any] | None:
        if step == length:
            return None
        return [*args[:consts], *state, *(line[order[step]] for line in lines)]

    body = params["jaxpr"]
    states, results = repeated(lambda _, read: _eval(body, read), args[consts:carry], elements)
    columns = zip(*(results[n] for n in order), strict=True)
    wide = ([lax.expand_dims(array, (0,)) for array in column] for column in columns)
    return states + [lax.concatenate(column, 0) for column in wide]


def _eval(closed: Any, args: Iterable[Any]) -> list[Any]:
    return list(core.jaxpr_as_fun(closed)(*args))


def _concrete(value: Any) -> int:
    return int(jax.device_get(value))


class OpenedProgram:
    """A compiled program that also returns every value inside.

    XLA compiles the same equations with more results. Where the program's own results keep their
    bits, what it returns besides is what it computed inside.
    """

    def __init__(self, program: FlatProgram) -> None:
        self.program = program
        self._run = jax.jit(self._values)

    def _values(self, args: Sequence[Any], consts: Sequence[Any]) -> list[Any]:
        def step(_: int, eqn: Equation, reads: list[Any]) -> list[Any]:
            return bind(eqn.native, eqn.words, reads)

        return self.program.run(args, consts, step, lambda atom: atom.val)[0][len(args) :]

    def values(self, args: Sequence[Any]) -> list[Any]:
        """All values of a run, by number."""
        return [*args, *self._run(list(args), self.program.consts)]

    def read(self, atom: Any, values: Sequence[Any]) -> Any:
        """What an equation or the program's caller reads among its values."""
        return self.program.read(atom, values, self.program.consts, literal_of)

    def results(self, values: Sequence[Any]) -> list[Any]:
        """The program's own results among its values."""
        return [self.read(output, values) for output in self.program.outputs]


# as text


class Unwritten(Exception):
    """An equation that has no text."""


def _program(program: FlatProgram, count: int) -> Lines | None:
    """A compiled function of one result, whose equations all have a text."""
    if program.consts or len(program.outputs) != 1 or len(program.ins) != count:
        return None
    body: list[str] = []

    def step(place: int, eqn: Equation, reads: list[str]) -> list[str]:
        text = lax_text(eqn.native, eqn.words, eqn.ins)
        if text is None or len(eqn.outs) != 1:
            raise Unwritten
        body.append(f"    v{place} = {text(reads)}")
        return [f"v{place}"]

    def literal(atom: Any) -> str:
        shape, dtype = aval_of(atom.aval)
        if shape:
            raise Unwritten
        text = repr(float(atom.val)) if "float" in dtype else repr(literal_of(atom).item())
        text = text.replace("inf", "jnp.inf").replace("nan", "jnp.nan")
        return f"jnp.{'bool_' if dtype == 'bool' else dtype}({text})"

    names = [f"a{n}" for n in range(count)]
    try:
        _, (result,) = program.run(names, (), step, literal)
    except Unwritten:
        return None
    head = ["@jax.jit", f"def program({', '.join(names)}):", *body, f"    return {result}", ""]
    return lambda arguments, y: [*head, f"{y} = program({', '.join(list(arguments)[:count])})"]


# Parameters that decide no bits.
WITHOUT_BITS = ("weak_type", "out_sharding", "sharding")

MODULES = {"lax": lax, "lax.linalg": lax.linalg}
NAMESPACE = {"jax": jax, "jnp": jax.numpy, "lax": lax}


def lax_text(
    primitive: Any, params: Mapping[str, Any], ins: Sequence[Any]
) -> Callable[[Sequence[str]], str] | None:
    """What writes a primitive of its operands' names: by the function of ``jax.lax`` that
    has its name, with its own parameters, else by itself; None where that text, traced, isn't that
    primitive."""
    name, ways = primitive.name.replace("-", "_"), list[tuple[str, list[str]]]()
    words = {key: param_text(value) for key, value in params.items()}
    for path, module in MODULES.items():
        if function := getattr(module, name, None):
            taken = inspect.signature(function).parameters
            keys = [key for key, value in params.items() if key in taken and value is not None]
            ways.append((f"{path}.{name}", [f"{key}={words[key]}" for key in keys]))
    for path, module in MODULES.items():
        if hasattr(module, f"{name}_p"):
            keywords = [f"{key}={word}" for key, word in words.items()]
            ways.append((f"{path}.{name}_p.bind", keywords))
    avals = tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in ins)
    for called, arguments in ways:
        text = functools.partial(_call_text, called, arguments)
        code = text([f"x{n}" for n in range(len(ins))])
        if _traces_to(code, primitive.name, frozenset(words.items()), avals):
            return text
    return None


def _call_text(called: str, arguments: Sequence[str], reads: Sequence[str]) -> str:
    return f"{called}({', '.join([*reads, *arguments])})"


@functools.lru_cache(4096)
def _traces_to(
    code: str, name: str, words: frozenset[tuple[str, str]], operands: tuple[Any, ...]
) -> bool:
    """Whether a text, traced, is one equation of this primitive and these parameters."""

    def traced(*args: Any) -> Any:
        # of text that ``lax_text`` has written, of parameters of a function that has run
        return eval(code, NAMESPACE, {f"x{n}": arg for n, arg in enumerate(args)})

    try:
        program = foreign(jax.make_jaxpr(traced), *operands)
    except Foreign:  # whatever the function says of words that aren't its own
        return False
    flat = FlatProgram(program)
    if not flat.equations:  # of what stays as it is
        return flat.outputs == list(range(len(operands)))
    eqn = flat.equations[0]
    apart = words ^ {(key, param_text(each)) for key, each in eqn.words.items()}
    beside = all(key in WITHOUT_BITS or text == "None" for key, text in apart)
    return flat.direct and eqn.op == name and beside


def param_text(value: Any) -> str:
    """A parameter as it is written; what has no text, as what doesn't run."""
    kind = type(value).__name__
    if isinstance(value, np.dtype | type):
        name = np.dtype(value).name
        return "jnp.bool_" if name == "bool" else f"jnp.{name}"
    if isinstance(value, Enum) and hasattr(lax, kind):
        return f"lax.{kind}.{value.name}"
    if isinstance(value, tuple | list):
        inside = ", ".join(map(param_text, value))
        named = hasattr(value, "_fields") and hasattr(lax, kind)
        return f"lax.{kind}({inside})" if named else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, float) and not np.isfinite(value):
        return f"float({str(value)!r})"
    return str(int(value)) if isinstance(value, np.integer) else repr(value)
