"""Shows to people what the commands found; every function returns something rich prints.

``orders`` writes sets of outputs, what they read and how they are added; the others build on it.
"""
