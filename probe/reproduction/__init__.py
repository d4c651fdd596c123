"""Writes the folder for a bug report, and revealed runs that replay with NumPy.

``folder.reproduce`` shrinks a finding, explains it, writes its script (``program``) and proves it
in fresh processes; ``folder.write`` writes the folder, ``proof.verify`` runs it again.
"""
