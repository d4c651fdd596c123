"""What several tests share; none of these files is a test."""
