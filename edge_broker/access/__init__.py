"""`edge-broker user` and `edge-broker acl`: who may log in, and who may do what.

Both change a data directory, before its first start and while its broker runs.
"""
