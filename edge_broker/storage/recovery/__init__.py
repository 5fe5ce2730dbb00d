"""Opens a partition after any stop."""
