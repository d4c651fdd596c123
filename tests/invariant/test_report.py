"""What an invariant model's bits rest on: what is left, where it was met, what is certified."""

import pytest

from probe import stable
from probe.invariant.report import NotInvariant


def test_what_is_left_names_its_modules(torch):
    nn = torch.nn

    class Gamma(nn.Module):
        def forward(self, x):
            return torch.addcmul(x, x, x)

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.rest = (
                nn.Sequential(nn.Linear(4, 4), Gamma()),
                nn.ModuleList([Gamma()]),
            )

        def forward(self, x):
            return torch.addcdiv(self.rest[0](self.first(x)), x, x)

    plain, x = Named().eval(), torch.rand(3, 4)
    _, report = stable.invariant(plain, example=x)
    one, two = "addcmul of 3x4, 3x4, 3x4", "addcdiv of 3x4, 3x4, 3x4"
    wanted = {one: ["first.1", "rest.0"], two: ["Named"]}
    assert report.modules == report.to_json()["modules"] == wanted
    assert f"{one} in first.1, rest.0, {two} in Named" in repr(report)
    _, report = stable.invariant(plain.first, example=x)
    assert report.modules == {one: ["1"]}
    with pytest.raises(NotInvariant, match=f"^operation={one} in first.1: it is not known"):
        stable.invariant(plain, strict=True, example=x)


def test_sums_are_certified_when_asked(torch):
    _, report = stable.invariant(torch.nn.Linear(9, 16).eval(), [8], example=torch.randn(8, 9))
    told = report.certify()
    assert all(
        one.startswith(("certified: all outputs", "not certified: ")) for one in told.values()
    )
    assert [row.certified for row in report.rows] == [told[row.operation] for row in report.rows]


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["Linear(96, 64)", "Conv1d(6, 8, 3, stride=2)"])
def test_a_quicker_way_for_few_samples_is_certified_too(torch, layer):
    """Linear layers have one where the library adds few rows of turned weights as it adds many."""
    made = eval(f"torch.nn.{layer}.eval()", {"torch": torch})
    x = torch.randn(64, *((6, 21) if "Conv" in layer else (96,)))
    model, report = stable.invariant(made, [1, 2, 4, 8, 64], example=x)
    for size in (1, 2, 4, 8):
        assert torch.equal(model(x[:size]), model(x)[:size])
    told = report.certify()
    assert len(told) == len(report.rows)
    for key, words in told.items():
        assert words.startswith(("certified: all outputs of sizes ", "not certified: ")), key
        assert "different order" not in words, key
        if words.startswith("certified"):
            assert ("of the usual way" in words) == ("few rows" in key or "by oneDNN" in key)
