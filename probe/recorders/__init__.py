"""Libraries watched: a recorder each, see :mod:`probe.recording.contract`, and its meanings."""
