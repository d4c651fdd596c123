"""Trees to take away: each form holds the same sum, and no form nests as deep as a long chain."""

import json
import random
import re
from html.parser import HTMLParser

import pytest

import probe
from probe.errors import InputError
from probe.plots import exports
from probe.summation.summation import Rounding, Summation
from probe.summation.tree import BIAS, Tree


def random_tree(leaves, seed, widest=2):
    draw = random.Random(seed)
    nodes, open_ = [], list(leaves)
    while len(open_) > 1:
        some = draw.sample(open_, min(len(open_), draw.randint(2, widest)))
        open_ = [one for one in open_ if one not in some]
        nodes.append(tuple(some))
        open_.append(~(len(nodes) - 1))
    return Tree.from_nodes(nodes, leaf=max(open_[0], 0))


def read(nested, nodes):
    """The child that a nested order stands for; its nodes are appended: the inverse of nested."""
    if not isinstance(nested, dict):
        return BIAS if nested == "b" else nested
    total = None
    for step in nested["adds"]:
        children = [read(one, nodes) for one in step]
        children = children if total is None else [total, *children]
        if len(children) == 1:
            (total,) = children
            continue
        nodes.append(tuple(children))
        total = ~(len(nodes) - 1)
    return total


def reread(nested):
    nodes = []
    found = read(nested, nodes)
    return Tree.from_nodes(nodes, leaf=max(found, 0))


TREES = {
    "one": Tree.sequential(1),
    "chain": Tree.sequential(5000),
    "backwards": Tree.parse("(0+(1+(2+(3+b))))"),
    "pairwise": Tree.pairwise(1000),
    "lanes": Tree.lanes(777, 16),
    "together": Tree.chain([[0, 1, 2, 3], [4], [5, 6, 7]]),
    **{f"random {n}": random_tree([*range(200), BIAS], n) for n in range(20)},
    **{f"wide {n}": random_tree(range(150), n, widest=5) for n in range(20)},
}


@pytest.mark.parametrize("name", TREES)
def test_the_nested_form_is_the_tree(name):
    tree = TREES[name]
    told = json.loads(json.dumps(exports.nested(tree)))
    assert reread(told) == tree
    assert not tree.nodes or told["products"] == len(tree.leaves)


def test_a_chain_backwards_nests_no_deeper_than_one_forwards():
    text = "".join(f"({n}+" for n in range(3000)) + "3000" + ")" * 3000
    told = exports.nested(Tree.parse(text))
    assert json.loads(json.dumps(told))["adds"][0] == [2999, 3000] and len(told["adds"]) == 3000


@pytest.mark.slow_at("chain")
@pytest.mark.parametrize("name", ["chain", "pairwise", "together", "random 3"])
def test_graphviz_has_every_addition(name):
    tree = TREES[name]
    told = exports.dot(Summation(tree, Rounding(fused=frozenset(tree.leaves[1:2]))))
    edges = re.findall(r"^  (\S+) -> s(\d+)( \[style=dashed)?", told, re.M)
    assert len(edges) == sum(map(len, tree.nodes)) and sum(bool(one[2]) for one in edges) == 1
    for number, children in enumerate(tree.nodes):
        named = [
            f"s{~one}" if one < 0 else f'"{"b" if one == BIAS else f"p{one}"}"' for one in children
        ]
        assert [one for one, to, _ in edges if int(to) == number] == named


class Balanced(HTMLParser):
    """Counts elements, and checks that they are closed."""

    def __init__(self):
        super().__init__()
        self.open, self.codes, self.deepest = [], 0, 0

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        self.codes += tag == "code"
        self.deepest = max(self.deepest, len(self.open))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["one", "chain", "pairwise", "wide 4"])
def test_the_page_names_every_product_once_and_folds(name):
    page = Balanced()
    page.feed(exports.html(Summation(TREES[name], Rounding()), "a <title>"))
    assert not page.open and page.codes == len(TREES[name].leaves) + 1  # one explains fma
    assert page.deepest < 60


def test_an_answer_gives_its_tree_in_every_form(tmp_path):
    found = probe.order(lambda x: sum(x), 6)
    assert found.to_nested()["nested"] == {"products": 6, "adds": [[0, 1], [2], [3], [4], [5]]}
    assert found.to_svg().lstrip().startswith("<?xml") and "</svg>" in found.to_svg()
    for name in ("tree.json", "tree.dot", "tree.svg", "tree.html"):
        found.save_tree(tmp_path / name)
        assert (tmp_path / name).stat().st_size
    with pytest.raises(InputError, match=r"tree=.*\.pdf: its ending names no format"):
        found.save_tree(tmp_path / "tree.pdf")
    with pytest.raises(InputError, match="give a file in a folder that exists"):
        found.save_tree(tmp_path / "none" / "tree.dot")


def test_what_has_no_order_has_no_tree():
    with pytest.raises(InputError, match="give a case whose outputs are sums"):
        probe.order(lambda x: max(x), 4).to_dot()
