"""The programs, by what they are about; importing this package registers them."""

from tests.differential.cases import frames, groups, metadata, records, topics

__all__ = ["frames", "groups", "metadata", "records", "topics"]
