"""The link to the target as acknowledgements show it, and how it is filled. Pure."""
