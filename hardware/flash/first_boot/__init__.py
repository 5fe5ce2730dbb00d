"""Settings of a board's first boot: users, networks, keys, cloud-init. Modules that decide are pure."""
