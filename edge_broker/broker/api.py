"""Which APIs are served: each handler registers its key, its messages and its versions; nothing else promises any.

Lives here: the register. Must never come in: a list of APIs; `edge_broker.handlers` imports every file that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcome import Outcome
from edge_broker.protocol.api import Api
from edge_broker.protocol.message import Message

Handler: TypeAlias = Callable[[Broker, RequestContext, Any], Outcome]
H = TypeVar("H", bound=Handler)

APIS: dict[int, Api] = {}
HANDLERS: dict[int, Handler] = {}


def serves(
    key: int,
    request: type[Message],
    response: type[Message],
    versions: Mapping[int, str],
    *,
    advertised_min: int = -1,
    left_out: str = "",
) -> Callable[[H], H]:
    """Register a handler for an API; `versions` says what each that is served has brought, `left_out` what is not."""

    def register(handler: H) -> H:
        assert key not in HANDLERS, f"API key {key} has two handlers"
        APIS[key] = Api(key, request, response, versions, advertised_min=advertised_min, left_out=left_out)
        HANDLERS[key] = handler
        return handler

    return register
