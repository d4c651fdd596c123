"""Every backend: exact on integers, orders replayed, and the lines of a script as they ran."""
