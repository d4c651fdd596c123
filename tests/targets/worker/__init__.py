"""The child process: its answers, and the frames to and fro."""
