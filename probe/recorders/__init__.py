"""Libraries watched: of each a recorder (:mod:`probe.recording.contract`) and a table, which says
what each of its operations computes.

PyTorch: ``torch``, by dispatch; ``torch_calls``, a call run alone and written; ``torch_values``,
which value a tensor is; ``torch_private``, what has no public interface; ``torch_table``.
TensorFlow: ``tensorflow`` and model files; ``tensorflow_graphs``, functions node by node;
``tensorflow_values``, operations by their schema; ``tensorflow_table``. JAX: ``jax``, by a trace;
``jax_programs``, jaxprs; ``jax_table``. NumPy: ``ndarray``, with its table.
``interpreter`` walks the graphs of all libraries. Model files, whose nodes ``graphs`` records:
``onnxruntime`` with ``onnx_file`` and ``onnx_table``, ``litert`` and ``opencv`` with a table each.
"""
