"""Public threads as data."""

from probe.explain import verdict
from probe.explain.threads import alike, public_threads
from probe.targets import backends


def test_every_thread_says_what_it_is_about_in_known_words():
    for thread in public_threads():
        assert set(thread) <= {
            "name",
            "library",
            "verdict",
            "causes",
            "ops",
            "dtypes",
            "vary",
            "said",
        }
        assert thread["library"] in {*backends.known_backends(), "*"}, thread["name"]
        assert thread["verdict"] in (verdict.ROUNDING, verdict.BUG, verdict.CONVENTION)
        assert "#" in thread["name"] and thread["said"] and thread["causes"]
    names = [thread["name"] for thread in public_threads()]
    assert len(names) == len(set(names))


def test_those_of_the_library_cause_and_axis_are_named():
    asked = ("torch", "rounding", {"order"})
    assert alike(*asked, "dense", "float32", "batch").startswith("as in pytorch#136338: closed")
    assert "pytorch#134908" in alike(*asked, "conv2d", "float32", "batch")
    assert alike(*asked, "conv2d", "float32", "layout") == ""
    assert alike("torch", "bug", {"order"}, "conv2d", "bfloat16", None)
    assert alike("torch", "bug", {"order"}, "dense", "float32", None) == ""
    assert "torch/nn#116" in alike("keras", "convention", {"window"}, "avg_pool2d", "float32", None)
