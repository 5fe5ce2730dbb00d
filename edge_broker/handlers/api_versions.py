"""ApiVersions (key 18): what is served, computed from the handlers that exist.

One exception: Produce 0 to 2 are advertised and refused. librdkafka before 2.11.1 stops compressing where version 0 is
not offered (KAFKA-18659). Must never come in: other promises. Source: KIP-511.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_broker.broker.broker import Broker, RequestContext
from edge_broker.broker.outcome import Outcome, Reply
from edge_broker.protocol.api import APIS
from edge_broker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def api_versions(
    served: Iterable[int], broker: Broker, context: RequestContext, request: ApiVersionsRequest | None
) -> Outcome:
    """The range of versions of every served API."""
    ranges = [
        ApiVersion(api_key=key, min_version=APIS[key].advertised_min, max_version=APIS[key].max_version)
        for key in sorted(served)
    ]
    return Reply(ApiVersionsResponse(api_keys=ranges))
