"""Every message is declared as Apache Kafka's own schemas have it: names, types, versions, nullability, tags, defaults.

The schemas are the JSON files inside the kafka-clients jars: 4.3.1, and 3.9.0 for the versions that 4.0 dropped. Each
message is held against both, in the versions that both sides know.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edge_broker.handlers import APIS
from edge_broker.protocol.api import Api
from edge_broker.protocol.message import NEVER, NO_UUID, OWN_TAGS, Field, Message, MessageType, Versions
from edge_broker.wire_client.apis import DESCRIBE_LOG_DIRS
from kafka_wire.apis import ADD_PARTITIONS_TO_TXN, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, END_TXN
from spark.jvm.jars import connector_jars
from tests.support.runtimes import kafka_jars

RELEASES = ("3.9.0", "4.3.1")
ASKED = [
    asked.api
    for asked in (DESCRIBE_LOG_DIRS, ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS)
]
KNOWN = [*APIS.values(), *ASKED]  # served, and asked of other brokers alone
MESSAGES = [pytest.param(api, message, id=message.__name__) for api in KNOWN for message in (api.request, api.response)]
Schemas = dict[str, dict[str, Any]]


def _jar(release: str) -> Path:
    if release == "4.3.1":
        return kafka_jars() / "kafka-clients-4.3.1.jar"
    return next(jar for jar in connector_jars() if jar.name == f"kafka-clients-{release}.jar")


@pytest.fixture(scope="module")
def schemas() -> dict[str, Schemas]:
    return {release: _read(_jar(release)) for release in RELEASES}


def _read(path: Path) -> Schemas:
    with zipfile.ZipFile(path) as jar:
        names = [name for name in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        texts = [re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE) for name in names]
    return {schema["name"]: schema for schema in map(json.loads, texts)}


def _compared(api: Api, schema: dict[str, Any]) -> range:
    """Return the versions that both we and this release know."""
    valid = Versions(schema["validVersions"])
    return range(max(api.min_version, valid.first), min(api.max_version, valid.last) + 1)


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in KNOWN])
def test_every_served_version_is_compared(schemas: dict[str, Schemas], api: Api) -> None:
    compared = {v for release in RELEASES for v in _compared(api, schemas[release][f"{api.name}Request"])}
    assert compared == set(range(api.min_version, api.max_version + 1))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("api", "message"), MESSAGES)
def test_message(schemas: dict[str, Schemas], api: Api, message: type[Message], release: str) -> None:
    schema = schemas[release][message.__name__]
    assert schema["apiKey"] == api.key
    stated = schema["flexibleVersions"]
    assert message.FLEXIBLE_FROM == api.flexible_from == (NEVER if stated == "none" else Versions(stated).first)
    assert list(_Comparison(api, schema).differences(message, schema["fields"])) == []


def test_the_comparison_sees_a_wrong_declaration(schemas: dict[str, Schemas]) -> None:
    """Change one fact of a schema at a time: each must be reported, or this file proves nothing."""
    schema = schemas["4.3.1"]["FetchRequest"]
    for change in (
        {"versions": "1-3"},
        {"versions": "5+"},
        {"name": "Other"},
        {"type": "int64"},
        {"default": "7"},
        {"nullableVersions": "4+"},
        {"tag": 3, "taggedVersions": "12+"},
    ):
        changed = json.loads(json.dumps(schema))
        next(field for field in changed["fields"] if field["name"] == "MaxBytes").update(change)
        assert list(_Comparison(APIS[1], changed).differences(APIS[1].request, changed["fields"])), change
    assert not list(_Comparison(APIS[1], schema).differences(APIS[1].request, schema["fields"]))


class _Fact(NamedTuple):
    what: str
    ours: object
    kafkas: object


class _Comparison:
    """One message against one schema."""

    def __init__(self, api: Api, schema: dict[str, Any]) -> None:
        self.api = api
        self.versions = _compared(api, schema)
        self.shared = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}

    def differences(self, message: MessageType, schema_fields: list[dict[str, Any]]) -> Iterator[str]:
        theirs = [field for field in schema_fields if self.within(field["versions"])]
        shared = [field for field in message.FIELDS if field.tag is None or field.tag < OWN_TAGS]
        ours = [field for field in shared if self.within(field.versions)]
        names = [_snake(field["name"]) for field in theirs]
        if [field.name for field in ours] != names:
            yield f"{message.__name__} has {[field.name for field in ours]}, Kafka has {names}"
            return
        for our, their in zip(ours, theirs, strict=True):
            for what, mine, kafkas in self.facts(our, their):
                if mine != kafkas:
                    yield f"{message.__name__}.{our.name}: {what} is {mine!r}, Kafka has {kafkas!r}"
            if isinstance(our.of, MessageType):
                inner = their.get("fields") or self.shared[their["type"].removeprefix("[]")]
                yield from self.differences(our.of, inner)

    def facts(self, our: Field, their: dict[str, Any]) -> Iterator[_Fact]:
        yield _Fact("versions", self.within(our.versions), self.within(their["versions"]))
        yield _Fact("being an array", our.kind == "array", their["type"].startswith("[]"))
        yield _Fact("type", self.type_of(our, their), their["type"].removeprefix("[]"))
        nullable = [
            v for v in self.within(their.get("nullableVersions", "none")) if v in self.within(their["versions"])
        ]
        yield _Fact("nullable", [v for v in self.within(our.nullable) if v in our.versions], nullable)
        yield _Fact("tag", our.tag, their.get("tag"))
        if "tag" in their:
            yield _Fact("tagged versions", self.within(our.versions), self.within(their["taggedVersions"]))
        yield _Fact("default", our.default, _default(our, their))

    def type_of(self, our: Field, their: dict[str, Any]) -> str:
        """Return our type as Kafka spells it; structures may carry the API's name in front of Kafka's."""
        of = our.of if our.kind in {"array", "struct"} else our.kind
        if not isinstance(of, MessageType):
            return str(of)
        kafkas = their["type"].removeprefix("[]")
        return str(kafkas) if of.__name__ == self.api.name + kafkas else of.__name__

    def within(self, versions: Versions | str | None) -> list[int]:
        if versions is None or versions == "none":
            return []
        parsed = Versions(versions) if isinstance(versions, str) else versions
        return [version for version in self.versions if version in parsed]


def _default(our: Field, their: dict[str, Any]) -> object:
    """Return Kafka's default as our value for it: the one stated, or the type's own."""
    stated = str(their.get("default", ""))
    if stated == "null" or our.kind in {"struct", "records"}:
        return None  # of a tagged structure: "not sent", which stands for Kafka's default structure
    if our.kind.startswith(("int", "uint")):
        return int(stated or "0", 0)
    if our.kind == "float64":
        return float(stated or "0")
    return {"array": [], "bool": stated == "true", "string": stated, "bytes": b"", "uuid": NO_UUID}[our.kind]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
