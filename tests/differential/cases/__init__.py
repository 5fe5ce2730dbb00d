"""The programs, by what they are about; importing this package registers them."""

from tests.differential.cases import configs, frames, groups, metadata, records, topics

__all__ = ["configs", "frames", "groups", "metadata", "records", "topics"]
