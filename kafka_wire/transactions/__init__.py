"""Producer ids, fencing and transactions."""
