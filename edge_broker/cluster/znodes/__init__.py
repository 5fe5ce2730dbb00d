"""What ZooKeeper has of a cluster: formats, ownership, reads that are trusted."""
