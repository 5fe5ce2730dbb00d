"""Models the link to the target by acknowledgements, and how to fill it. Pure."""
