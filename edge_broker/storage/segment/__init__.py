"""One segment file, its index, summary and copies."""
