"""A request that stops half way, so that others come between its steps."""

from __future__ import annotations

from typing import Any

from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import AfterName, Outcome, Steps
from edge_broker.protocol.message import Message
from edge_broker.testing.site import Site


class HalfWay:
    """A request of which so many steps are taken, and no more until `answer`; others come between."""

    NAME = "halfway"

    def __init__(self, site: Site, key: int, request: Message, steps: int) -> None:
        self._site = site
        self._client = site.client()
        handler = site.handlers[key]

        def stop(broker: Broker, context: RequestContext, asked: Any) -> Outcome:
            outcome = handler(broker, context, asked)
            assert isinstance(outcome, Steps)
            for _ in range(steps):
                next(outcome.steps)
            broker.topics.take_names([self.NAME])
            return AfterName(self.NAME, lambda: outcome)

        site.handlers[key] = stop
        self._client.send(key, request)
        site.handlers[key] = handler

    def answer(self) -> Any:
        """Let it go on; its response."""
        self._site.broker.topics.free_names([self.NAME])
        self._site.dispatcher.apply()
        self._site.run_until_idle()
        return self._client.answer()
