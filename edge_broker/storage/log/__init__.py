"""The log of one partition: read, append, flush, roll."""
