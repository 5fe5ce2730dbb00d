"""Records of losses and of refused records. Pure."""
