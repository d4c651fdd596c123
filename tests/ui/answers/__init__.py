"""The functions of ``probe``, and what they return."""
