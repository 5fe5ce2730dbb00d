"""State of a running mirror, as it is shown: metrics, health, and the `status` command."""
