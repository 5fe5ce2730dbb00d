"""Which settings follow the source's, and which are left to whoever has set them at the target."""

from __future__ import annotations

import pytest

from mirror.topics.config_rules import InStep, Setting

DELETE = {"cleanup.policy": "delete"}


def own(**values):
    return {key.replace("_", "."): Setting(value, is_own=True) for key, value in values.items()}


DEFAULTS = {"retention.ms": Setting("604800000", is_own=False), "max.message.bytes": Setting("1048588", is_own=False)}
THERE = DEFAULTS | own(cleanup_policy="delete")


def test_what_was_equal_follows_what_changes_and_goes_where_it_is_set_no_more():
    in_step = InStep()
    assert in_step.compare("t", DELETE | {"retention.ms": "1000"}, THERE | own(retention_ms="1000")) == ({}, {})
    step = in_step.compare("t", DELETE | {"retention.ms": "2000"}, THERE | own(retention_ms="1000"))
    assert step == ({"retention.ms": "2000"}, {})
    in_step.configs_accepted("t", step.alter)
    step = in_step.compare("t", DELETE, THERE | own(retention_ms="2000"))
    assert step == ({"retention.ms": None}, {})


def test_what_somebody_changed_at_the_target_is_left_alone():
    in_step = InStep()
    in_step.compare("t", DELETE | {"retention.ms": "1000"}, THERE | own(retention_ms="1000"))
    step = in_step.compare("t", DELETE | {"retention.ms": "2000"}, THERE | own(retention_ms="9000"))
    assert step == ({}, {"retention.ms": ("2000", "9000")})


def test_of_a_topic_that_was_there_before_nothing_follows_but_what_was_set_alike():
    in_step = InStep()
    in_step.compare("t", DELETE, THERE)
    step = in_step.compare("t", {"cleanup.policy": "compact", "retention.ms": "1000"}, THERE)
    assert step == ({"cleanup.policy": "compact"}, {"retention.ms": ("1000", None)})


def test_what_the_mirror_has_made_follows_also_where_nothing_was_set():
    in_step = InStep()
    in_step.topic_created("t", DELETE, DELETE | {"max.compaction.lag.ms": "7"})
    step = in_step.compare("t", DELETE | {"retention.ms": "1000", "max.compaction.lag.ms": "7"}, THERE)
    assert step == ({"retention.ms": "1000"}, {"max.compaction.lag.ms": ("7", None)}), (
        "the target did not take the last"
    )
    in_step.forget("t")
    assert in_step.compare("t", DELETE | {"retention.ms": "1000"}, THERE).alter == {}


def test_a_limit_is_raised_and_never_lowered_below_what_the_source_has_taken():
    in_step = InStep()
    there = THERE | own(max_message_bytes="2000000")
    in_step.compare("t", DELETE | {"max.message.bytes": "2000000"}, there)
    assert in_step.compare("t", DELETE | {"max.message.bytes": "1000000"}, there) == ({}, {})
    assert in_step.compare("t", DELETE, there) == ({}, {})
    assert in_step.compare("t", DELETE | {"max.message.bytes": "3000000"}, there).alter == {
        "max.message.bytes": "3000000"
    }


@pytest.mark.parametrize(
    ("here", "there", "follows"),
    [
        ("3000000", Setting("1048588", is_own=False), True),
        ("1000000", Setting("1048588", is_own=False), False),  # the target takes more already
        ("3000000", Setting("1000", is_own=True), False),  # somebody limits it there
        ("3000000", None, False),
    ],
)
def test_what_the_source_takes_has_to_fit_where_nobody_limits_it_at_the_target(here, there, follows):
    found = THERE | ({} if there is None else {"max.message.bytes": there})
    if there is None:
        del found["max.message.bytes"]
    step = InStep().compare("t", DELETE | {"max.message.bytes": here}, found)
    assert step.alter == ({"max.message.bytes": here} if follows else {})
