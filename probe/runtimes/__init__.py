"""Provides other interpreters: old releases, and processors that qemu emulates.

``packages`` knows what a release needs, finds a Python of that version and installs both,
``environments`` keeps the results in the user's cache, ``sysroot`` provides an arm64 Python, and
``runtime`` says what command runs a target.
"""
