"""The prefix-stable operators, and models made of them."""
