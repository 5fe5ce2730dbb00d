"""The producer, and the topics that it needs."""
