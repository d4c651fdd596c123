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

from probe import backends
from probe.backends.contract import Unsupported
from probe.backends.reference import Reference
from probe.worker import child as worker
from probe.worker import protocol

FAULTS = json.loads(sys.argv[1])
LOG = sys.argv[2]


def note(text):
    with open(LOG, "a") as stream:
        stream.write(f"{text}\n")


def throw(error):
    raise error


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
        "garbage": lambda: setattr(protocol, "MAGIC", b"GARBAGE!"),
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
    sys.modules[__name__ + "_faulty"] = sys.modules[__name__]
    backends.BACKENDS["reference"] = __name__ + "_faulty:Faulty"
    worker.main()
