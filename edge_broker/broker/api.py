"""Which APIs are served: each handler registers its key, its messages and its versions; nothing else promises any.

Contains: the register. Does not contain: a list of APIs; `edge_broker.handlers` imports every file that it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome
from edge_broker.protocol.api import Api

Handler: TypeAlias = Callable[[Broker, RequestContext, Any], Outcome]
H = TypeVar("H", bound=Handler)

APIS: dict[int, Api] = {}
HANDLERS: dict[int, Handler] = {}


class ServedApi(Api):
    """An API whose handler it decorates, and thereby registers."""

    __slots__ = ()

    def __call__(self, handler: H) -> H:
        """Register the handler, once."""
        assert self.key not in HANDLERS, f"API key {self.key} has two handlers"
        APIS[self.key] = self
        HANDLERS[self.key] = handler
        return handler
