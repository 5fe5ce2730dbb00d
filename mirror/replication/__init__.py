"""The loops that read, resolve gaps, commit positions and sync topic configs."""
