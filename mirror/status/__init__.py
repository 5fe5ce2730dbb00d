"""Reports the state of a running mirror: metrics, health, and the `status` command."""
