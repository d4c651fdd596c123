"""Serves the parent's requests inside the target's interpreter, with NumPy and one library.

Started as ``PYTHON -E -s -u child.py`` by ``probe.targets.launch``. Requests come on stdin, answers
go to what was stdout; everything that is printed goes to stderr. Python 3.6, and
``probe/__init__.py`` is never run, so the target's interpreter needs nothing but its library.
``CaseCall`` calls an operator cut along an axis, ``Worker`` answers (sweeps and edited operands by
``compare``), ``send`` and ``receive`` are both sides' of the pipe.

What travels is a frame: ``MAGIC``, the length of the envelope (uint32, little-endian), the envelope
(UTF-8 JSON: the header, and name, dtype and shape of each array), then the bytes of the arrays, C
order, one after the other. Nothing is pickled, so a frame runs no code, and Python 3.6 reads what
3.13 wrote. A stream needs ``readinto(view)`` and ``write(view)``, both of which may do a part of
the work and return how many bytes that was (raw pipes do).
"""

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import struct
import sys
import threading
import time
import traceback
import types
from collections import OrderedDict
from typing import Dict, List

if __name__ == "__main__":  # a bare package, without this folder's names on the top level
    _FOLDER = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _FOLDER]
    _package = types.ModuleType("probe")
    _package.__path__ = [os.path.dirname(_FOLDER)]
    sys.modules["probe"] = _package

import numpy as np

from probe.case import layout
from probe.targets import backends, compare
from probe.targets.backends import contract, rewritten

# Sets of lines that keep the operands of a call at a time.
BOUND = 16


class CaseCall:
    """One case in the child. ``operators``: a function from a spec to an operator of the backend.

    ``x`` (batch, *spatial, in_channels), ``w`` (*kernel, in_channels/groups, filters), ``b``
    (filters,) or None: container arrays at their largest; every smaller case is a cut of them.
    """

    def __init__(self, operators, spec, x, w, b):
        self.operators, self.spec, self.x, self.w, self.b = operators, spec, x, w, b
        self._operator = operators(spec)
        self._bound = {}
        self._others = {}

    def at(self, axes=None):
        """The call with each axis in ``axes`` cut to its value: ``{"length": 7}``.

        Axes: ``length`` (of x's last spatial axis), ``batch``, ``filters`` (the first of them), and
        ``channels``: nothing is cut, but those beyond go through a second call whose output is
        added (see ``backends.rewritten``). ``layout``: the number of a layout, in which the same
        operands are handed over. ValueError for any other axis and for a value outside of the
        operands.
        """
        axes = dict(axes or {})
        if "layout" in axes:
            return self._laid(layout.layout_of_number(axes.pop("layout"))).at(axes)
        x, length = self.x, axes.pop("length", None)
        if self.spec.get("op") != "dense":  # rows of a dense layer have no length to cut
            x = _cut_axis(x, -2, "length", length)
        x = _cut_axis(x, 0, "batch", axes.pop("batch", None))
        filters, channels = axes.pop("filters", None), axes.pop("channels", None)
        if axes:
            known = "length, batch, filters and channels can"
            raise ValueError(f"axis={sorted(axes)}: can't be cut; {known}")
        if channels is not None and channels != self.x.shape[-1]:
            if not 0 < channels < x.shape[-1]:
                raise ValueError(f"channels={channels}: the operands have {x.shape[-1]}")
            return self._other(x, self.w, self.b, split=channels)
        if filters is not None and filters != self.w.shape[-1]:
            b = None if self.b is None else self.b[:filters].copy()
            return self._other(x, _cut_axis(self.w, -1, "filters", filters), b, filters=filters)
        operator = self._operator.at(x.shape)
        if operator not in self._bound:  # lines for other sizes want the operands again
            if len(self._bound) >= BOUND:
                self._bound.clear()
            self._bound[operator] = operator.bind(self._operands(self.w, self.b))
        return Prepared(operator, x, self._bound[operator])

    def _laid(self, word):
        """The same call with another layout; kept, since both sides of a pair come again."""
        if word == layout.layout_of_spec(self.spec):
            return self
        if word not in self._others:
            spec = layout.with_layout(self.spec, word)
            self._others[word] = CaseCall(self.operators, spec, self.x, self.w, self.b)
        return self._others[word]

    def _other(self, x, w, b, **words):
        operator = self.operators(dict(self.spec, **words)).at(x.shape)
        return Prepared(operator, x, operator.bind(self._operands(w, b)))

    def _operands(self, w, b):
        return dict({"w": np.ascontiguousarray(w)}, **({} if b is None else {"b": b}))


def _cut_axis(array, axis, name, value):
    if value is None or value == array.shape[axis]:
        return array
    if not 0 < value < array.shape[axis]:
        raise ValueError(f"{name}={value}: the operands have {array.shape[axis]}")
    index = [slice(None)] * array.ndim
    index[axis] = slice(0, value)
    return array[tuple(index)]


class Prepared:
    """An operator with its operands in the library's own layout, ready to be called many times."""

    def __init__(self, operator, x, call):
        """``call``: the operator with its operands, as ``bind`` gives it."""
        self.operator, self.call = operator, call
        self.x = np.ascontiguousarray(x)
        self.input = operator.input(self.x)

    def run(self):
        """The output (container array, channels last, C order) and the seconds of the call."""
        start = time.perf_counter()
        value = self.call(self.input)
        seconds = time.perf_counter() - start
        return np.ascontiguousarray(self.operator.output(value)), seconds

    def times(self, limit):
        """Seconds of every call, float64, for that many seconds in all; one call at least."""
        call, clock = self.call, time.perf_counter
        ends = [clock()]
        while len(ends) < 2 or ends[-1] - ends[0] < limit:
            call(self.input)
            ends.append(clock())
        return np.diff(ends)

    def realigned(self):
        return Prepared(self.operator, realigned(self.x), self.call)


def realigned(array):
    """A copy that begins elsewhere modulo 16 bytes, and so modulo 64: at a multiple of 64, or where
    the array begins at a multiple of 16, 4 bytes behind one, or one element where that is more.
    """
    # MKL's and Eigen's orders go with the address modulo 16
    step = max(4, array.dtype.itemsize)
    return layout.copied(array, 0 if array.ctypes.data % 16 else step)


# Operators kept ready; the least recently used one is dropped.
OPERATORS = 256
# Seconds that a child may still work after its parent has gone.
GRACE = 2.0


class BadRequest(Exception):
    """The request itself is wrong: an unknown name, a key that was never loaded."""


@contextlib.contextmanager
def _starting(absent):
    """Inside, imports of the names ``absent`` fail as where they are not installed, unless they are
    loaded; and what is made stays: a library's million objects are not looked through for garbage,
    neither meanwhile, which takes a tenth of TensorFlow's start, nor later."""
    hidden = [name for name in absent if name not in sys.modules]
    # None: what the import system does not look for
    sys.modules.update(dict.fromkeys(hidden))
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        if hasattr(gc, "freeze"):  # Python 3.7
            gc.freeze()
        if collecting:
            gc.enable()


def describe(error):
    """``(kind, message)`` of an exception; the message is one line.

    Kinds: ``unsupported``, ``memory``, ``unavailable`` or ``error``.
    """
    name = type(error).__name__
    text = (str(error).strip().splitlines() or [""])[0][:500]
    if isinstance(error, contract.Unsupported):
        return "unsupported", text
    memory = (MemoryError, contract.OutOfMemory)
    if isinstance(error, memory) or name in ("ResourceExhaustedError", "OutOfMemoryError"):
        return "memory", f"{name}: {text}"
    if isinstance(error, contract.Unavailable):
        return "unavailable", text
    if contract.declined(error):
        return "unsupported", f"{name}: {text}"
    if isinstance(error, ImportError):
        return "unavailable", f"{name}: {text}"
    return "error", text if isinstance(error, BadRequest) else f"{name}: {text}"


def logged(error):
    """As ``describe``; what is no refusal leaves its stack on stderr, which the parent shows."""
    if not isinstance(error, contract.Unsupported):
        traceback.print_exc(file=sys.stderr)
    return describe(error)


class Worker:
    """Answers requests. The same object serves a pipe (``main``) and ``launch.InlineSession``."""

    def __init__(self):
        self.backend = None
        self.calls = {}
        self.operators = OrderedDict()

    def handle(self, request, arrays):
        """Answers of one request: (header, arrays) pairs, of which the last one has ``done``.

        Requests, by ``request["do"]``:

        - ``start`` (backend, switches, device; ``home`` of another package's backend, see
          ``backends.entry_point_of``; ``without``: packages that the library must not find
          meanwhile): imports the library. Answer: ``facts``.
        - ``load`` (key, spec; x, w, b): keeps the operands under the key; what was there goes.
        - ``run`` (key, or spec; x, w, b; ``at``: see ``CaseCall.at``): gives ``y`` and ``seconds``;
          with ``control`` also whether the same shape gives the same bits.
        - ``time`` (key, or spec; x, w, b; ``at``; ``limit``, in seconds): calls for that long, once
          at least: answer ``seconds``, of every call.
        - ``kernels`` (key, or spec; x, w, b): answer ``kernels``: see ``Backend.kernels``.
        - ``sweep`` (key, ...): see ``compare.compare_items``.
        - ``file`` (path, names; arrays by their numbers): a model's file, run as its user runs it:
          its outputs by their numbers.
        - ``masks`` (key, or spec; x, w, b, ...): see ``compare.masks``.
        - ``stop``.

        Of operands that come with a spec b may be left out; where the spec has a bias it is zeros.

        Whatever is raised becomes an answer: ``error`` (a kind, see ``describe``) and ``message``.
        """
        try:
            name = str(request.get("do"))
            if name not in REQUESTS:
                requests = ", ".join(sorted(REQUESTS))
                raise BadRequest(f"do={name}: no such request; there are: {requests}")
            yield from REQUESTS[name](self, request, arrays)
        except (GeneratorExit, KeyboardInterrupt):  # nobody's answer: it ends who asked, in-process
            raise
        except BaseException as error:
            kind, message = logged(error)
            yield {"error": kind, "message": message, "done": True}, {}

    def start(self, request, arrays):
        self.calls.clear()
        self.operators.clear()
        # of another package's backend: its class, and where that is
        home = request.get("home")
        self.backend = (backends.loaded(*home) if home else backends.get(request["backend"]))()
        with _starting(request.get("without", ())):
            facts = self.backend.start(request.get("switches", {}), request.get("device", "cpu"))
        facts = dict(facts, numpy_version=np.__version__)
        facts["python_version"] = ".".join(str(part) for part in sys.version_info[:3])
        yield {"facts": facts, "done": True}, {}

    def load(self, request, arrays):
        self.calls.pop(request["key"], None)
        self.calls[request["key"]] = self._given(request, arrays)
        yield {"done": True}, {}

    def run(self, request, arrays):
        call = self._call(request, arrays)
        prepared = call.at(request.get("at"))
        y, seconds = prepared.run()
        answer = {"seconds": seconds, "done": True}
        if request.get("control"):
            answer["control"] = compare.repeat_control(prepared, y, call.spec["dtype"])
        yield answer, {"y": y}

    def time(self, request, arrays):
        prepared = self._call(request, arrays).at(request.get("at"))
        yield {"done": True}, {"seconds": prepared.times(request["limit"])}

    def kernels(self, request, arrays):
        call = self._call(request, arrays)
        names_by_source: Dict[str, List[str]] = {}
        for spec in rewritten.split_specs(call.spec):
            channels = spec["in_channels"]
            inner = (channels // spec["groups"],) + call.w.shape[-1:]
            shapes = {"x": call.x.shape[:-1] + (channels,), "w": call.w.shape[:-2] + inner}
            for source, names in self._started().kernels(spec, shapes).items():
                names_by_source.setdefault(source, []).extend(names)
        yield {"kernels": names_by_source, "done": True}, {}

    def sweep(self, request, arrays):
        return compare.compare_items(self._call(request, arrays), request, logged)

    def masks(self, request, arrays):
        return compare.masks(self._call(request, arrays), request, arrays)

    def file(self, request, arrays):
        inputs = {name: arrays[str(n)] for n, name in enumerate(request["names"])}
        outputs = self._started().run_file(request["path"], inputs)
        yield {"done": True}, {str(n): np.asarray(y) for n, y in enumerate(outputs)}

    def stop(self, request, arrays):
        yield {"done": True}, {}

    def _call(self, request, arrays):
        if "spec" in request:
            return self._given(request, arrays)
        key = request.get("key")
        if key not in self.calls:
            raise BadRequest(f"key={key}: nothing is loaded under it; load it first")
        return self.calls[key]

    def _given(self, request, arrays):
        spec = request["spec"]
        w, b = arrays.get("w"), arrays.get("b")
        if b is None and spec["bias"]:
            b = np.zeros(spec["filters"], w.dtype)
        return CaseCall(self._operator, spec, arrays["x"], w, b)

    def _started(self):
        if self.backend is None:
            raise BadRequest("do: no backend is started; start one first")
        return self.backend

    def _operator(self, spec):
        key = json.dumps(spec, sort_keys=True)
        if key not in self.operators:
            self.operators[key] = rewritten.spec_operator(self._started(), spec)
        self.operators.move_to_end(key)
        if len(self.operators) > OPERATORS:
            self.operators.popitem(last=False)
        return self.operators[key]


REQUESTS = {
    request.__name__: request
    for request in (
        *(Worker.start, Worker.load, Worker.run, Worker.time, Worker.kernels),
        *(Worker.sweep, Worker.file, Worker.masks, Worker.stop),
    )
}


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


def serve(worker, source, sink):
    """Answers requests from a binary stream on another, until ``stop`` or the end: exit status."""
    while True:
        try:
            request, arrays = receive(source)
        except Closed:
            return 0
        except ProtocolError as error:
            send(sink, {"error": "protocol", "message": str(error), "done": True})
            return 2
        for header, results in worker.handle(request, arrays):
            send(sink, header, results)
        if request.get("do") == "stop":
            return 0


def _leave_with_parent():
    """Ends this process soon after stdin has been closed, even from within a library's call."""
    poll = select.poll()
    # of no event but the hang-up, which poll always reports
    poll.register(0, 0)
    poll.poll()
    time.sleep(GRACE)
    os._exit(1)


def main(worker=Worker):
    """Takes stdin and stdout for the protocol and serves; leaves without a library's clean-up."""
    # What a library prints to stdout must not stand between two frames: answers go to a copy of it,
    # and stdout itself becomes stderr.
    sink = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb", 0)
    # a crash in native code leaves the Python stack on stderr, which the parent shows
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    if hasattr(select, "poll"):
        threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        status = serve(worker(), source, sink)
    except OSError:  # the parent is gone
        status = 1
    # threads and destructors of libraries may hang or crash where an interpreter ends by itself
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
