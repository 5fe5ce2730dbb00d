"""Loading, storing and expiring groups and their offsets."""
