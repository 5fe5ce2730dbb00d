"""What is removed from the front of a log, and what may be evicted."""
