"""What a running mirror shows: metrics, health, and the `status` command."""
