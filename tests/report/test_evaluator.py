"""The evaluator that is copied into scripts gives what the replay gives."""

import ast
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from probe.case import floats
from probe.order.replay import replay
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, Tree
from probe.report import evaluator, proof
from tests.order.test_replay import any_rounding
from tests.order.test_tree import any_tree

pytestmark = pytest.mark.long


class Columns:
    """What a way reads of a run, straight from the columns."""

    def __init__(self, dtype: str, x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> None:
        self.dtype, self.x, self.w, self.b = dtype, x, w, b

    def operands(self, leaf, positions, filters):
        wide = evaluator.widen(self.x, self.dtype), evaluator.widen(self.w, self.dtype)
        return wide[0][leaf, positions], wide[1][leaf, positions]


def evaluated(tree: Tree, rounding: Rounding, x, w, dtype: str, bias=None) -> np.ndarray:
    told = json.loads(json.dumps(proof._data_of_summation(Summation(tree, rounding))))
    nodes = told["nodes"]
    summation = evaluator.Summation(nodes, told["leaf"], told["formats"], told["sets"])
    every = np.arange(x.shape[1])
    with np.errstate(all="ignore"):
        found = summation.add_up(Columns(dtype, x, w, bias), every, every)
        return summation.rounded(found, len(nodes) - 1, dtype)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_the_evaluator_gives_what_the_replay_gives(dtype: str, seed: int) -> None:
    rng, shape = np.random.default_rng(1000 + seed), (31, 6)
    tree = any_tree(rng, 1 + seed % 9)
    rounding = any_rounding(rng, tree, dtype)
    x = floats.round_to(rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 3, shape), dtype)
    w = floats.round_to(rng.standard_normal(shape), dtype)
    bias = floats.round_to(rng.standard_normal(6), dtype) if BIAS in tree.leaves else None
    expected = replay(Summation(tree, rounding), x, w, dtype, bias)
    got = evaluated(tree, rounding, x, w, dtype, bias)
    assert evaluator.equal(got, expected, dtype).all(), (tree.text, rounding)


def test_the_evaluator_is_python_3_8_and_numpy() -> None:
    tree = ast.parse(Path(evaluator.__file__).read_text(), feature_version=(3, 8))
    names = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert names - sys.stdlib_module_names == {"numpy"}
    newer = {"removeprefix", "removesuffix", "strict", "bit_count", "pairwise"}
    assert not newer & {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert not newer & {n.arg for n in ast.walk(tree) if isinstance(n, ast.keyword)}
