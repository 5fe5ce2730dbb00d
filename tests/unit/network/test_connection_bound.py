"""Connections never take the descriptors that the broker's own files need."""

from __future__ import annotations

import pytest

from drupelet.host.descriptors import NO_LIMIT
from edge_broker.network.connection.connection_limit import (
    CONNECTIONS_MIN,
    OTHERS_MAX,
    connection_bound,
    open_file_limit_for,
)
from edge_broker.storage.segment.open_file_cache import files_share


@pytest.mark.parametrize("limit", [65536, NO_LIMIT])
def test_max_connections_holds_where_there_is_room(limit: int) -> None:
    assert connection_bound(2000, limit) == (2000, "max.connections=2000", "")


@pytest.mark.parametrize("limit", [512, 1024, 4096])
def test_the_limit_of_open_files_bounds_them_and_the_remedy_is_enough(limit: int) -> None:
    bound = connection_bound(2000, limit)
    assert bound.most == limit - files_share(limit) - OTHERS_MAX
    assert f"the limit of {limit} open files" in bound.reason
    remedy = int(bound.note.partition("LimitNOFILE=")[2].partition(",")[0])
    assert remedy == open_file_limit_for(2000)
    assert connection_bound(2000, remedy).note == ""
    assert connection_bound(2000, remedy - 2).note


@pytest.mark.parametrize("limit", [64, 256])
def test_some_come_in_whatever_the_limit(limit: int) -> None:
    assert connection_bound(2000, limit).most == CONNECTIONS_MIN


@pytest.mark.parametrize("wanted", [1, 100, 4000, 10_000, 1_000_000])
def test_what_is_needed_has_room(wanted: int) -> None:
    assert connection_bound(wanted, open_file_limit_for(wanted)).most == wanted
