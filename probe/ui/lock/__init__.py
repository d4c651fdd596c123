"""Bits that were accepted, kept in ``bits.lock``, checked in tests and CI, and why they changed.

``conditions`` says what decides bits here (library releases, processor, BLAS core, threads,
flags), ``checks`` reads and writes the lock, compares and reports, ``why`` runs a check again under
an entry's conditions until its bits return. ``plugin`` and ``fixture`` are
pytest's part, ``runs`` are checks without tests and their exit status.
Nothing is imported here: pytest loads the plugin at each start.
"""
