"""What one case has shown at two brokers, held against each other by a list of known differences.

Must never come in: what is known (known.py), what is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.differential.known import Known
from tests.differential.session import Asked
from tests.differential.trees import differences


class Judge:
    """Goes by one list, and remembers which of its entries were met by which cases."""

    def __init__(self, listed: Sequence[Known]) -> None:
        self.listed = tuple(listed)
        self.requests = 0
        self._cases: set[str] = set()
        self._met: set[Known] = set()

    def hold(self, case_id: str, ours: Sequence[Asked], kafka: Sequence[Asked]) -> None:
        """AssertionError with each difference that is not known."""
        self.hold_all(case_id, [(ours, kafka)])

    def hold_all(self, case_id: str, pairs: Iterable[tuple[Sequence[Asked], Sequence[Asked]]]) -> None:
        """The same of several roads of one case."""
        self._cases.add(case_id)
        found = [line for ours, kafka in pairs for line in self._judged(case_id, ours, kafka)]
        self._met.update(known for _, known in found if known is not None)
        new = [line for line, known in found if known is None]
        assert not new, "differences that known.py does not list:\n" + "\n".join(new)

    def _judged(
        self, case_id: str, ours: Sequence[Asked], kafka: Sequence[Asked]
    ) -> Iterator[tuple[str, Known | None]]:
        """Each difference as a line, and the entry that covers it."""
        self.requests += len(ours)
        listed = [known for known in self.listed if known.speaks_of(case_id)]
        for mine, theirs in zip(ours, kafka, strict=False):
            for found in differences(mine.answer, theirs.answer):
                known = next((known for known in listed if known.covers(mine.label, found.path)), None)
                yield f"{mine.label}: {found.path}: ours {found.ours!r}, Kafka {found.kafka!r}", known
        if len(ours) != len(kafka):
            known = next((known for known in listed if known.covers("requests", "")), None)
            yield f"requests: ours {len(ours)}, Kafka {len(kafka)}", known

    def mended(self, case_ids: Iterable[str]) -> list[str]:
        """The entries that no case has met, though all of these that they speak of have run."""
        every = list(case_ids)
        return [
            f"{known.why}: {known.cases}: {known.path}"
            for known in self.listed
            if known not in self._met and self._cases.issuperset(filter(known.speaks_of, every))
        ]
