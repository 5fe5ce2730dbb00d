"""PURE. Formats the result of `edge-mirror audit`: two tables, sentences for what differs, or JSON.

Does not contain: accounts (compare/account.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drupelet.quantities import is_or_are, quantity_text
from mirror.audit.compare.account import FAULTS, SOURCE_CLASSES, TARGET_CLASSES, Account, AuditResult
from mirror.audit.compare.differences import Difference
from mirror.audit.compare.matching import SIDES, Side
from mirror.audit.digest.partition_facts import Facts
from mirror.text_tables import table

CLASSES: dict[Side, tuple[str, ...]] = {"source": SOURCE_CLASSES, "target": TARGET_CLASSES}
SHOWN_MAX = 10

_SAID = {
    "lost": "{records} at source offset {source} is lost: the target does not have it",
    "changed": "{records} at source offset {source} is another at target offset {target}{parts}",
    "moved": "{records} at source offset {source} is at target offset {target}, out of order",
    "doubled": "{records} at target offset {target} is there twice",
    "unaccounted": "{records} at {side} offset {offset} is accounted for by nothing: no batch, no ledger record",
    "misplaced": "{records} at source offset {source} is at target offset {target}, and the map says otherwise",
    "unresolved": "{records} from source offset {source} and target offset {target} on differ somewhere; digests made "
    "with --each may tell where",
}


def tables(accounts: Sequence[Account]) -> str:
    """Return a table of each end, one line per partition; faults have columns if there are some."""
    return "\n\n".join(_table(side, accounts) for side in SIDES)


def _table(side: Side, accounts: Sequence[Account]) -> str:
    faults = [fault for fault in FAULTS if any(account.counts[side][fault] for account in accounts)]
    columns = [*CLASSES[side], *faults]
    head = ("TOPIC", "PARTITION", f"{side} END".upper(), *(name.replace("_", " ").upper() for name in columns))
    rows: list[tuple[str | int, ...]] = [
        (
            account.facts[side].name or "(not there)",
            account.facts["source"].partition,
            account.facts[side].end,
            *(account.counts[side][name] for name in columns),
        )
        for account in accounts
    ]
    return table(head, rows)


def sentences(found: AuditResult, *, may_double: bool) -> list[str]:
    """Return the first difference of each partition, at most SHOWN_MAX, the foreign records, and the verdict."""
    accounts, one_sided, _, unread = found
    said = [
        _first(account, may_double)
        for account in accounts
        if not account.is_proven(may_double=may_double) and account.differences.told
    ]
    hidden = len(said) - SHOWN_MAX
    said = said[:SHOWN_MAX] + ([f"{hidden} more partitions differ; --json has them all."] if hidden > 0 else [])
    for account in accounts:
        count = account.counts["target"]["foreign"]
        if count and account.foreign_from is not None:
            name = f"{account.facts['target'].name}-{account.facts['target'].partition}"
            said.append(
                f"{name}: {count} at the target {is_or_are(count)} of others, the first at {account.foreign_from}."
            )
    if one_sided:
        names = ", ".join(f"{one.name}-{one.partition}" for one in one_sided[:3])
        more = f" and {len(one_sided) - 3} more" if len(one_sided) > 3 else ""
        said.append(f"Not at the source any more, and not audited: {names}{more}.")
    said += [f"{one.name}-{one.partition} is not audited: {one.unknown}." for one in unread[:SHOWN_MAX]]
    if len(unread) > SHOWN_MAX:
        hidden = len(unread) - SHOWN_MAX
        said.append(f"{quantity_text(hidden, 'more partition')} {is_or_are(hidden)} not audited; --json has them all.")
    said += _reasons(accounts)
    differ = sum(not account.is_proven(may_double=may_double) for account in accounts)
    compared = sum(account.compared for account in accounts)
    same = f"{quantity_text(compared, 'record')} {is_or_are(compared)}"
    if not found.is_proven(may_double=may_double):
        not_audited = f", {len(unread)} {is_or_are(len(unread))} not audited" if unread else ""
        of = len(accounts) + len(unread)
        partitions = f"{differ} of {quantity_text(of, 'partition')} {'differs' if differ == 1 else 'differ'}"
        said.append(f"NOT PROVEN: {partitions}{not_audited}; {same} the same.")
    else:
        partitions = f"{quantity_text(len(accounts), 'partition')} {'adds' if len(accounts) == 1 else 'add'} up"
        said.append(f"PROVEN: {partitions} at both ends; {same} the same.")
    return said


def _reasons(accounts: Sequence[Account]) -> list[str]:
    """Return for each topic which of its records came from the target."""
    facts = [account.facts["source"] for account in accounts]
    return list(dict.fromkeys(f"{one.topic} {one.reason}." for one in facts if one.reason))


def _first(account: Account, may_double: bool) -> str:
    facts = account.facts["source"]
    one = next(each for each in account.differences.told if not (may_double and each.kind == "doubled"))
    more = sum(account.differences.counts.values()) - max(1, one.records)
    rest = f" ({more} more differ{'s' if more == 1 else ''})" if more > 0 else ""
    return f"{facts.topic}-{facts.partition}: first difference: {_say(one, facts)}{rest}."


def _say(one: Difference, facts: Facts) -> str:
    records = "the record" if one.records == 1 else f"each of {one.records} records"
    side, offset = ("target", one.target_offset) if one.source_offset is None else ("source", one.source_offset)
    parts = " and ".join(one.parts)
    if parts:
        parts = f", whose {parts} {'differs' if len(one.parts) == 1 and parts != 'headers' else 'differ'}"
    return _SAID[one.kind].format(
        parts=parts,
        records=records,
        source=one.source_offset,
        target=one.target_offset,
        side=side,
        offset=offset,
        topic=facts.topic,
        partition=facts.partition,
    )


def as_json(found: AuditResult, *, may_double: bool) -> dict[str, Any]:
    """Return the whole result."""
    return {
        "proven": found.is_proven(may_double=may_double),
        "remarks": found.remarks,
        "partitions": [_account(account, may_double) for account in found.accounts],
        "not_at_the_source": [[one.name, one.partition] for one in found.one_sided],
        "not_audited": [[one.name, one.partition, one.unknown] for one in found.unread],
    }


def _account(account: Account, may_double: bool) -> dict[str, Any]:
    source, target = account.facts["source"], account.facts["target"]
    return {
        "topic": source.topic,
        "partition": source.partition,
        "target_topic": target.name or None,
        "proven": account.is_proven(may_double=may_double),
        "aligned_by": "map" if account.map.is_known else "content",
        "position": account.position,
        "compared": account.compared,
        **{
            side: {"start": account.facts[side].start, "end": account.facts[side].end}
            | {name: account.counts[side][name] for name in (*CLASSES[side], *FAULTS)}
            for side in SIDES
        },
        "foreign_from": account.foreign_from,
        "reason": source.reason,
        "differences": [one._asdict() for one in account.differences.told],
    }
