"""The child: runs inside the target's interpreter, knows NumPy and one library, Python 3.6 up."""
