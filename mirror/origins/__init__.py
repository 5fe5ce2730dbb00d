"""Decides which topics and batches of the source are sent, by the state topics of other mirrors there."""
