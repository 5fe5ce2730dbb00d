"""Sources, sinks, schemas and checkpoints of the streams."""
