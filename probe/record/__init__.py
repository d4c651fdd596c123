"""Two runs of any program, operation by operation: recorded, matched, compared, explained.

A recorder watches a library, ``contract`` says how. Which elements of two runs must agree is found
by :mod:`probe.diff`, which asks all this in order.

What a run was: ``recording`` (``record_run`` watches it once: a ``Run`` says what was computed from
what; several operations as one), ``store`` (bits of whatever a run may return; its arrays by
digest), ``folder`` (the same on disk), ``subject`` and ``inputs`` (what is run, on what),
``watched`` (does it repeat), ``repeated`` (other content, and what changes with it), ``apart`` (in
another process, on a target).

What two runs have to agree in: ``related`` (is it one model, on the same inputs, asked for the
same), ``difference`` (regions between matched values, their verdicts, and why nothing is known).

Why an operation differs: ``source`` (a region, run by itself; what comes of it is a ``Cause``),
``alone`` (one side's operation, and the orders of its sums, revealed), ``sums`` (an operation as
the sum that the engine is asked), ``place`` (functions by place), ``saturation`` (integers that are
cut off), ``enclosed`` (what rounding can do).
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
