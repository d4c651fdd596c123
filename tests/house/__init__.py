"""What holds for the checkout itself: imports, installing, what may be published."""
