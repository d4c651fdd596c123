"""Any program of a library, recorded operation by operation. In which order to read it:

1. ``contract``: an ``Operation`` with the values that it reads and gives, and what a library's
   recorder has to do. 2. ``subject`` and ``inputs``: what is run (a function, a model, a file),
   on what. 3. ``recording``: ``record_run`` watches it once; the ``Run`` says what was computed
   from what. ``store`` has the bits. 4. A recorder for each library, the shortest first:
   ``ndarray`` (NumPy, by its protocol of arrays); ``torch`` (by dispatch) with ``torch_calls``;
   ``jax`` (by a trace) with ``jax_programs``; ``tensorflow`` (by callbacks, its
   functions node by node) with ``tensorflow_values``; and, of model files, by ``graphs``, which
   runs the nodes of any library's graph: ``onnxruntime`` with ``onnx_file``, ``litert``,
   ``opencv``. Each ends in its table: what an operation computes (:mod:`probe.order.semantics`).
"""

# The file of each library's recorder: imported when it is first needed.
RECORDERS = {
    "torch": "probe.record.torch",
    "tensorflow": "probe.record.tensorflow",
    "keras": "probe.record.tensorflow",
    "jax": "probe.record.jax",
    "onnxruntime": "probe.record.onnxruntime",
    "litert": "probe.record.litert",
    "opencv": "probe.record.opencv",
}
