"""Where networks change with their padding, and what keeps the bits."""
