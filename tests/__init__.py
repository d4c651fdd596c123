"""Tests in folders named as the rooms of ``probe.ROOMS``.

``tests/house`` tests the checkout itself, ``tests/experiments`` what stands in ``experiments``.
"""
