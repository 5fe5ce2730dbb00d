"""The card: found, written, verified, with progress."""
