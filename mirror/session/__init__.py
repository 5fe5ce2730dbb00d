"""Producer sessions at the target: fencing, epochs, transactions."""
