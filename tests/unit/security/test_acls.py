"""ACLs as values: what can be none, which ones a filter means, which ones hold for a resource."""

from __future__ import annotations

import pytest

from edge_broker.security.acls import (
    AclBinding,
    AclFilter,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    canonical_host,
    fault_of_acl,
)

READS = AclBinding(
    ResourceType.TOPIC, "readings", PatternType.LITERAL, "User:ann", "*", Operation.READ, Permission.ALLOW
)


def test_a_sound_acl_has_no_fault() -> None:
    """What kafka-acls makes is taken."""
    assert fault_of_acl(READS) == ""
    assert fault_of_acl(READS._replace(principal="User:*", host="10.0.0.1", operation=Operation.ALL)) == ""
    assert fault_of_acl(READS._replace(principal="User:CN=board-1,O=site")) == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (READS._replace(resource_type=ResourceType.ANY), "one type of resource"),
        (READS._replace(resource_type=ResourceType.UNKNOWN), "one type of resource"),
        (READS._replace(pattern_type=PatternType.MATCH), "LITERAL or PREFIXED"),
        (READS._replace(operation=Operation.ANY), "one operation or ALL"),
        (READS._replace(permission=Permission.ANY), "ALLOW or DENY"),
        (READS._replace(name=""), "is empty"),
        (READS._replace(resource_type=ResourceType.CLUSTER), "kafka-cluster"),
        (READS._replace(principal="ann"), "TYPE:NAME"),
        (READS._replace(principal="User:"), "TYPE:NAME"),
        (READS._replace(host=""), "* means any"),
    ],
)
def test_what_can_be_no_acl_is_named(wrong: AclBinding, said: str) -> None:
    """Each part that is wrong is told in one sentence."""
    assert said in fault_of_acl(wrong)


@pytest.mark.parametrize(
    ("meant", "matches"),
    [
        (AclFilter(), True),
        (AclFilter(resource_type=ResourceType.GROUP), False),
        (AclFilter(name="readings"), True),
        (AclFilter(name="other"), False),
        (AclFilter(name="readings", pattern_type=PatternType.PREFIXED), False),
        (AclFilter(name="readings", pattern_type=PatternType.MATCH), True),
        (AclFilter(principal="User:ann", host="*"), True),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=Operation.READ, permission=Permission.ALLOW), True),
        (AclFilter(operation=Operation.ALL), False),
        (AclFilter(permission=Permission.DENY), False),
    ],
)
def test_a_filter_means_what_fits_every_part(meant: AclFilter, *, matches: bool) -> None:
    """Only MATCH looks at what a pattern holds for; every other part is compared as it is."""
    assert meant.matches(READS) is matches


def test_match_finds_prefixes_and_wildcards() -> None:
    """A filter by MATCH finds every ACL that holds for its name."""
    matching = AclFilter(name="readings", pattern_type=PatternType.MATCH)
    prefixed = READS._replace(pattern_type=PatternType.PREFIXED)
    assert matching.matches(READS._replace(name="*"))
    assert matching.matches(prefixed._replace(name="read"))
    assert not matching.matches(prefixed._replace(name="*"))
    assert not matching.matches(prefixed._replace(name="readings-2"))
    assert AclFilter(pattern_type=PatternType.MATCH).matches(prefixed)


def test_the_acls_of_a_resource_are_its_own_the_wildcard_and_the_prefixes() -> None:
    """Others, and those of other types, are not."""
    prefixed = READS._replace(pattern_type=PatternType.PREFIXED)
    held = {READS, READS._replace(name="*"), prefixed._replace(name="r"), prefixed}
    others = {
        READS._replace(name="reading"),
        prefixed._replace(name="readings1"),
        READS._replace(resource_type=ResourceType.GROUP),
    }
    acls = Acls(held | others)
    assert set(acls.of(ResourceType.TOPIC, "readings")) == held
    assert set(acls.of(ResourceType.TOPIC, "*")) == {READS._replace(name="*")}
    assert len(list(acls.of_type(ResourceType.TOPIC))) == len(held | others) - 1


def test_an_address_has_one_form() -> None:
    """However it is written in an ACL, or comes from a socket."""
    assert canonical_host("0:0:0:0:0:0:0:1") == canonical_host("::1") == "::1"
    assert canonical_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_host("fe80::1%eth0") == "fe80::1"
    assert canonical_host("*") == "*"
    assert canonical_host("") == ""
