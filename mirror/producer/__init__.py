"""Batches to the target: built, scheduled, sent, and resolved."""
