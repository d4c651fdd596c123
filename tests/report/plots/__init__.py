"""Pictures of answers, and trees to take away."""
