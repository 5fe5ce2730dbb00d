"""Deadlines by key, against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from edge_broker.coordinator.deadlines import Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("due"), st.just(""), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_like_a_dictionary(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for step, key, at_ms in steps:
        if step == "set":
            deadlines.set(key, at_ms)
            model[key] = at_ms
        elif step == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            due = deadlines.take_due(at_ms)
            expected = min(((at, name) for name, at in model.items() if at <= at_ms), default=None)
            assert due == (expected and expected[1])
            model.pop(due or "", None)
        assert deadlines.next_ms() == min(model.values(), default=None)


def test_heartbeats_leave_nothing_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for now_ms in range(10_000):
        deadlines.set("member", now_ms + 100)
    assert len(deadlines._heap) == 1
