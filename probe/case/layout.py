"""Defines how operands lie in memory: the words of ``layout``, and their numbers in the store.

Every word is about the library's own tensor: a case's arrays are channels-last, and a backend turns
them into what its users write (PyTorch: channels first). It says how the *input* lies, and of a
matrix product or dense layer the *weights* too, since there both are operands that a program hands
over; the weights of a convolution are a layer's own and stay ``contiguous``, but for
``channels_last``, which PyTorch's users apply to the model and the input. A bias is contiguous.

``contiguous``     row by row (C order) in the library's own order of the axes, with the strides
                   that follow from the sizes, those of axes of size one too; at an address that
                   PyTorch (a multiple of 64) or NumPy (of 16) chose
``transposed``     a view made by turning an array of the other order: of windows the channels-last
                   array (batch, length, channels) turned to (batch, channels, length), of a matrix
                   (a, b) the array (b, a), of a stack of them each. Axes of size one keep the
                   strides that turning leaves: (1, L, 1) becomes (1, 1, L) with strides (L, 1, 1),
                   which counts as contiguous too, and yet is not what a copy has. A vector
                   has no other order and stays
``channels_last``  PyTorch's memory format of images: ``.to(memory_format=torch.channels_last)``
``strided``        every second element of a larger buffer along the last axis of the tensor: the
                   length where there are windows, the axis that is summed up in a product or sum
``offset:N``       as contiguous, but the storage starts N bytes behind an address that is a
                   multiple of 64; N is a multiple of the element's size. A difference against
                   another offset, or contiguous, has the cause ``alignment``

Targets' interpreters import this (Python 3.6).
"""

from typing import Any, Dict, Tuple

import numpy as np

CONTIGUOUS = "contiguous"
TRANSPOSED = "transposed"
CHANNELS_LAST = "channels_last"
WORDS = (CONTIGUOUS, TRANSPOSED, CHANNELS_LAST, "strided")
OFFSET = "offset:"
# Numbers of the words, from 1 on, are their places; those of offsets are this and the bytes.
OFFSETS = 1000
# Bytes by whose multiples addresses are told apart: a cache line, the longest vector register.
BOUNDARY = 64
# The largest offset, in bytes: a page.
FARTHEST = 4096
HOW = f"use {', '.join(WORDS)} or {OFFSET}N, N in bytes"


def offset(word: str) -> int:
    """The bytes of ``offset:N``; -1 for every other word."""
    return int(word[len(OFFSET) :]) if word.startswith(OFFSET) else -1


def parse_layout(text: object) -> str:
    """The word as it is stored. ValueError says why it is none."""
    word = str(text).strip().lower().replace("-", "_")
    if word in WORDS:
        return word
    if not word.startswith(OFFSET):
        raise ValueError("unknown")
    number = word[len(OFFSET) :]
    if not number.isdigit() or int(number) > FARTHEST:
        raise ValueError(f"{number!r} is not a number of bytes from 0 to {FARTHEST}")
    return OFFSET + str(int(number))


def layout_number(word: str) -> int:
    """The number that stands for a word in the store's integer columns ``at`` and ``against``."""
    return OFFSETS + offset(word) if word.startswith(OFFSET) else 1 + WORDS.index(word)


def layout_of_number(value: int) -> str:
    """The word of a number. ValueError: it stands for none."""
    if OFFSETS <= value <= OFFSETS + FARTHEST:
        return OFFSET + str(value - OFFSETS)
    if 1 <= value <= len(WORDS):
        return WORDS[value - 1]
    raise ValueError(f"{value} is not the number of a layout")


def layout_of_spec(layer) -> str:
    """The layout in a worker's spec or a layer of a program."""
    return layer.get("layout", CONTIGUOUS)


def with_layout(layer: Dict[str, Any], word: str) -> Dict[str, Any]:
    """The spec with another layout."""
    if word == CONTIGUOUS:
        return {name: value for name, value in layer.items() if name != "layout"}
    return dict(layer, layout=word)


def keeps_layout(word: str, words: Tuple[str, ...]) -> bool:
    """Whether a word is among those that a library keeps; ``offset:N`` stands for every N."""
    return (OFFSET + "N" if word.startswith(OFFSET) else word) in words


def bytes_behind_boundary(array: np.ndarray) -> int:
    """How many bytes behind a multiple of ``BOUNDARY`` an array begins."""
    return int(array.ctypes.data % BOUNDARY)


def copied(array: np.ndarray, address: int = 0) -> np.ndarray:
    """A copy, C order, that begins so many bytes behind a multiple of ``BOUNDARY``."""
    raw = np.empty(array.nbytes + 2 * BOUNDARY, np.uint8)
    raw = raw[-raw.ctypes.data % BOUNDARY + address :][: array.nbytes]
    copy = raw.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def offset_copy_lines(x, word):
    """Lines that copy the NumPy array of a name to an offset's place; none for no offset.

    NumPy itself only promises multiples of 16.
    """
    count = offset(word)
    if count < 0:
        return []
    return [
        f"room = np.zeros({x}.nbytes + {BOUNDARY + count}, np.uint8)",
        f"room = room[-room.ctypes.data % {BOUNDARY} + {count} :][: {x}.nbytes].view({x}.dtype)",
        f"room[:] = {x}.reshape(-1)",
        f"{x} = room.reshape({x}.shape)",
    ]
