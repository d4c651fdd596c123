"""Shows to people what the commands found; every function returns something rich prints.

``orders`` writes sets of outputs, what they read and how they are added; the others build on it.
``explanation`` shows why two runs differ, ``sweeps`` what sweeps and bisections found, ``networks``
padding and remedies, ``walks`` two runs of a model, ``reproductions`` what was reduced, ``stored``
what stores hold, ``facts`` what is here.
"""
