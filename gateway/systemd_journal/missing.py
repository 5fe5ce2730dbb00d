"""Find the entries that are gone unread, from the sequence numbers between the files that exist.

| journald | sequence numbers, always above the file's last | id of a new file |
|---|---|---|
| 252 | one counter for all files, from 0 at each start | as before; a new one after a power loss |
| 254 and later | one counter for all files of a boot | the boot's, which a file without entries takes, too |

Missing numbers between two files of a chain are lost, or in files of other chains. A doubt is a loss of unknown size.

| claim | proof |
|---|---|
| nothing is missing after a position | other chains used all, and it is one boot of 254, or the file read last exists |
| the count after a position | no number may be another boot's; journald writes the chain; others have all files |
| nothing was before a new chain's file | it begins the id, goes on from another, or begins with copies of read ones |
| the same | other files of the id have all numbers, as entries of the file's first boot |
| the same, of several boots | each number is there once, and the boots share a file; none began below the numbers |
| nothing was after a chain's last file | a file of another id goes on from its number |
| a file goes on from another id | one of that id ends with the number before, and 254 made the file: its numbers rise |

Each boot, and each start of 252, may use the numbers of the one before again. A power loss ends all chains of 252.

| journald deletes first (journal-vacuum.c) | of |
|---|---|
| the file with the least first number | files with one id in their names |
| the file with the oldest time, by a clock that may go back | others, and files set aside after a power loss |

A chain whose files come and go between two scans leaves no trace. No file shows that numbers belonged to entries in
/run that journald copied to /var before they were read: where they are more than the file before had, they are a doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from gateway.systemd_journal.chain import Chain
from gateway.systemd_journal.directory import JournalFileInfo, Scan
from gateway.systemd_journal.file_format import Entry
from gateway.systemd_journal.lookups import entries_of, first_entry, is_between, is_local
from gateway.systemd_journal.positions import EntriesLost, Position


class MissingEntries:
    """The missing entries before a chain's next file, by the last scan and all chains' positions."""

    def __init__(self, chains: Mapping[str, Chain], *, is_first_start: bool, has_volatile: bool) -> None:
        """`chains` are the reader's, which it changes; at the first start nothing is missing."""
        self._chains = chains
        self.is_first_start = is_first_start
        self._has_volatile = has_volatile
        self.scan = Scan()

    def lost_before(self, chain: Chain, info: JournalFileInfo, before: Position | None) -> EntriesLost | None:
        """Return what is missing before a chain's next file, None for nothing."""
        position, head = chain.position, info.head_seqnum
        if position is None:
            return None if self._begins_here(chain, info) else self._lost_before_new(chain, info, before)
        others, entry = self._other_local_chains(chain), first_entry(info)
        is_one_boot = entry is not None and entry.boot_id == position.boot_id
        is_one_counter = is_one_boot and info.header.may_share_id
        is_kept = any(file.header.file_id == position.file_id for file in self.scan.chains.get(chain.name, ()))
        # other chains used the numbers up to the tail; once the counter starts again, this chain may use them, too
        first = max(position.tail_seqnum if is_one_counter or is_kept else 0, position.seqnum) + 1
        if head <= first:
            return None
        used_ever = self._count_in(others, first, head - 1, lambda _: True)
        used = self._count_in(others, first, head - 1, partial(is_between, position, entry))
        count = head - first - used
        may_be_used_twice = not is_one_counter and (used > 0 or position.tail_seqnum > position.seqnum)
        if count <= 0 and info.header.n_entries and (is_kept or not may_be_used_twice):
            return None
        # the last number before a file without entries is the chain's own, so others' numbers are of another boot
        is_known = (
            count > 0
            and used == used_ever
            and not may_be_used_twice
            and (self._is_active(chain) or not is_local(chain.kind))
            and self._all_visible(others, first)
            and not self._any_denied(chain)
            and (is_one_boot or not self._has_volatile)  # before a flush journald counts the entries in /run, too
        )
        return self.loss_of(
            chain, before, ("gap", chain.name, first, head - 1), first, head - 1, count if is_known else None
        )

    def _is_active(self, chain: Chain) -> bool:
        """Return whether journald writes the chain: a power loss would have ended it, and the others of its boot."""
        return any(not file.is_archived for file in self.scan.chains.get(chain.name, ()))

    def _lost_before_new(self, chain: Chain, info: JournalFileInfo, before: Position | None) -> EntriesLost | None:
        """Return what is missing before the first file that is seen of a chain, where it is not the chain's first."""
        head = info.head_seqnum
        siblings = self._siblings(chain)
        first = self._first_of_id(chain, siblings, head)
        if first is not None:
            is_reported = head <= first and not info.header.n_entries
            if is_reported or self._are_all_used(siblings, min(first, head), info):
                return None
        if first is None or first >= head:
            return self.loss_of(chain, before, ("unseen", chain.name, head), None, head - 1, None)
        # a file may have counted on from one with another id that is forgotten, so how many are missing is unknown
        return self.loss_of(chain, before, ("unseen", chain.name, first, head - 1), first, head - 1, None)

    def _are_all_used(self, siblings: list[Chain], first: int, info: JournalFileInfo) -> bool:
        """Return whether the numbers before a chain's first file are all in files of other chains, and none twice.

        The entry with the number before the first shows to which boot the counter belonged there.
        """
        entry, begin, last = first_entry(info), max(first - 1, 1), info.head_seqnum - 1
        if entry is None:  # the last number before a file without entries is the chain's own
            return False
        counts = [
            Counter(each.boot_id for each in entries_of(file, begin, last))
            for file in self._files_with(siblings, begin, last)
        ]
        if sum(boots[entry.boot_id] for boots in counts) > last - begin:
            return True  # a boot uses each number once
        shared = {boot for boots in counts if entry.boot_id in boots for boot in boots}
        return (
            sum(boots.total() for boots in counts) > last - begin
            and all(shared.issuperset(boots) for boots in counts)
            and (begin == 1 or all(self._is_boots_first_above(each, entry.boot_id, begin) for each in siblings))
        )

    def _is_boots_first_above(self, chain: Chain, boot_id: str, number: int) -> bool:
        """Return whether the chain shows that the boot began to count above a number, as far as its entries tell."""
        files = self.scan.chains.get(chain.name)
        if not files:
            return False
        entry = first_entry(files[0])
        if not files[0].is_first and (entry is None or entry.boot_id == boot_id):
            return False  # its entries before may be the boot's
        earlier = (each for file in files if file.head_seqnum <= number for each in entries_of(file, 1, number))
        return all(each.boot_id != boot_id for each in earlier)

    def _begins_here(self, chain: Chain, info: JournalFileInfo) -> bool:
        """Return whether nothing of the chain was before the file, or nothing that the gateway has to read."""
        is_first = self.is_first_start or info.is_first
        return is_first or self._continues(chain, info) or self._begins_with_copies(chain, info)

    def _begins_with_copies(self, chain: Chain, info: JournalFileInfo) -> bool:
        """Return whether a file begins with copies of entries read in /run, so that those before were copies, too."""
        read = [each.position for each in self._siblings(chain) if each.is_volatile and each.position is not None]
        entry = first_entry(info) if read else None
        return entry is not None and any(
            entry.boot_id == position.boot_id and entry.monotonic_us <= position.monotonic_us for position in read
        )

    def tail_before(self, chain: Chain, info: JournalFileInfo) -> int:
        """Return the number up to which all entries with a new chain's id are read or reported."""
        last = info.head_seqnum - 1
        if self._begins_here(chain, info):
            return min(last, self._tail_of_id(chain, last), self._tail_before_unread(chain, last))
        first = self._first_of_id(chain, self._siblings(chain), info.head_seqnum)
        return last if first is None else min(last, first - 1)

    def raise_tails(self) -> None:
        """Note that no sequence number is missing up to the highest, where all open files are read to their ends."""
        highest: dict[tuple[str, str], int] = {}
        pending = {
            chain.label
            for chain in self._chains.values()
            if chain.file is None and chain.later(self.scan.chains.get(chain.name, []))
        }
        open_chains = [
            (chain, chain.position)
            for chain in self._chains.values()
            if chain.position is not None
            and chain.file is not None
            and is_local(chain.kind)
            and chain.label not in pending
        ]
        for chain, position in open_chains:
            if chain.file is not None and position.count < chain.file.count:
                return
            key = (chain.label, position.boot_id)
            highest[key] = max(highest.get(key, 0), position.seqnum)
        for chain, position in open_chains:
            tail = highest[chain.label, position.boot_id]
            if tail > position.tail_seqnum:
                chain.position = replace(position, tail_seqnum=tail)
                chain.tail_moved = True

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
        firsts = [found[0] for each in siblings if (found := self.scan.chains.get(each.name))]
        least = min(firsts, key=lambda file: (file.head_seqnum, not file.is_first), default=None)
        # where the chain's own file is the oldest, entries of its before that may be older still
        return least.head_seqnum if least is not None and least.is_first and least.head_seqnum < head else None

    def _tail_of_id(self, chain: Chain, default: int) -> int:
        """Return the number up to which all entries with the chain's id are read or reported."""
        positions = (each.position for each in self._siblings(chain))
        return max((position.tail_seqnum for position in positions if position is not None), default=default)

    def _tail_before_unread(self, chain: Chain, default: int) -> int:
        """Return the number before the first entry of the chains with the same id that have no position yet.

        Their files may be deleted before a position is saved, and then only the numbers show that they existed.
        """
        files = {each: self.scan.chains.get(each.name, []) for each in self._siblings(chain) if each.position is None}
        heads = [
            found[0].head_seqnum if self._begins_here(each, found[0]) else 1 for each, found in files.items() if found
        ]
        return min(heads, default=default + 1) - 1

    def _continues(self, chain: Chain, info: JournalFileInfo) -> bool:
        """Return whether journald gave the kind's files another id before this file, and counted on."""
        if not info.header.may_share_id or not is_local(chain.kind):
            return False
        return any(info.head_seqnum - 1 in self._ends_of(each) for each in self._of_place(chain))

    def is_superseded(self, chain: Chain) -> bool:
        """Return whether journald writes another chain of the kind, in /run before a flush, and this one no more."""
        others = (each for each in self._chains.values() if each.machine == chain.machine and each.kind == chain.kind)
        return (
            is_local(chain.kind)
            and not chain.is_volatile
            and not self._is_active(chain)
            and any(self._is_active(each) for each in others if each is not chain)
        )

    def is_continued(self, chain: Chain) -> bool:
        """Return whether another chain's file goes on from the number that was read last."""
        position = chain.position
        return position is not None and any(
            info.header.may_share_id and info.head_seqnum == position.seqnum + 1
            for each in self._of_place(chain)
            for info in self.scan.chains.get(each.name, ())
        )

    def _of_place(self, chain: Chain) -> list[Chain]:
        """Return the other chains of the same kind in the same directory."""
        return [each for each in self._chains.values() if each is not chain and each.place == chain.place]

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

    def loss_of(
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

    def _count_in(self, chains: list[Chain], first: int, last: int, is_counted: Callable[[Entry], bool]) -> int:
        """Count the entries with these sequence numbers in other chains for which `is_counted` holds."""
        files = self._files_with(chains, first, last)
        return sum(is_counted(entry) for file in files for entry in entries_of(file, first, last))

    def _files_with(self, chains: list[Chain], first: int, last: int) -> list[JournalFileInfo]:
        """Return the files that may hold entries with these sequence numbers."""
        return [
            file
            for each in chains
            for file in self.scan.chains.get(each.name, ())
            if file.head_seqnum <= last and file.header.tail_seqnum >= first
        ]
