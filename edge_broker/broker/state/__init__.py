"""State that the broker owns: topics, groups, users and permissions, free disk space."""
