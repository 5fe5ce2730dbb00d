"""ApiVersions (key 18): what is served, computed from the handlers that exist.

One exception: Produce 0 to 2 are advertised and refused. librdkafka before 2.11.1 stops compressing where version 0 is
not offered (KAFKA-18659). Does not contain: other promises. Source: KIP-511.
"""

from __future__ import annotations

import re

from edge_broker.broker.api import APIS, ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import API_VERSIONS
from edge_broker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

NAMED_FROM = 3
_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9\-.]{0,250}[A-Za-z0-9])?")


@ServedApi(
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
    """The range of versions of every served API; a client's software has a name that metrics can hold."""
    if request is not None and context.api_version >= NAMED_FROM:
        names = request.client_software_name, request.client_software_version
        if not all(map(_SOFTWARE.fullmatch, names)):
            return Reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[]))
    ranges = [
        ApiVersion(api_key=key, min_version=api.advertised_min, max_version=api.max_version)
        for key, api in sorted(APIS.items())
    ]
    return Reply(ApiVersionsResponse(api_keys=ranges))
