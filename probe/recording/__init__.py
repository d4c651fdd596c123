"""Two runs of any program, operation by operation: recorded, matched, compared, explained.

A recorder watches a library, :mod:`probe.recording.contract` says how; what an operation computes,
:mod:`probe.semantics`, says which elements of two runs must agree.

What a run was: ``recording`` (``recorded`` watches it once: a ``Run`` says what was computed from
what), ``store`` (its arrays by digest), ``folder`` and ``spelling`` (the same on disk), ``apart``
(in another process). Only classes of ``probe.semantics`` have a name in a folder.

What two runs have to agree in: ``matching`` (by what is computed), ``difference`` (regions between
matched values, and their verdicts), ``judging`` (one operation: by order, by place, by bits),
``related`` (is it one model, on the same inputs; what only is close), ``outputs`` (by index),
``reasons`` (why nothing is known). ``walk`` asks them in this order.

Why an operation differs: ``source`` (a region, run by itself; what comes of it is a ``Cause``),
``sums`` (an operation as the sum that the engine is asked), ``adding`` (its orders, revealed),
``place`` (functions by place), ``steps`` (formulas, replayed step by step), ``enclosed`` (what
rounding can do).

A run on a target that is not the model's own library: ``ported`` (what of an operation a target's
session can be asked, from its meaning alone), ``replayed`` (the recording computed once more
there), ``end_to_end`` (all of it as one program of that library). What runs there is a case or a
step of ``probe.operation``; what these lack runs in the model's own library, and is unknown.
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
