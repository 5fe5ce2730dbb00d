"""`edge-broker acl`: who may do what, changed in a data directory, before its first start and beside its broker."""
