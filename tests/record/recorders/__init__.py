"""Recorders and tables of libraries: what a run is seen to do, and what each row says."""
