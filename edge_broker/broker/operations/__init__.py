"""What several handlers do, as functions of the broker."""
