"""Values of an audit: digests of ranges, facts of a partition, what was selected. Pure."""
