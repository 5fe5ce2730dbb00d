"""ApiVersions (key 18): what is served, computed from the handlers that exist.

One exception: Produce 0 to 2 are advertised and refused. librdkafka before 2.11.1 stops compressing where version 0 is
not offered (KAFKA-18659). Must never come in: other promises. Source: KIP-511.
"""

from __future__ import annotations

from edge_broker.broker.api import APIS, Served
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcome import Outcome, Reply
from edge_broker.protocol.api import API_VERSIONS
from edge_broker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


@Served(
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    {
        0: "the served versions (KIP-35)",
        1: "throttle time (KIP-124)",
        2: "throttled by the client (KIP-219)",
        3: "the client's name, features (KIP-511, KIP-584)",
        4: "features from version 0 on (KIP-584)",
    },
    left_out="features: there are none to agree on",
)
def api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest | None) -> Outcome:
    """The range of versions of every served API."""
    ranges = [
        ApiVersion(api_key=key, min_version=api.advertised_min, max_version=api.max_version)
        for key, api in sorted(APIS.items())
    ]
    return Reply(ApiVersionsResponse(api_keys=ranges))
