"""Libraries watched: of each a recorder (:mod:`probe.record.contract`) and a table, which says
what each of its operations computes.

PyTorch: ``torch``, by dispatch; ``torch_calls``, a call run alone and written, with the table;
``torch_values``, which value a tensor is, and what has no public interface. TensorFlow:
``tensorflow``, functions node by node, and model files; ``tensorflow_values``, operations by their
schema; ``tensorflow_table``. JAX: ``jax``, by a trace, with the table; ``jax_programs``, jaxprs.
NumPy: ``ndarray``, with its table. ``graphs`` walks the graphs of all libraries, and records model
files: ``onnxruntime`` with ``onnx_file``, which has the table, ``litert`` with its own, and
``opencv``.
"""
