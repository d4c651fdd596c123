"""Shows to people what the commands found; every function returns something rich prints.

``cases`` shows what outputs read, how they are added, why two runs differ, and what was reduced;
``sweeps`` what sweeps and bisections found, ``models`` two runs of a model, padding and remedies,
``here`` what is here, and what stores hold. They import rich, so commands import them as they
print, and never for ``--json``.
"""
