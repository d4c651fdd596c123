"""What operations compute: labels and movement."""
