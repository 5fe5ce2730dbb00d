"""What the broker owns: topics, groups, users and permissions, room on disk."""
