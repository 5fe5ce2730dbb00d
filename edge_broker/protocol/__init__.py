"""Kafka's wire format: bytes to values and back. Pure: no sockets, clocks, files or chance."""
