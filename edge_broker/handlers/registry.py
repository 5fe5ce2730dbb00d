"""Which APIs are served: key to handler. ApiVersions is computed from this table, so it cannot promise more.

Left out for now, and so not advertised: transactions (24 to 28), ACLs (29 to 31), altering configurations (33, 44),
SASL (17, 36), DeleteRecords (21), CreatePartitions (37), DeleteGroups (42), the new group protocol (68, 69).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from edge_broker.broker.broker import Broker, RequestContext
from edge_broker.broker.outcome import Outcome
from edge_broker.handlers.api_versions import api_versions
from edge_broker.handlers.create_topics import create_topics
from edge_broker.handlers.delete_topics import delete_topics
from edge_broker.handlers.describe_cluster import describe_cluster
from edge_broker.handlers.describe_configs import describe_configs
from edge_broker.handlers.describe_groups import describe_groups
from edge_broker.handlers.describe_topic_partitions import describe_topic_partitions
from edge_broker.handlers.fetch import fetch
from edge_broker.handlers.find_coordinator import find_coordinator
from edge_broker.handlers.heartbeat import heartbeat
from edge_broker.handlers.init_producer_id import init_producer_id
from edge_broker.handlers.join_group import join_group
from edge_broker.handlers.leave_group import leave_group
from edge_broker.handlers.list_groups import list_groups
from edge_broker.handlers.list_offsets import list_offsets
from edge_broker.handlers.metadata import metadata
from edge_broker.handlers.offset_commit import offset_commit
from edge_broker.handlers.offset_fetch import offset_fetch
from edge_broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from edge_broker.handlers.produce import produce
from edge_broker.handlers.sync_group import sync_group

Handler: TypeAlias = Callable[[Broker, RequestContext, Any], Outcome]

_SERVED: dict[int, Handler] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    19: create_topics,
    20: delete_topics,
    22: init_producer_id,
    23: offset_for_leader_epoch,
    32: describe_configs,
    60: describe_cluster,
    75: describe_topic_partitions,
}
API_VERSIONS = 18
HANDLERS: Mapping[int, Handler] = _SERVED | {API_VERSIONS: partial(api_versions, (*_SERVED, API_VERSIONS))}
