"""What the commands found, for people: every function returns something that rich prints.

``trees`` and ``places`` write summation trees and sets of outputs; each other file shows what one
command found.
"""
