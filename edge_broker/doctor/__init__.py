"""Tools for a data directory, stopped or under a running broker: list, dump, check, repair, account for offsets."""
