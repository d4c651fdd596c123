"""Tests in folders named as the rooms of ``probe.ROOMS``; root modules have theirs in this folder.

``tests/house`` tests the checkout itself, ``tests/experiments`` what stands in ``experiments``.
"""
