"""Records of `__consumer_offsets` against bytes of Apache Kafka 4.3.1 and what its own formatters say about them.

The fixture's `origin` says how the bytes came about.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from edge_broker.coordinator.offset_records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    MemberMetadata,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
)

FIXTURE: dict[str, Any] = json.loads((Path(__file__).parent / "consumer_offsets.json").read_text(encoding="utf-8"))
MADE = {name: bytes.fromhex(data) for name, data in FIXTURE["made"].items()}
OFFSET_RECORDS = [row for row in FIXTURE["captured"] if row["formatted"]["key"]["type"] == 1]
GROUP_RECORDS = [row for row in FIXTURE["captured"] if row["formatted"]["key"]["type"] == 2]


def as_formatted(group: GroupMetadata) -> dict[str, Any]:
    return {
        "protocolType": group.protocol_type,
        "generation": group.generation_id,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
        "currentStateTimestamp": group.state_since_ms,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
                "subscription": base64.b64encode(member.subscription).decode(),
                "assignment": base64.b64encode(member.assignment).decode(),
            }
            for member in group.members
        ],
    }


def test_the_fixture_has_both_kinds_of_records() -> None:
    assert len(OFFSET_RECORDS) == 3
    assert len(GROUP_RECORDS) == 5


@pytest.mark.parametrize("row", OFFSET_RECORDS, ids=lambda row: row["formatted"]["key"]["data"]["group"])
def test_captured_offsets_read_as_kafka_formats_them(row: dict[str, Any]) -> None:
    key, told = read_key(bytes.fromhex(row["key"])), row["formatted"]["value"]["data"]
    assert isinstance(key, OffsetKey)
    assert {"group": key.group_id, "topic": key.topic, "partition": key.partition} == row["formatted"]["key"]["data"]
    assert offset_key(key) == bytes.fromhex(row["key"])
    assert read_offset_value(bytes.fromhex(row["value"])) == CommittedOffset(
        told["offset"], told["leaderEpoch"], told["metadata"], told["commitTimestamp"]
    )


@pytest.mark.parametrize("row", GROUP_RECORDS)
def test_captured_groups_read_as_kafka_formats_them_and_write_the_same_bytes(row: dict[str, Any]) -> None:
    key, value = bytes.fromhex(row["key"]), bytes.fromhex(row["value"])
    assert read_key(key) == GroupKey(row["formatted"]["key"]["data"]["group"])
    assert group_key(row["formatted"]["key"]["data"]["group"]) == key
    assert as_formatted(read_group_value(value)) == row["formatted"]["value"]["data"]
    assert group_value(read_group_value(value)) == value


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_reads(version: int) -> None:
    leader_epoch = 7 if version >= 3 else -1
    expected = CommittedOffset(1234567890123, leader_epoch, "site=Köln", 1750000000000)
    assert read_offset_value(MADE[f"offset_value_{version}"]) == expected


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_reads(version: int) -> None:
    first = MemberMetadata(
        "pi-1-a",
        "pi-1" if version >= 3 else None,
        "kiosk",
        "/10.0.0.7",
        60000 if version >= 1 else 10000,
        10000,
        b"\x00\x01\x02\xff",
        b"\x09\x08",
    )
    second = MemberMetadata("café-b", None, "", "/::1", 300000 if version >= 1 else 45000, 45000, b"", b"")
    since_ms = 1750000000001 if version >= 2 else -1
    expected = GroupMetadata("consumer", 3, "range", "pi-1-a", since_ms, (first, second))
    assert read_group_value(MADE[f"group_value_{version}"]) == expected


def test_what_is_written_are_kafkas_bytes_of_version_3() -> None:
    assert offset_value(read_offset_value(MADE["offset_value_3"])) == MADE["offset_value_3"]
    assert group_value(read_group_value(MADE["group_value_3"])) == MADE["group_value_3"]
    assert group_value(GroupMetadata("", 0, None, None, 1750000000002, ())) == MADE["empty_group_value_3"]
    assert offset_key(OffsetKey("grüppe", "sensors.raw", 11)) == MADE["offset_key"]
    assert group_key("grüppe") == MADE["group_key"]


def test_keys_of_other_times_read() -> None:
    assert read_key(MADE["legacy_offset_key"]) == OffsetKey("grüppe", "sensors.raw", 11)
    assert read_key(MADE["consumer_group_key"]) is None
