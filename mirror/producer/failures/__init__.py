"""Refusals and broken connections: what a response means, which batches wait, are split, or are isolated."""
