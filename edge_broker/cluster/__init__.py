"""How brokers form a cluster: what they decide, as values; nothing here waits, sends or reads a clock.

DESIGN.md, "cluster", has the map of the files.
"""
