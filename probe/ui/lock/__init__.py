"""Bits that were accepted, kept in ``bits.lock``, checked in tests and CI, and why they changed.

``conditions`` says what decides bits here (library releases, processor, BLAS core, threads,
flags), ``checks`` reads and writes the lock, compares and reports, ``plugin`` is pytest's part,
``runs`` runs checks that are no tests, and any check again under an entry's conditions until its
bits return. Nothing is imported here: pytest loads the plugin at each start.
"""
