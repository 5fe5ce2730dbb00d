"""Handles refusals and broken connections: classifies responses, and lets batches wait, be split, or be isolated."""
