"""Sends frames between parent and child: a JSON header and raw arrays, on any binary stream.

A frame is ``MAGIC``, the length of the envelope (uint32, little-endian), the envelope (UTF-8 JSON:
the header, and name, dtype and shape of each array), then the bytes of the arrays, C order, one
after the other. Nothing is pickled, so a frame runs no code, and Python 3.6 reads what 3.13 wrote.

A stream needs ``readinto(view)`` and ``write(view)``, both of which may do a part of the work and
return how many bytes that was (raw pipes do).
"""

import json
import struct

import numpy as np

MAGIC = b"\x93probe1\n"
LARGEST_ENVELOPE = 1 << 26
LARGEST_ARRAY = 1 << 40
SMALL = 1 << 16
KINDS = "fiub"


class ProtocolError(Exception):
    """What came is not a frame: truncated, or something else altogether."""


class Closed(ProtocolError):
    """The stream ended between two frames, which is how a conversation ends."""


def send(stream, header, arrays=None):
    """Write one frame. ``header``: a JSON object. ``arrays``: a dict of float, int or bool arrays.

    Small frames go out in one write. ProtocolError for a dtype that can't travel; OSError as the
    stream raises it (BrokenPipeError where the reader is gone).
    """
    names, bodies = [], []
    for name, array in (arrays or {}).items():
        array = np.asarray(array)
        if array.dtype.kind not in KINDS:
            raise ProtocolError(f"array {name}: dtype={array.dtype} can't travel")
        names.append([name, array.dtype.str, list(array.shape)])
        if array.size:
            bodies.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    envelope = json.dumps([header, names]).encode("utf-8")
    head = MAGIC + struct.pack("<I", len(envelope)) + envelope
    if sum(body.nbytes for body in bodies) <= SMALL:
        _write(stream, head + b"".join(body.tobytes() for body in bodies))
        return
    _write(stream, head)
    for body in bodies:
        _write(stream, body)


def receive(stream):
    """Read one frame: ``(header, {name: array})``; the arrays are new and writable.

    Closed where the stream ends before a frame, ProtocolError where it ends inside of one or where
    the bytes are not a frame. OSError and time limits as the stream raises them.
    """
    head = bytearray(len(MAGIC) + 4)
    got = _fill(stream, head)
    if got == 0:
        raise Closed("the stream has ended")
    if not head.startswith(MAGIC[:got]):
        raise ProtocolError(f"{bytes(head[:got])!r} is not the start of a frame")
    _complete(got, len(head), "head")
    length = struct.unpack("<I", bytes(head[len(MAGIC) :]))[0]
    if length > LARGEST_ENVELOPE:
        raise ProtocolError(f"an envelope of {length} bytes is not a frame of probe's")
    envelope = bytearray(length)
    _complete(_fill(stream, envelope), length, "envelope")
    try:
        header, named = json.loads(bytes(envelope).decode("utf-8"))
        names = [(str(name), str(dtype), shape) for name, dtype, shape in named]
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the envelope is not ours: {error}") from None
    if not isinstance(header, dict):
        raise ProtocolError(f"the header is {type(header).__name__}, not an object")
    arrays = {}
    for name, dtype, shape in names:
        arrays[name] = array = _announced_array(name, dtype, shape)
        if array.size:
            raw = array.reshape(-1).view(np.uint8)
            _complete(_fill(stream, raw), raw.nbytes, f"array {name}")
    return header, arrays


def _announced_array(name, dtype, shape):
    try:
        kind = np.dtype(dtype)
        if kind.kind not in KINDS:
            raise ValueError("a dtype that can't travel")
        size = kind.itemsize
        for extent in shape:
            size *= int(extent)
        if not 0 <= size <= LARGEST_ARRAY or any(extent < 0 for extent in shape):
            raise ValueError("an impossible size")
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"array {name}: dtype={dtype}, shape={shape}: {error}") from None
    return np.empty(tuple(shape), kind)


def _complete(got, wanted, what):
    if got < wanted:
        raise ProtocolError(f"cut off in the {what}: {got} of {wanted} bytes")


def _fill(stream, buffer):
    """Fill ``buffer`` from the stream; how many bytes came before it ended."""
    view = memoryview(buffer)
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])
        if not count:
            break
        done += count
    return done


def _write(stream, data):
    view = memoryview(data)
    while len(view):
        count = stream.write(view)
        view = view[len(view) if count is None else count :]
