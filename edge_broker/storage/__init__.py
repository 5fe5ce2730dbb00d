"""Segments, indexes, producer state and topics on disk: synchronous, without threads or clocks."""
