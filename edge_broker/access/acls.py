"""`edge-broker acl`: ACLs of a data directory.

Contains: from options to ACLs and filters, and what is printed. Does not contain: options and help (arguments.py),
what ACLs mean (security/acls.py).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator

from drupelet.errors import CommandFailed, ConfigurationError
from edge_broker.access.store import open_store, wait_until_done
from edge_broker.errors import Refusal
from edge_broker.output import write_json, write_table
from edge_broker.security.acls import (
    ANYBODY,
    ANYTHING,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    fault_of_acl,
)
from edge_broker.security.authorizer import OPERATIONS
from edge_broker.security.state import SecurityState

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
OF_PRODUCERS = {TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)}
OF_CONSUMERS = {TOPIC: (Operation.READ, Operation.DESCRIBE), GROUP: (Operation.READ,)}
Resource = tuple[ResourceType, str, PatternType]


def run(options: argparse.Namespace) -> int:
    """Run one of the commands; its exit status. CommandFailed, ConfigurationError, StorageFault."""
    try:
        return {"add": _add, "list": _list, "remove": _remove}[options.action](options)
    except Refusal as refusal:
        raise CommandFailed(refusal.message) from refusal


def _add(options: argparse.Namespace) -> int:
    wanted = frozenset(_requested_acls(options))
    _check_stars(options, {acl.principal for acl in wanted})
    store = open_store(options.data_dir, make=True)
    before = store.state.acls
    store.change(lambda state: state.with_acls(state.acls | wanted))
    wait_until_done(store)
    for acl in sorted(wanted):
        print(f"{'there already' if acl in before else 'added'}: {acl}")
    return 0


def _list(options: argparse.Namespace) -> int:
    found = _matching_acls(open_store(options.data_dir, make=False).state, list(_filters(options)))
    _show(found, as_json=options.json)
    return 0


def _remove(options: argparse.Namespace) -> int:
    filters = list(_filters(options))
    if filters == [AclFilter()] and not options.all:
        raise ConfigurationError("nothing says which rights to remove; name a resource or --principal, or say --all")
    store = open_store(options.data_dir, make=False)
    removed: list[AclBinding] = []

    def edit(state: SecurityState) -> SecurityState:
        removed[:] = _matching_acls(state, filters)
        return state.with_acls(state.acls - frozenset(removed))

    store.change(edit)
    wait_until_done(store)
    if options.json:
        _show(removed, as_json=True)
    else:
        for acl in removed:
            print(f"removed: {acl}")
        if not removed:
            print("no ACL is like that")
    return 0


def _requested_acls(options: argparse.Namespace) -> Iterator[AclBinding]:
    resources = list(_resources(options))
    if not resources:
        raise ConfigurationError("nothing says what the rights are about; name --topic, --group or --cluster")
    whom = [(who, Permission.ALLOW) for who in options.allow] + [(who, Permission.DENY) for who in options.deny]
    if not whom:
        raise ConfigurationError("nothing says whose rights these are; name --allow User:NAME or --deny User:NAME")
    if not (options.operation or options.producer or options.consumer):
        raise ConfigurationError("nothing says what may be done; name --operation, --producer or --consumer")
    for resource in resources:
        operations = list(_operations(options, resource[0]))
        if not operations:
            raise ConfigurationError(f"nothing says what may be done to a {resource[0].name.lower()}; name --operation")
        for who, permission in whom:
            for host in options.host or [ANYTHING]:
                for operation in operations:
                    acl = AclBinding(*resource, who, host, operation, permission)
                    if fault := fault_of_acl(acl):
                        raise ConfigurationError(fault)
                    yield acl


def _check_stars(options: argparse.Namespace, principals: Iterable[str]) -> None:
    """Refuse what looks like a pattern and would be one name, as kafka-acls takes it: User:temp* denies no client.

    A user of that very name may be there, and the subject of a certificate may be CN=*.example.org.
    """
    for kind, name, _ in _resources(options):
        if ANYTHING in name and name != ANYTHING:
            option, start = kind.name.lower().replace("_", "-"), name.partition(ANYTHING)[0]
            way = (
                f"--{option} {start} with --prefixed" if start else f"--{option} '{ANYTHING}' for all, or each of them"
            )
            raise ConfigurationError(
                f"--{option} {name} would be the one of that very name, as only {ANYTHING} alone is a wildcard; "
                f"write {way}"
            )
    doubtful = {who for who in principals if ANYTHING in who and "=" not in who and who != ANYBODY}
    if doubtful and os.path.isdir(options.data_dir):
        doubtful -= {f"User:{name}" for name in open_store(options.data_dir, make=False).state.users}
    for who in sorted(doubtful):
        raise ConfigurationError(
            f"{who} would be the one user of that very name, and there is none, as only {ANYBODY} is a wildcard; name "
            f"each user, or write {ANYBODY}"
        )


def _operations(options: argparse.Namespace, kind: ResourceType) -> Iterator[Operation]:
    """Return the operations of a resource of this kind; ConfigurationError for any other, as kafka-acls."""
    for name in options.operation:
        operation = Operation[name.upper()]
        if operation not in (Operation.ALL, *OPERATIONS[kind]):
            there = ", ".join(one.name.lower() for one in OPERATIONS[kind])
            raise ConfigurationError(
                f"--operation {name} is nothing that is done to a {kind.name.lower()}; it can be all, {there}"
            )
        yield operation
    if options.producer:
        yield from OF_PRODUCERS.get(kind, ())
    if options.consumer:
        yield from OF_CONSUMERS.get(kind, ())


def _resources(options: argparse.Namespace) -> Iterator[Resource]:
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    for kind, names in (
        (TOPIC, options.topic),
        (GROUP, options.group),
        (ResourceType.TRANSACTIONAL_ID, options.transactional_id),
    ):
        for name in names:  # every name is a literal *, whatever the others are
            yield kind, name, PatternType.LITERAL if name == ANYTHING else pattern
    if options.cluster:
        yield ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL


def _filters(options: argparse.Namespace) -> Iterator[AclFilter]:
    named = list(_resources(options))
    for kind, name, pattern in named:
        yield AclFilter(kind, name, pattern, options.principal)
    if not named:
        yield AclFilter(principal=options.principal)


def _matching_acls(state: SecurityState, filters: Iterable[AclFilter]) -> list[AclBinding]:
    filters = list(filters)
    return sorted(acl for acl in state.acls if any(meant.matches(acl) for meant in filters))


def _show(acls: Iterable[AclBinding], *, as_json: bool) -> None:
    rows = [
        (
            acl.permission.name,
            acl.principal,
            acl.operation.name,
            acl.resource_type.name,
            acl.pattern_type.name,
            acl.name,
            acl.host,
        )
        for acl in acls
    ]
    columns = ("permission", "principal", "operation", "resource", "pattern", "name", "host")
    if as_json:
        for row in rows:
            write_json(dict(zip(columns, row, strict=True)))
    else:
        write_table(columns, rows, none="no ACLs")
