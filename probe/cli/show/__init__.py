"""What the commands found, for people: every function returns something that rich prints.

``orders`` writes sets of outputs, what they read and how they are added; the others build on it.
"""
