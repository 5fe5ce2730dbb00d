"""Runs handlers and their effects: worker jobs, group commit, fair scheduling."""
