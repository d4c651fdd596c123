"""Libraries watched: of each a recorder (:mod:`probe.record.contract`) and a table, which says
what each of its operations computes.

PyTorch: ``torch``, by dispatch; ``torch_calls``, a call run alone and written; ``torch_values``,
which value a tensor is, and what has no public interface; ``torch_table``. TensorFlow:
``tensorflow``, functions node by node, and model files; ``tensorflow_values``, operations by their
schema; ``tensorflow_table``. JAX: ``jax``, by a trace; ``jax_programs``, jaxprs; ``jax_table``.
NumPy: ``ndarray``, with its table. ``graphs`` walks the graphs of all libraries, and records model
files: ``onnxruntime`` with ``onnx_file`` and ``onnx_table``, ``litert`` and ``opencv`` with a table
each.
"""
