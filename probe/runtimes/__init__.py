"""How other interpreters are provided: old releases, and processors that qemu stands in for.

``pins`` says what a release needs, ``packages`` finds a Python of that version and installs both,
``environments`` keeps the results in the user's cache, ``emulation`` and ``sysroot`` provide other
processors, and ``runtime`` says what command runs a target.
"""
