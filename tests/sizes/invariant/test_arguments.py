"""Wrong arguments of the invariant mode, and of stable functions, are one line each."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable

X = np.ones((3, 6), np.float32)


def adds(x):
    return x.sum(-1)


WRONG = {
    "batched": ("x", 1.5, b"0", True, slice(2), ("a",), (0.0,), {"x": "y"}),
    "sizes": (
        *([10**12], [2**70], [0], [1.5], [True], [[1]], [None], "ab", b"ab", None, []),
        *(range(1, 10**9), {"length": [10**12]}, {"batch": 5}, {"width": [1]}),
        np.ones((2, 2), int),
    ),
    "table": (slice(2), 5, b"x", [], True, "x" * 5000),
}


@pytest.mark.parametrize("kind", ["module", "function"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_one_line_that_names_it(kind, name, torch):
    model = torch.nn.Linear(6, 4).eval() if kind == "module" else adds
    x = torch.from_numpy(X) if kind == "module" else X
    for value in WRONG[name]:
        with pytest.raises(InputError, match=f"^{name}=") as caught:
            stable.invariant(model, **{name: value})[0](x)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300, value


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_is_run_whole_is_neither_copied_nor_pickled(copied):
    with pytest.raises(InputError, match="neither copied nor pickled") as caught:
        copied(stable.invariant(adds)[0])
    assert "\n" not in str(caught.value)


def test_a_report_is_written_to_a_path_or_refused_in_one_line(torch, tmp_path):
    _, report = stable.invariant(torch.nn.Linear(6, 4).eval())
    for path in (None, 5, tmp_path, tmp_path / "none" / "table.json", "", "\0"):
        with pytest.raises(InputError, match="^path="):
            report.save(path)
    report.save(tmp_path / "table.json")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(("stride", {"stride": value}) for value in (0, "x", 1.5, (1, 1))),
        *(("groups", {"groups": value}) for value in (0, 3, "x")),
        *(("padding", {"padding": value}) for value in ("x", -1, None, [(1,)], slice(2))),
        *(("accumulate", {"accumulate": value}) for value in ("x", 5, "int32")),
        *(("b", {"b": value}) for value in ("x", np.ones(4), 5)),
    ],
    ids=str,
)
def test_a_wrong_word_of_a_convolution_is_one_line(name, words, torch):
    x, w = torch.ones(1, 2, 5), torch.ones(4, 2, 3)
    with pytest.raises(ValueError, match=f"^{name}=") as caught:
        stable.conv(x, w, **words)
    assert "\n" not in str(caught.value)


def test_operands_that_do_not_fit_are_one_line(torch):
    x, w = torch.ones(1, 2, 5), torch.ones(4, 2, 3)
    wrong = {
        "x": lambda: stable.conv(x, torch.ones(4, 3, 3)),
        "w": lambda: stable.conv(x.double(), w),
        "b": lambda: stable.conv(x, w, torch.ones(5)),
        "w=": lambda: stable.dense(x, torch.ones(6)),
    }
    for name, call in wrong.items():
        with pytest.raises(ValueError, match=f"^{name}") as caught:
            call()
        assert "\n" not in str(caught.value)
