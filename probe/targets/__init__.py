"""Where a case is computed: libraries by name, their versions, devices and switches.

Read ``target`` (the text ``NAME[==VERSION][@DEVICE][,key=value]``), then ``launch``, which starts a
``worker`` in the target's own interpreter, where one of ``backends`` calls the library.
``runtimes`` and ``installation`` provide old releases and emulated processors, ``machine`` the
facts that may be published. ``trust`` finds out what a model's file would run. What ``--time``
ends: ``budget`` in this process, ``supervisor`` the process itself; ``progress`` tells how far it
is, ``unchanged`` puts back what was given.
"""
