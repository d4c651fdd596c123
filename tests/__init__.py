"""Tests in folders by purpose, along the flow of ``probe.ROOMS``."""
