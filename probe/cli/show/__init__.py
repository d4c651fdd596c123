"""What the commands found, for people: every function returns something that rich prints.

``places`` writes sets of outputs and what they read; each other file shows what one
command found.
"""
