"""A user's own program: a model of a library, and the functions of a plan pasted beside it.

    pasted_plan.py LIBRARY MODEL FOLDER CONTENT...

FOLDER holds ``padded.py`` and ``plan.json``. Prints a JSON object a line, for every way in which
the library runs the model and every content length: how many outputs there are, how many of those
that ``complete`` gives differ in their bits from the fixed run's, and how many do with geometry's
least padding instead of the plan's (null where its outputs are elsewhere).
"""

import json
import sys

import numpy as np


def keras(path):
    import keras

    model = keras.models.load_model(path)
    channels = model.input_shape[-1]
    yield "call", channels, lambda x: np.asarray(model(x))
    yield "predict", channels, lambda x: model.predict(x, verbose=0)


def torch(path):
    import torch

    module = torch.load(path, weights_only=False).eval()

    def run(x):
        with torch.no_grad():
            y = module(x)
        return np.moveaxis(y.numpy(), 1, -1)

    first = next(one for one in module.modules() if hasattr(one, "in_channels"))
    of = first.in_channels
    yield "module", of, lambda x: run(torch.from_numpy(np.moveaxis(x, -1, 1).copy()))
    yield "turned", of, lambda x: run(torch.from_numpy(x.copy()).movedim(-1, 1))


def onnxruntime(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def run(x):
        (y,) = session.run(None, {given.name: np.moveaxis(x, -1, 1).copy()})
        return np.moveaxis(y, 1, -1)

    yield "session", given.shape[1], run


def apart(one, two):
    """How many elements have different bits."""
    assert one.shape == two.shape and one.dtype == two.dtype == np.float32
    bits = [np.ascontiguousarray(array).view(np.uint32) for array in (one, two)]
    return int((bits[0] != bits[1]).sum())


def main(library, path, folder, *contents):
    sys.path.insert(0, folder)
    import padded

    axis, plan = padded.AXIS, padded.PLAN
    rank = np.ndim(plan["constant"])

    def filled(x, length):
        around = [(0, 0)] * x.ndim
        around[axis] = 0, length - x.shape[axis]
        return np.pad(x, around, constant_values=plan["value"])

    for way, channels, run in globals()[library](path):
        shape = [1] * (rank - 1) + [channels]
        shape[axis] = 0
        nothing = run(filled(np.zeros(shape, np.float32), plan["fixed"]))
        for content in map(int, contents):
            shape[axis] = content
            x = np.random.default_rng(content).normal(size=shape).astype(np.float32)
            whole = run(filled(x, plan["fixed"]))
            made = padded.complete(run(padded.pad(x)), content, constant=nothing)
            stretch = padded._stretch(content)
            least = None
            if not stretch["offset"]:
                kept = slice(stretch["skipped"], stretch["kept"])
                short = run(filled(x, stretch["least"]))
                pair = [np.moveaxis(y, axis, 0)[kept] for y in (short, whole)]
                least = apart(*pair)
            print(
                json.dumps(
                    {
                        "way": way,
                        "content": content,
                        "padded": padded.padded_length(content),
                        "outputs": whole.size,
                        "kept": stretch["kept"] - stretch["skipped"],
                        "differing": apart(made, whole),
                        "tail": apart(padded.CONSTANT, nothing),
                        "least": least,
                    }
                )
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
