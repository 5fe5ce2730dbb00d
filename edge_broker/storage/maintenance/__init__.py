"""Background work on all logs."""
