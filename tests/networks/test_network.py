"""Networks: what a chain is, how it is written and read, which activations read content."""

import json

import numpy as np
import pytest

from lib.chains.description import from_json, load, nine_layers
from probe.errors import InputError

CHAINS = {
    "valid": [{"op": "conv1d", "kernel": 3}, {"op": "max_pool1d", "kernel": 2}] * 2,
    "same": [{"op": "conv1d", "kernel": 3, "padding": "same"}, {"op": "max_pool1d", "kernel": 2}]
    * 2,
    "same, stride": [{"op": "conv1d", "kernel": 3, "stride": 2, "padding": "same"}] * 3,
    "same, wide stride": [{"op": "conv1d", "kernel": 5, "stride": 3, "padding": "same"}] * 2,
    "same_lower": [{"op": "conv1d", "kernel": 4, "stride": 2, "padding": "same_lower"}] * 2,
    "dilation": [{"op": "conv1d", "kernel": 3, "dilation": 3, "padding": "2:1"}] * 2,
    "explicit": [{"op": "pad", "padding": "3:2"}, {"op": "conv1d", "kernel": 4, "stride": 2}] * 2,
    "ceil": [
        {"op": "conv1d", "kernel": 3},
        {"op": "avg_pool1d", "kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    ]
    * 2,
    "overlapping pools": [
        {"op": "conv1d", "kernel": 2},
        {"op": "max_pool1d", "kernel": 3, "stride": 2, "padding": "same"},
    ]
    * 3,
}


def chain(name):
    return from_json({"rank": 1, "name": name, "layers": CHAINS[name]})


def symbols(network, length, content):
    """What every output reads, told apart by value: nested tuples, made without any mask.

    The input is content 0 to ``content`` - 1 and then one symbol for padding.
    """
    values = [("content", i) if i < content else "padding" for i in range(length)]
    for layer in network.layers:
        size = len(values)
        if layer.op == "pad":
            before, after = layer.padding[0]
            values = ["zero"] * before + values + ["zero"] * after
            continue
        kernel, stride, dilation = layer.kernel[0], layer.stride[0], layer.dilation[0]
        reach = (kernel - 1) * dilation + 1
        before = after = 0
        if layer.padding in ("same", "same_lower"):
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
            before, after = total // 2, total - total // 2
            before, after = (after, before) if layer.padding == "same_lower" else (before, after)
        elif layer.padding != "valid":
            before, after = layer.padding[0]
        count = (size + before + after - reach) // stride + 1
        if layer.ceil_mode:
            count = -(-(size + before + after - reach) // stride) + 1
            if (count - 1) * stride >= size + before:
                count -= 1

        def element(i, size=size, after=after, values=values):
            return values[i] if 0 <= i < size else "zero" if i < size + after else "beyond"

        values = [
            (layer.name, *(element(o * stride - before + k * dilation) for k in range(kernel)))
            for o in range(count)
        ]
    return values


def content_in(symbol):
    if isinstance(symbol, tuple):
        return any(content_in(one) for one in symbol) or symbol[:1] == ("content",)
    return False


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("fixed", [37, 40])
def test_activations_that_read_content_and_the_least_length_are_those_of_brute_force(name, fixed):
    network = chain(name)
    geometry = network.geometry(fixed)
    for content in (1, 2, 5, 9, 14):
        whole = symbols(network, fixed, content)
        reading = [number for number, one in enumerate(whole) if content_in(one)]
        found = geometry.requirement(content)
        assert found.reading == len(reading)
        assert found.kept == (reading[-1] + 1 if reading else 0)
        assert found.outputs == len(whole)
        for length in range(max(content, network.shortest), found.padded + 1):
            short = symbols(network, length, content)
            shift = geometry.follow(length)[-1].shift
            serves = shift is not None and all(
                0 <= number - shift < len(short) and short[number - shift] == whole[number]
                for number in reading
            )
            assert serves == (geometry.capacity(length) >= content), (content, length)
        assert geometry.capacity(found.padded) >= content or found.padded == fixed


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_shared_is_the_same_and_what_is_not_is_another_one(name):
    network, fixed = chain(name), 41
    geometry = network.geometry(fixed)
    for length in (network.shortest + 3, 17, 22, 33, 40):
        # content as long as the length: no two elements are alike by chance
        short, whole = symbols(network, length, length), symbols(network, fixed, length)
        last = geometry.follow(length)[-1]
        if last.shift is None:
            continue
        for number, same in enumerate(last.same):
            partner = number + last.shift
            there = 0 <= partner < len(whole)
            assert same == (there and short[number] == whole[partner]), (length, number)


def test_field_jump_and_start_are_those_of_the_windows():
    for layer in nine_layers(width=1).windows(4096)[-1:]:
        assert (layer.field, layer.jump, layer.start, layer.outputs) == (2300, 256, 0, 8)
    same = chain("same, stride").windows(40)
    assert [(one.field, one.jump) for one in same] == [(3, 2), (7, 4), (15, 8)]


def test_the_nine_layers_need_little_more_than_their_window():
    geometry = nine_layers(width=1).geometry(4096)
    need = geometry.requirement(257)
    assert (need.padded, need.reading, need.kept, need.tail) == (2556, 2, 2, 6)
    assert geometry.requirement(256).padded == 2300
    assert geometry.capacity(4092) == 2300 + 7 * 256 == 4092
    assert geometry.least(4096) == 4096  # the content has to fit, though its end is read by none


def test_a_description_is_read_as_it_was_written(tmp_path):
    network = from_json(
        {
            "rank": 2,
            "height": [3],
            "in_channels": 2,
            "fixed": 64,
            "seed": 5,
            "layers": [
                {"op": "conv2d", "kernel": "3x5", "filters": 4, "bias": True, "padding": "same"},
                {"op": "normalisation"},
                {"op": "activation", "activation": "leaky_relu", "parameters": {"alpha": 0.1}},
                {"op": "avg_pool2d", "kernel": "3x2", "pad_with": "nothing"},
                {"op": "dense", "filters": 3, "bias": True},
            ],
        }
    )
    path = tmp_path / "network.json"
    network.save(path)
    again = load(path)
    assert again.id == network.id and again.sizes(64) == network.sizes(64)
    assert all(
        np.array_equal(one, other)
        for a, b in zip(network.layers, again.layers, strict=True)
        for one, other in zip(a.arrays.values(), b.arrays.values(), strict=True)
    )
    assert network.id != from_json(network.to_json() | {"height": [4]}).id


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layers": []}, "network=network: no layer"),
        ({"layers": [{"op": "conv1d", "kernal": 3}]}, "kernal=3: a layer has no such word"),
        ({"layers": [{"op": "lstm"}]}, "op=lstm: .*use one of|op=lstm: "),
        ({"layers": [{"op": "conv2d"}]}, "op=conv2d: it has 2 spatial axes.*conv2d_1"),
        ({"layers": [{"op": "conv1d", "kernel": 2, "weights": [1]}, {"op": "dense"}]}, "weights="),
        ("{", "not JSON"),
        ([], "no list of layers|is no model"),
    ],
)
def test_descriptions_that_are_none(given, message):
    with pytest.raises(InputError, match=message):
        from_json(json.dumps(given) if isinstance(given, list) else given)


def test_content_longer_than_the_fixed_length_is_refused():
    geometry = nine_layers(width=1).geometry(2400)
    with pytest.raises(InputError, match="content=2401: the full length is 2400"):
        geometry.requirement(2401)
    with pytest.raises(
        InputError, match="length=100: conv5 .* of size 1x2, which is smaller .*; use 2300 or more"
    ):
        nine_layers(width=1).sizes(100)
