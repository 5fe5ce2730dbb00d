"""edge_broker."""
