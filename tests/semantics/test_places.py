"""Writing and adding into places: equal labels are equal numbers, and the same has equal labels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="meanings are tried on PyTorch's operations")

from tests.recorders.truth import agreed, both  # noqa: E402

F = torch.nn.functional
G = torch.Generator().manual_seed(5)
X = torch.randn(4, 6, 9, dtype=torch.float64, generator=G)
P = torch.randn(4, 3, 8, 8, dtype=torch.float64, generator=G)
TABLE = torch.nn.Parameter(torch.randn(20, 5, dtype=torch.float64, generator=G), False)
AT = torch.tensor([3, 0, 3, 5])
W = torch.hann_window(16, dtype=torch.float64)
GRID = torch.rand(4, 5, 5, 2, dtype=torch.float64, generator=G) * 2 - 1


def _index(rows: int) -> torch.Tensor:
    return torch.tensor([[[2, 0, 5, 2, 1, 1, 0, 3, 4], [5, 1, 0, 4, 4, 0, 2, 2, 3]]] * rows)


BY_BATCH = {
    "scatter": lambda x: x.scatter(1, _index(len(x))[:, :1], x[:, 1:2] * 2),
    "scatter a number": lambda x: x.scatter(1, _index(len(x)), 1.5),
    "scatter_add": lambda x: x.scatter_add(1, _index(len(x)), x[:, 2:4] * 3),
    "index_add": lambda x: x.index_add(1, AT, x[:, :4].exp()),
    "index_copy": lambda x: x.index_copy(1, AT[1:], x[:, :3].exp()),
    "index_fill": lambda x: x.index_fill(2, AT, 0.0),
    "index_put": lambda x: x.index_put((torch.arange(len(x)), AT[:1] + 1), x[:, 0].exp()),
    "index_put added": lambda x: x.index_put((torch.arange(len(x)), AT[:1]), x[:, 1], True),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2].exp(), 1, 2, 6, 2),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0].exp(), 1, 4),
    "masked_scatter": lambda x: x[0].masked_scatter(x[0] * 0 + 1 > 0, x[0].flip(0).exp())[None],
    "take": lambda x: x[0].exp().take(AT)[None],
    "one_hot": lambda x: x[:, :, :4] * F.one_hot(AT, 6).double().T[:, :4],
}


@pytest.mark.parametrize("name", BY_BATCH)
def test_a_row_alone_agrees_with_the_batch(name: str) -> None:
    function = BY_BATCH[name]
    right = X if name not in ("masked_scatter", "take") else X[1:2]
    assert agreed(both(lambda: function(X[1:2]), lambda: function(right))) == 1


PICTURES = {
    "unfold": lambda x: F.unfold(x, 3, padding=1, stride=2),
    "fold": lambda x: F.fold(F.unfold(x, 3, padding=1, stride=2), 8, 3, padding=1, stride=2),
    "unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel shuffle": lambda x: F.channel_shuffle(torch.cat([x, x.exp()], 1), 3),
    "stft": lambda x: torch.stft(
        x[:, 0].reshape(len(x), -1), 16, 4, window=W, return_complex=True
    ).abs(),
    "grid": lambda x: F.grid_sample(x, GRID[: len(x)], align_corners=False),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_alone_agrees_with_the_batch(name: str) -> None:
    function = PICTURES[name]
    assert agreed(both(lambda: function(P[:1]), lambda: function(P))) == 1


M = torch.randn(4, 3, 3, dtype=torch.float64, generator=G)
SPREAD, RIGHT = M @ M.mT + torch.eye(3, dtype=torch.float64), X[:, :3, :2].clone()
LOWER = torch.linalg.cholesky(SPREAD)
MATRICES = {
    "solve": (torch.linalg.solve, SPREAD, RIGHT),
    "solve one side": (torch.linalg.solve, SPREAD, RIGHT[:, :, 0].clone()),
    "solve of one matrix": (lambda b: torch.linalg.solve(SPREAD[0], b), RIGHT),
    "solve_ex": (torch.linalg.solve_ex, SPREAD, RIGHT),
    "solve from the right": (lambda a, b: torch.linalg.solve(a, b.mT, left=False), SPREAD, RIGHT),
    "triangular": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), LOWER, RIGHT),
    "triangular_solve": (lambda a, b: torch.triangular_solve(b, a, upper=False), LOWER, RIGHT),
    "cholesky": (torch.linalg.cholesky, SPREAD),
    "cholesky_solve": (torch.cholesky_solve, RIGHT, LOWER),
    "lu_factor": (torch.linalg.lu_factor, SPREAD),
    "lu_solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), SPREAD, RIGHT),
    "lu": (torch.linalg.lu, SPREAD),
    "lstsq": (lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd").solution, SPREAD, RIGHT),
    "inv": (torch.linalg.inv, SPREAD),
    "pinv": (torch.linalg.pinv, SPREAD),
    "det": (torch.linalg.det, SPREAD),
    "eigh": (lambda a: torch.linalg.eigh(a).eigenvalues, SPREAD),
    "svd": (torch.linalg.svdvals, SPREAD),
    "qr": (torch.linalg.qr, SPREAD),
    "cross": (torch.linalg.cross, M, SPREAD),
    "exponential": (torch.linalg.matrix_exp, M),
}


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_alone_agrees_with_the_batch(name: str) -> None:
    function, *operands = MATRICES[name]
    whole, alone = (lambda rows=rows: function(*(one[rows] for one in operands))
                    for rows in (slice(None), slice(1, 2)))  # fmt: skip
    sides = both(alone, whole)
    for output in range(len(sides[0][0].outputs)):
        assert agreed(sides, output) == 1, output


def test_bags_agree_with_the_same_bags_among_others() -> None:
    words = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
    for mode in ("sum", "mean"):
        several = lambda m=mode: F.embedding_bag(words, TABLE, torch.tensor([0, 3, 7]), mode=m)  # noqa: E731
        alone = lambda m=mode: F.embedding_bag(words[:3], TABLE, torch.tensor([0]), mode=m)  # noqa: E731
        share = agreed(both(alone, several))
        assert share == (1 if mode == "sum" else share)


def test_selected_elements_are_the_elements() -> None:
    mask = X > 0.3
    sides = both(lambda: X.exp().masked_select(mask), lambda: X.exp()[mask])
    assert agreed(sides) == 1


OTHERS = {
    "another place": (
        lambda x: x.index_add(1, AT, x[:, :4]),
        lambda x: x.index_add(1, AT.flip(0), x[:, :4]),
    ),
    "added and written": (
        lambda x: x.index_put((AT[:1],), x[:1], True),
        lambda x: x.index_put((AT[:1],), x[:1]),
    ),
    "one more time": (
        lambda x: x[0].index_add(0, AT, x[0, :4]),
        lambda x: x[0].index_add(0, AT[:3], x[0, :3]),
    ),
    "sum and mean": (
        lambda _: F.embedding_bag(AT[None], TABLE, mode="sum"),
        lambda _: F.embedding_bag(AT[None], TABLE, mode="mean"),
    ),
    "folded otherwise": (
        lambda _: F.fold(F.unfold(P, 3, stride=2), 7, 3, stride=2),
        lambda _: F.fold(F.unfold(P, 3, stride=1), 8, 3, stride=1),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_computed_otherwise_has_other_labels(name: str) -> None:
    one, two = OTHERS[name]
    both(lambda: one(X[:, :, :6]), lambda: two(X[:, :, :6]))  # equal labels are equal numbers
