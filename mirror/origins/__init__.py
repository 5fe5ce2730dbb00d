"""Which topics and batches of the source are sent, by what other mirrors keep there."""
