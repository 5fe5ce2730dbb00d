"""Queries the source: fetches, the positions of the mirror's group, the configs of its topics.

Does not contain: decisions of the mirror.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from drupelet.kafka.client import ClientSettings
from drupelet.printable import name_text, peer_text
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.api import RequestedApi
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kafka_wire.apis import DESCRIBE_CONFIGS, OFFSET_COMMIT, OFFSET_FETCH, TOPIC_CONFIG, TOPIC_RESOURCE
from kafka_wire.connection.errors import ConnectionLost, WireError
from kafka_wire.partitions import TopicPartition
from mirror.client.active_election import Member
from mirror.client.fetcher import Reader
from mirror.client.log_queries import Asking
from mirror.errors import NotOurTurnError, PositionsError, SourceError, UntoldError
from mirror.partition.source_offsets import Commit, read_commit
from mirror.topics.selection import COPIED_SETTINGS, ConfigSource, copied_settings

R = TypeVar("R", bound=Message)

NOT_OUR_TURN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
}
DEFAULT_CONFIG = 5  # of DescribeConfigs' config_source: set for the topic, set nowhere


class Source(Asking):
    """The cluster that is read; `group_id` names the group that holds the positions, `reader` fetches."""

    def __init__(self, settings: ClientSettings, group_id: str) -> None:
        super().__init__(settings, SourceError)
        self._group_id = group_id
        self._coordinator: int | None = None
        self._reader: Reader | None = None

    @property
    def reader(self) -> Reader:
        """The fetches over the present connections."""
        if self._reader is None:
            self._reader = Reader(self.cluster, self._timeout_s)
        return self._reader

    async def close(self) -> None:
        """Close every connection; errors of the closed client are ignored."""
        reader, self._reader, self._coordinator = self._reader, None, None
        if reader is not None:
            reader.close()
        self.hang_up()

    async def settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return, for each topic, the configs that its copy is created with; `cleanup.policy` is always among them.

        Raises UntoldError if one topic is not described.
        """
        found = {}
        for name, told in (await self.known_settings(names)).items():
            if isinstance(told, str):
                raise UntoldError(told)
            found[name] = told
        return found

    async def known_settings(self, names: Sequence[str]) -> dict[str, dict[str, str] | str]:
        """Return the configs of each topic that is described, and a sentence about each other one."""
        if not names:
            return {}
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=list(COPIED_SETTINGS)
            )
            for name in names
        ]
        async with self._query() as cluster:
            connection = await cluster.any_connection()
            request = DescribeConfigsRequest(resources=resources)
            answer = await connection.ask(DESCRIBE_CONFIGS, request, timeout_s=self._timeout_s)
        found: dict[str, dict[str, str] | str] = {name: f"topic {name} was not described" for name in names}
        for told in answer.results:
            if told.error_code:
                why = peer_text(told.error_message) or error_name(told.error_code)
                found[told.resource_name] = f"topic {name_text(told.resource_name)} cannot be described: {why}"
                continue
            entries = {one.name: (one.value or "", _config_source(one.config_source)) for one in told.configs}
            found[told.resource_name] = copied_settings(entries)
        return found

    async def commits(self, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, Commit]:
        """Return the group's positions of these partitions (None: of all that it has).

        Raises PositionsError while the group's coordinator is away, elsewhere, or still loads committed offsets. Only
        an offset of -1 in a partition's response means that there is no position.
        """
        if partitions is not None and not partitions:
            return {}
        asked: dict[str, list[int]] = {}
        for partition in partitions or ():
            asked.setdefault(partition.topic, []).append(partition.partition)
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in asked.items()]
        request = OffsetFetchRequest(group_id=self._group_id, topics=topics if asked else None)
        with self._forget_coordinator_on_error():
            found = _positions(await self._ask_coordinator(OFFSET_FETCH, request, self._timeout_s))
            silent = sorted(set(partitions or ()) - found.keys())
            if silent:
                raise PositionsError(f"that of {silent[0]} was not answered")
        return {partition: commit for partition, commit in found.items() if commit.offset >= 0}

    async def commit(self, commits: Mapping[TopicPartition, Commit], timeout_s: float, member: Member) -> None:
        """Commit these positions to the group; after SourceError they may be committed or not."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, commit in commits.items():
            topics.setdefault(partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=commit.offset,
                    committed_leader_epoch=-1 if commit.epoch is None else commit.epoch.leader_epoch,
                    committed_metadata=commit.metadata(),
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )
        with self._forget_coordinator_on_error():
            answer = await self._ask_coordinator(OFFSET_COMMIT, request, timeout_s)
            for topic in answer.topics:
                for entry in topic.partitions:
                    if entry.error_code:
                        name = f"{topic.name}-{entry.partition_index}"
                        if entry.error_code in NOT_OUR_TURN:
                            raise NotOurTurnError(f"the group takes none now: {error_name(entry.error_code)}")
                        raise SourceError(f"{name} cannot be committed: {error_name(entry.error_code)}")

    @contextlib.contextmanager
    def _forget_coordinator_on_error(self) -> Iterator[None]:
        """Have the next query look up the group's coordinator again, after a failure."""
        try:
            yield
        except SourceError:
            self._coordinator = None
            raise

    async def _ask_coordinator(self, asked: RequestedApi[R], request: Message, timeout_s: float) -> R:
        async with self._query(timeout_s) as cluster:
            if self._coordinator is None:
                try:
                    self._coordinator = await cluster.coordinator_node(self._group_id)
                except ConnectionLost:
                    raise
                except WireError as error:
                    raise PositionsError(str(error)) from error
            return await self._ask(cluster, self._coordinator, asked, request)


def _positions(answer: OffsetFetchResponse) -> dict[TopicPartition, Commit]:
    """Return every position of the response, also those of offset -1; raises PositionsError if one was refused."""
    if answer.error_code:
        raise PositionsError(f"cannot be read: {error_name(answer.error_code)}")
    found = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                raise PositionsError(f"that of {partition} cannot be read: {error_name(entry.error_code)}")
            found[partition] = read_commit(entry.committed_offset, entry.metadata or "")
    return found


def _config_source(told: int) -> ConfigSource:
    """Return where a config was set, by DescribeConfigs."""
    sources: dict[int, ConfigSource] = {TOPIC_CONFIG: "topic", DEFAULT_CONFIG: "default"}
    return sources.get(told, "broker")
