"""What leaves the house: a revealed run as a file that replays its bits with NumPy alone."""
