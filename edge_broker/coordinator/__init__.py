"""Consumer groups (classic protocol) and committed offsets as state machines.

Never comes in: sockets, clocks, chance, files, wire messages; time, ids and tokens are arguments.
Source: Kafka protocol (JoinGroup and its kin), KIP-345, KIP-394, KIP-559, KIP-814.
"""
