"""Any program of a library, recorded operation by operation.

Read ``contract`` (what a recorder is asked, and the two runs of a question), then ``recording``
(``record_run`` watches a program once: a ``Run`` says what was computed from what), ``subject`` and
``inputs`` (what is run, on what), ``store`` (bits of whatever a run may return; its arrays by
digest). ``recorders`` has a file for each library that is watched and its table of sums.
"""

# The file of each library's recorder: imported when it is first needed.
RECORDERS = {
    "torch": "probe.record.recorders.torch",
    "tensorflow": "probe.record.recorders.tensorflow",
    "keras": "probe.record.recorders.tensorflow",
    "jax": "probe.record.recorders.jax",
    "onnxruntime": "probe.record.recorders.onnxruntime",
    "litert": "probe.record.recorders.litert",
    "opencv": "probe.record.recorders.opencv",
}
