"""What a board does at its first boot: users, networks, keys, cloud-init. Pure where it decides."""
