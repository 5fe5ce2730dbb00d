"""The programs, by what they are about; importing this package registers them."""

from tests.differential.cases import configs, frames, groups, metadata, quotas, records, topics

__all__ = ["configs", "frames", "groups", "metadata", "quotas", "records", "topics"]
