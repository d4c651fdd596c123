"""Serves the parent's requests inside the target's interpreter, with NumPy and one library.

Started as ``PYTHON -E -s -u child.py`` by ``probe.launch``. Requests come on stdin, answers go to
what was stdout; everything that is printed goes to stderr. Python 3.6, and ``probe/__init__.py`` is
never run, so the target's interpreter needs nothing but its library.
"""

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
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

from probe import backends, layout, program
from probe.backends import contract, rewritten
from probe.worker import compare, protocol
from probe.worker.call import CaseCall, Network

#: Operators kept ready; the least recently used one is dropped.
OPERATORS = 256
#: Seconds that a child may still work after its parent has gone.
GRACE = 2.0


class BadRequest(Exception):
    """The request itself is wrong: an unknown name, a key that was never loaded."""


@contextlib.contextmanager
def _absent(names):
    """Makes ``import name`` fail inside, as where it is not installed, unless it is loaded."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # None: what the import system does not look for
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _without_collection():
    """What is made inside stays: a library's million objects are not looked through for garbage,
    neither meanwhile, which takes a tenth of TensorFlow's start, nor later."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if hasattr(gc, "freeze"):  # Python 3.7
            gc.freeze()
        if collecting:
            gc.enable()


def describe(error):
    """``(kind, message)`` of an exception; the message is one line.

    Kinds: ``unsupported``, ``memory``, ``unavailable`` or ``error``.
    """
    name = type(error).__name__
    lines = str(error).strip().splitlines() or [""]
    text = lines[0][:500]
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
        - ``unload`` (key).
        - ``run`` (key, or spec; x, w, b; ``at``: see ``CaseCall.at``): gives ``y`` and ``seconds``;
          with ``control`` also whether the same shape gives the same bits;
          with ``repeat`` (seconds) it is called for that long afterwards: ``calls`` says how often.
        - ``time`` (key, or spec; x, w, b; ``at``; ``limit``, in seconds): calls for that long, once
          at least: answer ``seconds``, of every call.
        - ``kernels`` (key, or spec; x, w, b): answer ``kernels``: see ``Backend.kernels``.
        - ``sweep`` (key, ...): see ``compare.compare_items``.
        - ``network`` (key, specs; arrays ``NUMBER.NAME``): keeps a program of layers under the key;
          ``reads``: for each the numbers of the values that it reads, of which the first are the
          ``inputs`` (a number, 1); without it each reads the one before. ``more``: shapes of the
          inputs behind the first, where they have others. ``own``: what the library has no call of
          its own for is refused, and not computed by NumPy.
        - ``through`` (key; x, x1, ...; ``first``, ``last``, ``control``, ``only_last``,
          ``layout``): its layers one by one: arrays ``y0``, ``y1``, ..., ``seconds`` and
          ``controls`` of each, and with a ``layout`` of x, ``layouts``: of what each reads; see
          ``call.Network.layers``.
        - ``whole`` (key; x, x1, ...; ``times``, ``layout``): the chain as one program of the
          library: ``y`` and ``seconds``, a list; without ``y`` where the library has none: ``why``
          says the reason.
        - ``masks`` (key, or spec; x, w, b, ...): see ``masked.masks``.
        - ``stop``.

        Operands that come with a spec: w may be left out where ``base`` gives the value of all
        weights, and b where the spec has a bias, which is then zeros.

        Whatever is raised becomes an answer: ``error`` (a kind, see ``describe``) and ``message``.
        """
        try:
            name = str(request.get("do"))
            if name not in REQUESTS:
                known = ", ".join(sorted(REQUESTS))
                raise BadRequest(f"do={name}: no such request; there are: {known}")
            yield from REQUESTS[name](self, request, arrays)
        except GeneratorExit:
            raise
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            kind, message = describe(error)
            yield {"error": kind, "message": message, "done": True}, {}

    def start(self, request, arrays):
        self.calls.clear()
        self.operators.clear()
        home = request.get("home")  # of another package's backend: its class, and where that is
        self.backend = (backends.loaded(*home) if home else backends.get(request["backend"]))()
        with _absent(request.get("without", ())), _without_collection():
            facts = self.backend.start(request.get("switches", {}), request.get("device", "cpu"))
        facts = dict(facts, numpy_version=np.__version__)
        facts["python_version"] = ".".join(str(part) for part in sys.version_info[:3])
        yield {"facts": facts, "done": True}, {}

    def load(self, request, arrays):
        self.calls.pop(request["key"], None)
        self.calls[request["key"]] = self._given(request, arrays)
        yield {"done": True}, {}

    def unload(self, request, arrays):
        self.calls.pop(request["key"], None)
        yield {"done": True}, {}

    def run(self, request, arrays):
        call = self._call(request, arrays)
        prepared = call.at(request.get("at"))
        y, seconds = prepared.run()
        answer = {"seconds": seconds, "done": True}
        if request.get("control"):
            answer["control"] = compare.repeat_control(prepared, y, call.spec["dtype"])
        if request.get("repeat"):
            answer["calls"] = prepared.repeat(request["repeat"])
        yield answer, {"y": y}

    def time(self, request, arrays):
        prepared = self._call(request, arrays).at(request.get("at"))
        yield {"done": True}, {"seconds": prepared.times(request["limit"])}

    def kernels(self, request, arrays):
        call = self._call(request, arrays)
        found: Dict[str, List[str]] = {}
        for spec in rewritten.split_specs(call.spec):
            channels = spec["in_channels"]
            inner = (channels // spec["groups"],) + call.w.shape[-1:]
            shapes = {"x": call.x.shape[:-1] + (channels,), "w": call.w.shape[:-2] + inner}
            if "turned" in spec:
                spec, shapes = rewritten.library_spec(spec), rewritten.swapped_shapes(shapes)
            for source, names in self._started().kernels(spec, shapes).items():
                found.setdefault(source, []).extend(names)
        yield {"kernels": found, "done": True}, {}

    def sweep(self, request, arrays):
        return compare.compare_items(self._call(request, arrays), request, describe)

    def masks(self, request, arrays):
        return compare.masks(self._call(request, arrays), request, arrays)

    def network(self, request, arrays):
        reads, inputs = request.get("reads"), request.get("inputs", 1)
        given, operands = (
            program.layer_program(request["specs"], reads, inputs, request.get("more", ())),
            {},
        )
        for name, array in arrays.items():
            number, _, word = name.partition(".")
            operands[word + number] = array
        made = self._started(), self._layer_operator, given, operands, request.get("own", False)
        self.calls[request["key"]] = Network(*made)
        yield {"done": True}, {}

    def through(self, request, arrays):
        chain = self._call(request, arrays)
        last = request.get("last", len(chain.given.steps))
        control, first = request.get("control", False), request.get("first", 0)
        word = request.get("layout", layout.CONTIGUOUS)
        found, seconds, controls = chain.layers(chain.inputs(arrays), first, last, control, word)
        if request.get("only_last"):
            found = found[-1:]
        named = {f"y{number}": y for number, y in enumerate(found)}
        answer = {"seconds": seconds, "controls": controls, "done": True}
        if "layout" in request:
            reads = [chain.given.steps[number].reads[0] for number in range(first, last)]
            answer["layouts"] = [chain.words[value] for value in reads]
        yield answer, named

    def whole(self, request, arrays):
        chain = self._call(request, arrays)
        word = request.get("layout", layout.CONTIGUOUS)
        given = chain.inputs(arrays)
        y, seconds, why = chain.program_output(given, request.get("times", 1), word)
        yield {"seconds": seconds, "why": why, "done": True}, {} if y is None else {"y": y}

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
        if w is None and "base" in request:
            w = compare.constant_weights(spec, request["base"])
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
            self.operators[key] = self._made(spec)
        self.operators.move_to_end(key)
        if len(self.operators) > OPERATORS:
            self.operators.popitem(last=False)
        return self.operators[key]

    def _layer_operator(self, spec):
        """One of a layer's own where it holds the weights: layers alike would take turns in it."""
        found = self._operator(spec)
        return self._made(spec) if found.constant_weights else found

    def _made(self, spec):
        return rewritten.spec_operator(self._started(), spec)


REQUESTS = {
    "start": Worker.start,
    "load": Worker.load,
    "unload": Worker.unload,
    "run": Worker.run,
    "time": Worker.time,
    "kernels": Worker.kernels,
    "sweep": Worker.sweep,
    "network": Worker.network,
    "through": Worker.through,
    "whole": Worker.whole,
    "masks": Worker.masks,
    "stop": Worker.stop,
}


def serve(worker, source, sink):
    """Answers requests from a binary stream on another, until ``stop`` or the end: exit status."""
    while True:
        try:
            request, arrays = protocol.receive(source)
        except protocol.Closed:
            return 0
        except protocol.ProtocolError as error:
            protocol.send(sink, {"error": "protocol", "message": str(error), "done": True})
            return 2
        for header, found in worker.handle(request, arrays):
            protocol.send(sink, header, found)
        if request.get("do") == "stop":
            return 0


def _leave_with_parent():
    """Ends this process soon after stdin has been closed, even from within a library's call."""
    poll = select.poll()
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
