"""The programs, by what they are about; importing this package registers them."""

from tests.differential.cases import configs, fetch_sessions, frames, groups, metadata, quotas, records, topics

__all__ = ["configs", "fetch_sessions", "frames", "groups", "metadata", "quotas", "records", "topics"]
