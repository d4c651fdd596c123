"""What people use: the functions of ``probe``, the commands, and bits that tests accept.

``answers`` has the functions and what they return, ``cli`` the commands, which print it; ``lock``
keeps accepted bits in a project's tests and says why they changed.
"""
