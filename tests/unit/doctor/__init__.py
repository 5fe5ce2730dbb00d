"""The tools for data directories."""
