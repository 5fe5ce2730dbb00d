"""Record batches and their codecs."""
