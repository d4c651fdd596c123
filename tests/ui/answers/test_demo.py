"""``probe demo``: the numbers of a report, recomputed."""

from probe.ui.answers import demo


def test_the_demonstration_gives_the_numbers_that_the_report_printed():
    found = demo.demo_json()
    assert found["replayed"]
    assert found["differing"] == [1, 2]
    bits = [one["bits"] for one in found["lengths"]["8"]]
    assert bits == ["42737afd", "4291f5cf", "42aa2e20", "42c26673"]
    told = demo.demo_text()
    assert "s0 = p0 + p1 = -29.399 (0xc1eb3127)" in told
