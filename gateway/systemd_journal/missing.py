"""Find the entries that are gone unread, from the sequence numbers between the files that exist.

| journald | sequence numbers, always above the file's last | id of a new file |
|---|---|---|
| 252 | one counter for all files, from 0 at each start | as before; a new one after a power loss |
| 254 and later | one counter for all files of a boot | the boot's, which a file without entries takes, too |

Missing numbers between two files of a chain are lost, or in files of other chains. The count is unknown where those
other files are not all there, or a boot may have moved the counter. A chain that came and went unseen shows nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.systemd_journal.chain import Chain
from gateway.systemd_journal.directory import JournalFileInfo, Scan
from gateway.systemd_journal.lookups import count_between, first_entry, is_local
from gateway.systemd_journal.positions import EntriesLost, Position


class MissingEntries:
    """What is missing before a chain's next file, as the last scan and all chains' positions show it."""

    def __init__(self, chains: Mapping[str, Chain], *, is_first_start: bool, has_volatile: bool) -> None:
        """`chains` are the reader's, which it changes; at the first start nothing is missing."""
        self._chains = chains
        self.is_first_start = is_first_start
        self._has_volatile = has_volatile
        self.scan = Scan()

    def lost_before(self, chain: Chain, info: JournalFileInfo, before: Position) -> EntriesLost | None:
        """Return what is missing before a chain's next file, None for nothing."""
        position, head = chain.position, info.head_seqnum
        if position is None:
            return None if self._begins_here(chain, info) else self._lost_before_new(chain, info, before)
        first = max(position.tail_seqnum, position.seqnum) + 1
        if head <= first:
            return None
        others = self._other_local_chains(chain)
        count = head - first - self._count_in(others, first, head - 1, position, info)
        if count <= 0 and info.header.n_entries:
            return None
        # the last number before a file without entries is the chain's own, so others' numbers are of another boot
        is_known = count > 0 and self._all_visible(others, first) and not self._any_denied(chain)
        if others:  # after a boot journald may count on from another kind's highest number
            is_known = is_known and count == head - first - self._count_in(others, first, head - 1, None, info)
        if self._has_volatile and is_known:  # before a flush journald counts the entries in /run, too
            entry = first_entry(info)
            is_known = entry is not None and entry.boot_id == position.boot_id
        return self.lost(
            chain, before, ("gap", chain.name, first, head - 1), first, head - 1, count if is_known else None
        )

    def _lost_before_new(self, chain: Chain, info: JournalFileInfo, before: Position) -> EntriesLost | None:
        """Return what is missing before the first file that is seen of a chain, where it is not the chain's first."""
        head = info.head_seqnum
        siblings = self._siblings(chain)
        first = self._first_of_id(chain, siblings, head)
        if first is None:
            return self.lost(chain, before, ("unseen", chain.name, head), None, head - 1, None)
        if head - first <= self._count_in(siblings, first, head - 1, None, info):
            return None
        # a file may have counted on from one with another id that is forgotten, so how many are missing is unknown
        return self.lost(chain, before, ("unseen", chain.name, first, head - 1), first, head - 1, None)

    def _begins_here(self, chain: Chain, info: JournalFileInfo) -> bool:
        """Return whether nothing of the chain was before the file, or nothing that the gateway has to read."""
        return self.is_first_start or info.is_first or self._continues(chain, info.head_seqnum)

    def tail_before(self, chain: Chain, info: JournalFileInfo) -> int:
        """Return up to which sequence number a new chain's entries and those with the same id are read or reported."""
        last = info.head_seqnum - 1
        if self._begins_here(chain, info):
            return min(last, self._tail_of_id(chain, last), self._tail_before_unread(chain, last))
        first = self._first_of_id(chain, self._siblings(chain), info.head_seqnum)
        return last if first is None else min(last, first - 1)

    def _siblings(self, chain: Chain) -> list[Chain]:
        """Return the machine's other chains with the same sequence number id: journald 254 counts them together."""
        suffix = "|" + chain.name.rpartition("|")[2]
        return [
            each
            for each in self._chains.values()
            if each is not chain and each.machine == chain.machine and each.name.endswith(suffix)
        ]

    def _first_of_id(self, chain: Chain, siblings: list[Chain], head: int) -> int | None:
        """Return the first sequence number of an id that is neither read nor reported yet, None where it is unknown."""
        tail = self._tail_of_id(chain, -1)
        if tail >= 0:
            return tail + 1
        files = {each: self.scan.chains.get(each.name, []) for each in siblings}
        firsts = {each: found[0] for each, found in files.items() if found}
        least = min((file.head_seqnum for file in firsts.values()), default=head)
        for each, file in firsts.items():
            if file.head_seqnum == least and (file.is_first or self._continues(each, least)):
                return least
        return None

    def _tail_of_id(self, chain: Chain, default: int) -> int:
        """Return up to which sequence number the entries with the chain's id are read or reported."""
        positions = (each.position for each in self._siblings(chain))
        return max((position.tail_seqnum for position in positions if position is not None), default=default)

    def _tail_before_unread(self, chain: Chain, default: int) -> int:
        """Return up to which sequence number no chain with the same id has entries of which no position tells yet.

        Such a chain's files may be deleted before its first position is saved, and then only the numbers tell of them.
        """
        files = {each: self.scan.chains.get(each.name, []) for each in self._siblings(chain) if each.position is None}
        heads = [
            found[0].head_seqnum if self._begins_here(each, found[0]) else 1 for each, found in files.items() if found
        ]
        return min(heads, default=default + 1) - 1

    def _continues(self, chain: Chain, head: int) -> bool:
        """Return whether journald gave the kind's files another id and counted on."""
        others = (each for each in self._chains.values() if each is not chain and each.place == chain.place)
        return any(head - 1 in self._ends_of(each) for each in others)

    def _ends_of(self, chain: Chain) -> set[int]:
        """Return the sequence numbers with which files of the chain end that journald does not append to."""
        files, position = self.scan.chains.get(chain.name, []), chain.position
        ends = {file.header.tail_seqnum for file in files if file.is_archived or not file.header.n_entries}
        active = {file.header.file_id for file in files if not file.is_archived}
        if position is not None and (position.count or position.is_ended) and position.file_id not in active:
            ends.add(position.seqnum)
        return ends

    def _other_local_chains(self, chain: Chain) -> list[Chain]:
        """Return the chains whose entries journald counts together with this one's."""
        if not is_local(chain.kind):
            return []
        return [
            each
            for each in self._chains.values()
            if each is not chain and each.label == chain.label and is_local(each.kind)
        ]

    def _all_visible(self, chains: list[Chain], first: int) -> bool:
        """Return whether all entries that the chains had from a sequence number on are still in files."""
        return all(
            each.position is not None and (files[0].is_first or files[0].head_seqnum <= first if files else False)
            for each, files in ((each, self.scan.chains.get(each.name, [])) for each in chains)
        )

    def _any_denied(self, chain: Chain) -> bool:
        return any(file.is_denied and file.label == chain.label for file in self.scan.unreadable)

    def lost(
        self,
        chain: Chain,
        after: Position | None,
        parts: tuple[object, ...],
        first: int | None,
        last: int | None,
        count: int | None,
    ) -> EntriesLost:
        """Return the loss of `count` entries, None for an unknown number; `parts` identify it."""
        if count is not None and after is not None and last is not None:
            after = replace(after, tail_seqnum=max(after.tail_seqnum, last))
        position = chain.position or after
        machine = "" if position is None else position.machine_id
        number = "an unknown number of" if count is None else str(count)
        place = f"{chain.kind} in {chain.label}" if chain.label else chain.kind
        among = "among " if first is not None and last is not None and count != last - first + 1 else ""
        span = "" if last is None else f", {among}sequence numbers {'?' if first is None else first} to {last}"
        of_machine = f" of machine {machine}" if machine else ""
        reason = f"the journal {place} lost {number} entries{of_machine} before they were read{span}"
        return EntriesLost(
            chain.name, after, parts, machine, first, last, count, f"{reason}: rotated, vacuumed or volatile"
        )

    def _count_in(
        self, chains: list[Chain], first: int, last: int, begin: Position | None, info: JournalFileInfo
    ) -> int:
        """Count the entries with these sequence numbers in other chains, written between a position and a file."""
        files = [
            file
            for each in chains
            for file in self.scan.chains.get(each.name, ())
            if file.head_seqnum <= last and file.header.tail_seqnum >= first
        ]
        end = None if begin is None else first_entry(info)
        return sum(count_between(file, first, last, begin, end) for file in files)
