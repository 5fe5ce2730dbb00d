"""Log files: patterns, rotations, and reading."""
