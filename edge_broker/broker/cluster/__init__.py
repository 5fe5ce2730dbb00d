"""The cluster as handlers see it, and the loss ledger in a cluster."""
