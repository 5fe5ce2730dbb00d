"""Which topics are mirrored, under which names and with which configs. Pure."""
