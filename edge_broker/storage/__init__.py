"""Segments, indexes, producer state and topics on disk: synchronous, no threads, no clock; what an ack means is decided here."""
