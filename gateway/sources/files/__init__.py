"""Log files: which ones, their rotations, what is read of each."""
