"""Two runs of any program, operation by operation: recorded, aligned, compared.

A recorder watches a library, :mod:`probe.recording.contract` says how; what an operation means,
:mod:`probe.recording.meaning`, says which elements of two runs must agree,
:mod:`probe.recording.labels`; :mod:`probe.recording.difference` finds the first operation whose
outputs differ though its inputs agree.
"""

RECORDERS = {
    "torch": "probe.recording.torch",
    "tensorflow": "probe.recording.tensorflow",
    "keras": "probe.recording.tensorflow",
    "jax": "probe.recording.jax",
    "onnxruntime": "probe.recording.onnxruntime",
    "litert": "probe.recording.litert",
    "opencv": "probe.recording.opencv",
}
"""The file of each library's recorder: imported when it is first needed."""
