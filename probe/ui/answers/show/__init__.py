"""What a terminal shows of a result; every function returns something that rich prints.

``cases`` shows what outputs read, how they are added, why two runs differ, and what was reduced;
``sweeps`` what sweeps and bisections found, ``models`` two runs of a model, padding and remedies,
``here`` what is here, and what stores hold. They import rich, so answers import them as they
are shown, and never for ``--json``.
"""
