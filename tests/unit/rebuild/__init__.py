"""The command `edge-broker cluster rebuild`."""
