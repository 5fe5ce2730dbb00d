"""DescribeClientQuotas, where no quota is set."""

from __future__ import annotations

from edge_broker.protocol.api import DESCRIBE_CLIENT_QUOTAS
from edge_broker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.differential.session import Session, case

EXACT, DEFAULT, SPECIFIED = range(3)


@case(DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(s: Session, version: int) -> None:
    def ask(label: str, *components: tuple[str, int, str | None], strict: bool = False) -> None:
        asked = [ComponentData(entity_type=name, match_type=kind, match=match) for name, kind, match in components]
        s.ask(
            DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=asked, strict=strict), version, label=label
        )

    ask("all")
    ask("all, strict", strict=True)
    for name in ("user", "client-id", "ip"):
        ask(f"{name} of a name", (name, EXACT, "127.0.0.1"))
        ask(f"{name} by default", (name, DEFAULT, None))
        ask(f"any {name}", (name, SPECIFIED, None), strict=True)
    ask("user and client id", ("user", EXACT, "a"), ("client-id", SPECIFIED, None))
    ask("no type", ("", SPECIFIED, None))
    ask("unknown type", ("group", SPECIFIED, None))
    ask("a type twice", ("user", EXACT, "a"), ("user", EXACT, "b"))
    ask("exact without a name", ("user", EXACT, None))
    ask("default with a name", ("user", DEFAULT, "a"))
    ask("specified with a name", ("user", SPECIFIED, ""))
    ask("unknown match", ("user", 3, None))
    ask("address and user", ("ip", EXACT, "127.0.0.1"), ("user", EXACT, "a"))
    ask("address and client id", ("client-id", SPECIFIED, None), ("ip", DEFAULT, None))
    ask("wrong twice", ("", 9, None), ("user", EXACT, None))
