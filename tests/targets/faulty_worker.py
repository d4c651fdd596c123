"""A worker whose ``reference`` does, at given lengths, what libraries do when they fail.

``faulty_worker.py '{"7": "SIGSEGV"}' LOG``: a fault by input length; every length that was run is
appended to the file LOG, and the first line is the process's number.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from probe.targets import backends, child
from probe.targets.backends.contract import Unsupported
from probe.targets.backends.reference import Reference

FAULTS = json.loads(sys.argv[1])
LOG = sys.argv[2]


def note(text):
    with open(LOG, "a") as stream:
        stream.write(f"{text}\n")


def throw(error):
    raise error


def lie(change):
    """From now on what is sent is something else: ``change(header, arrays)``."""
    plain = child.send
    child.send = lambda sink, header, arrays=None: plain(sink, *change(header, arrays or {}))


def lies(header, arrays):
    return header, {n: a + 1000 if n in ("at", "differing") else a for n, a in arrays.items()}


def lacks(header, arrays):
    return dict(header), {n: a for n, a in arrays.items() if n not in ("y", "compared")}


def uneven(header, arrays):
    return header, {n: a[:-1] if n == "compared" else a for n, a in arrays.items()}


def exhaust():
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    kept = []
    while True:
        kept.append(bytearray(1 << 26))


def misbehave(fault):
    if fault.startswith("SIG"):
        print("the library's last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), getattr(signal, fault))
        time.sleep(60)
    if fault.startswith("once ") and not Path(LOG + ".once").exists():
        Path(LOG + ".once").touch()
        misbehave(fault.removeprefix("once "))
    actions = {
        "hang": lambda: time.sleep(600),
        "slow": lambda: time.sleep(0.03),
        "exit": lambda: os._exit(3),
        "print": lambda: print("a library that talks"),
        "write": lambda: os.write(1, b"\x93probe1\nout of C") and None,
        "late": lambda: time.sleep(1.0),
        "lies": lambda: lie(lies),
        "lacks": lambda: lie(lacks),
        "uneven": lambda: lie(uneven),
        "facts": lambda: lie(lambda header, arrays: (dict(header, facts=7), arrays)),
        "unnamed": lambda: lie(lambda header, arrays: ({"done": True}, {})),
        "exhaust": exhaust,
        "import": lambda: throw(ImportError("libcudart.so.13: no such file")),
        "garbage": lambda: setattr(child, "MAGIC", b"GARBAGE!"),
        "error": lambda: [][1],
        "memory": lambda: throw(MemoryError("no room")),
        "unsupported": lambda: throw(Unsupported("not this one")),
    }
    actions.get(fault, lambda: None)()


class Faulty(Reference):
    def start(self, switches, device):
        misbehave(FAULTS.get("start", ""))
        return super().start(switches, device)

    def operator(self, spec):
        misbehave(FAULTS.get("operator", ""))
        operator = super().operator(spec)
        plain_input, plain_call, length = operator.input, operator.call, []

        def watched_input(x):
            length[:] = [x.shape[-2]]
            return plain_input(x)

        def faulty_call(x, w, b):
            note(length[0])
            misbehave(FAULTS.get(str(length[0]), FAULTS.get("any", "")))
            return plain_call(x, w, b)

        operator.input, operator.call = watched_input, faulty_call
        return operator


if __name__ == "__main__":
    note(f"pid {os.getpid()}")
    backends.loaded = lambda *place: Faulty
    child.main()
