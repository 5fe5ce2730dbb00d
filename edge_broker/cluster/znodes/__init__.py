"""The znodes of a cluster: formats, ownership, trusted reads."""
