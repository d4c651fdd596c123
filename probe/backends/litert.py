"""LiteRT's interpreter on a model of one operator, built here: weights are constants by nature.

``conv1d`` is the CONV_2D with height 1 that converters make of it. What CONV_2D can't pad itself
(anything but TensorFlow's SAME and VALID) goes through PAD first, as they write it. The models are
in ``litert_model`` and ``litert_pooling``, those of whole networks in ``litert_chain``; new weights
are copied into a finished model's bytes.
"""

import numpy as np

from probe.backends import litert_chain, litert_model, pooling
from probe.backends._old import WithChain
from probe.backends.contract import Key, Operator, Unsupported
from probe.backends.litert_pooling import LiteRTPool

KEYS = {
    "xnnpack": Key(("0", "1"), "1", "the XNNPACK delegate; 0: LiteRT's built-in kernels"),
    "threads": Key(None, "1", "threads of the interpreter"),
}


class LiteRT(WithChain):
    """ai_edge_litert's Interpreter, one process a target."""

    name = "litert"
    distributions = ("ai-edge-litert",)
    module = "ai_edge_litert"
    keys = KEYS
    doc = "a .tflite model of one operator, or of a whole network; XNNPACK"
    suggestions = (",xnnpack=0", ",threads=2", ",xnnpack=0,threads=2")

    def start(self, switches, device):
        from importlib import metadata

        from ai_edge_litert import interpreter, schema_py_generated

        self.schema, self.interpreter = schema_py_generated, interpreter
        resolvers = interpreter.OpResolverType
        built_in = switches.get("xnnpack") == "0"
        self.options = {
            "num_threads": int(switches["threads"]) if "threads" in switches else None,
            "experimental_op_resolver_type": (
                resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES if built_in else resolvers.AUTO
            ),
        }
        return {
            "library": "litert",
            "library_version": metadata.version(self.distributions[0]),
            "numpy_version": np.__version__,
            "devices": [device],
            "threads": int(switches.get("threads", 1)),
        }

    def operator(self, spec):
        if pooling.kind(spec):
            return LiteRTPool(self.schema, self._running, spec)
        return Convolution(self, spec)

    def chain(self, specs, operands):
        return litert_chain.Chain(self.schema, self._running, specs, operands)

    def _running(self, content):
        return running(self.loaded(content))

    def loaded(self, content):
        """An interpreter of a model's bytes. Raises Unsupported where LiteRT refuses it."""
        try:
            made = self.interpreter.Interpreter(model_content=content, **self.options)
            made.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise Unsupported("LiteRT refuses: " + said(error)) from None
        return made

    def kernels(self, spec, shapes):
        """The operators that the interpreter runs, each with who runs it."""
        if pooling.kind(spec):
            return {}
        operator = self.operator(spec)
        x, w = (np.zeros(shapes[name], spec["dtype"]) for name in "xw")
        made = operator.interpreter(operator.input(x).shape, operator.weights(w), None)
        return {"interpreter": runners(made._get_ops_details())}


def runners(details):
    """Of the interpreter's list of operators: ``CONV_2D by XNNPACK``, ``PAD built in``, in order.

    Operators that a delegate took stay in the list; the delegate itself stands behind them.
    """
    taken = [one for one in details if one["op_name"] == "DELEGATE"]
    read = {int(tensor) for one in taken for tensor in one["inputs"]}
    written = {int(tensor) for one in taken for tensor in one["outputs"]}
    names, last = [], False
    for one in [one for one in details if one["op_name"] != "DELEGATE"][::-1]:
        output = int(one["outputs"][0])
        last = output in written or (last and output not in read)
        names.append(one["op_name"] + (" by XNNPACK" if last else " built in"))
    return names[::-1]


class Convolution(Operator):
    """One convolution or product: a model for each shape, an interpreter for it and the weights."""

    constant_weights = True

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        litert_model.supported(spec)
        self.backend = backend
        self.models = {}
        self.call = self._interpreting()

    def _interpreting(self):
        """A call that keeps the interpreter of its last shape and weights."""
        kept_w = kept_b = shape = run = None

        def call(x, w, b):
            nonlocal kept_w, kept_b, shape, run
            if w is not kept_w or b is not kept_b or x.shape != shape:
                run = None  # where this is refused, the next call is not answered by the last model
                kept_w, kept_b, shape = w, b, x.shape
            if run is None:
                run = self._runner(x.shape, w, b)
            return run(x)

        return call

    def interpreter(self, shape, w, b):
        """An interpreter for inputs of this shape, as ``input`` gives them. Raises Unsupported."""
        if shape not in self.models:
            self.models = {shape: litert_model.Model(self.backend.schema, self.spec, shape)}
        return self.backend.loaded(self.models[shape].content(w, b))

    def _runner(self, shape, w, b):
        """f(x) -> y for inputs of this shape, with these weights and bias."""
        return running(self.interpreter(shape, w, b))

    def input(self, x):
        return np.array(x[:, None] if litert_model.flat(self.spec) else x, order="C")

    def weights(self, w):
        return litert_model.weights(self.spec, w)

    def bias(self, b):
        return None if b is None else b.copy()

    def output(self, y):
        return y[:, 0] if litert_model.flat(self.spec) else y


def running(made):
    """f(x) -> y of an interpreter."""
    source = made.get_input_details()[0]["index"]
    sink = made.get_output_details()[0]["index"]

    def run(x):
        try:
            made.set_tensor(source, x)
            made.invoke()
            return made.get_tensor(sink)
        except (RuntimeError, ValueError) as error:
            raise Unsupported("LiteRT refuses: " + said(error)) from None

    return run


def said(error):
    """The first line of what LiteRT says, at most 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
