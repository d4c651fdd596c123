"""Where a case is computed: libraries by name, their versions, devices and switches.

Read ``target`` (the text ``NAME[==VERSION][@DEVICE][,key=value]``), then ``launch``, which starts
``child`` in the target's own interpreter, where one of ``backends`` calls the library; ``compare``
runs sweeps there. Which interpreter that is, perhaps of an old release or an emulated processor,
``environments`` finds, and ``installation`` provides. ``machine`` has the facts that may be
published. ``progress`` tells how far work is, ``budget`` ends it at ``--time`` and Ctrl-C. For
models of users: ``trust`` finds out what a file would run, ``unchanged`` puts back what was given.
"""
