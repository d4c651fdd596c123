"""Provides other interpreters: old releases, and processors that qemu emulates.

``environments`` finds them in the user's cache and says what command runs a target; ``packages``
knows what a release needs, finds a Python of that version, or an arm64 one, and installs both.
"""
