"""A log that follows a leader."""
