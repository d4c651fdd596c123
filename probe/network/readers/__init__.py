"""Models of other libraries read as a chain; each reader imports its library when it is asked.

``reading`` says which file has which reader, and where a chain ends; ``trust`` finds out what a
file would run, before its library sees it.
"""
