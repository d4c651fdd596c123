"""Two runs of any program, operation by operation: recorded, aligned, compared.

A recorder watches a library, :mod:`probe.recording.contract` says how; what an operation means,
:mod:`probe.semantics`, says which elements of two runs must agree,
:mod:`probe.semantics.labels`; :mod:`probe.recording.difference` finds the first operation whose
outputs differ though its inputs agree.
"""

RECORDERS = {
    "torch": "probe.recorders.torch",
    "tensorflow": "probe.recorders.tensorflow",
    "keras": "probe.recorders.tensorflow",
    "jax": "probe.recorders.jax",
    "onnxruntime": "probe.recorders.onnxruntime",
    "litert": "probe.recorders.litert",
    "opencv": "probe.recorders.opencv",
}
"""The file of each library's recorder: imported when it is first needed."""
