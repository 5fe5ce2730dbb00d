"""A member keeps a copy of the cluster's topics on its disk, and forgets no topic that was not deleted."""

from __future__ import annotations

import pytest

from edge_broker.cluster.effects import Ask, Effect, KeepCopy
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.partition.partition import Settings
from edge_broker.cluster.rebuild.copy_keeper import KEEP_MS, RETRY_MS, CopyKeeper
from edge_broker.cluster.state.cluster_state import Identity, Topic
from edge_broker.cluster.znodes.znode_codec import FORMAT, Format, deleted_path, encode_rebuilt_format
from edge_broker.cluster.znodes.zookeeper import Answer, Connected, Exists, Failure, Get, Node, Request, Stat
from edge_broker.storage.metadata.cluster_copy import DELETIONS_KEPT, ClusterCopy, CopiedDeletion, CopiedTopic

OWN = 50
NOTHING = ClusterCopy()
T = CopiedTopic("t", "id-t", 20, ((1, 2),), {"retention.ms": "5"})
U = CopiedTopic("u", "id-u", 60, ((2,),), {})


class PlayedImage:
    """As an Image that was read, of these topics."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topic_epochs: dict[str, int] = {}
        self.epoch_base = 0
        self.changes = 0
        self.is_settled = True

    def has(self, *topics: CopiedTopic) -> None:
        self.topics = {each.name: Topic(each.topic_id, each.replicas, each.config) for each in topics}
        self.topic_epochs = {each.name: each.epoch for each in topics}
        self.changes += 1


class Keeping:
    """A keeper over a played image; each write of a copy is done at once, unless the disk `refuses`."""

    def __init__(self, written: ClusterCopy = NOTHING) -> None:
        self.image, self.asked, self.kept = PlayedImage(), list[tuple[Request, object]](), list[ClusterCopy]()
        self.left: list[Effect] = []
        self.refuses = False
        self.now_ms = 0.0
        self.keeper = CopyKeeper(
            lambda request, then: self.asked.append((request, then)),
            self.image,  # type: ignore[arg-type] # what the keeper reads of one
            self.left.append,
            written,
        )

    def tick(self, after_ms: float = KEEP_MS) -> None:
        self.now_ms += after_ms
        self.keeper.tick(OWN, self.now_ms)
        for effect in self.left:
            assert isinstance(effect, KeepCopy)
            self.keeper.copy_written(self.now_ms, done=not self.refuses)
            self.kept.append(effect.copy)
        self.left.clear()

    def answers(self, answer: Answer) -> list[Request]:
        asked, self.asked[:] = list(self.asked), []
        for _, then in asked:
            then(answer)  # type: ignore[operator]
        return [request for request, _ in asked]


def test_topics_are_copied_as_zookeeper_has_them() -> None:
    board = Keeping()
    board.image.has(T, U)
    board.tick()
    assert board.kept == [ClusterCopy(60, (T, U))]
    assert not board.asked


def test_all_up_to_the_registration_was_seen_also_in_a_cluster_without_topics() -> None:
    board = Keeping()
    board.tick()
    assert board.kept == [ClusterCopy(OWN)]


def test_nothing_is_compared_while_an_answer_is_open() -> None:
    """Of two topics that were made one after the other only the later one may have been read."""
    board = Keeping()
    board.image.has(U)
    board.image.is_settled = False
    board.tick()
    assert not board.kept
    board.image.has(T, U)
    board.image.is_settled = True
    board.tick()
    assert board.kept == [ClusterCopy(60, (T, U))]


def test_a_deletion_is_kept_by_its_epoch() -> None:
    board = Keeping()
    board.image.epoch_base = 1000
    board.image.has(T, U)
    board.tick()
    board.image.has(U)
    board.tick()
    assert len(board.kept) == 1, "not before it is known whether the topic was deleted"
    assert board.answers(Stat(0, 70, 70, 0)) == [Exists(deleted_path("id-t"))]
    board.tick()
    assert board.kept[-1] == ClusterCopy(1070, (U,), (), (CopiedDeletion("t", "id-t", 1070),))


def test_a_topic_that_was_never_compared_is_known_as_deleted() -> None:
    """It was made and deleted while answers were open; a board that is off since then may still have its log."""
    board = Keeping()
    board.image.has(T)
    board.tick()
    board.image.is_settled = False
    board.image.has(T, U)
    board.keeper.topic_changed("u")
    board.tick()
    board.image.has(T)
    board.keeper.topic_changed("u")
    board.image.is_settled = True
    board.tick()
    assert board.answers(Stat(0, 70, 70, 0)) == [Exists(deleted_path("id-u"))]
    board.tick()
    assert board.kept[-1] == ClusterCopy(70, (T,), (), (CopiedDeletion("u", "id-u", 70),))
    board.image.has(T)
    board.tick()
    assert not board.asked, "it is asked for once"


def test_a_topic_that_an_older_ensemble_lacks_stays() -> None:
    board = Keeping(ClusterCopy(70, (T, U)))
    board.image.has(T)
    board.tick()
    board.answers(Failure.NO_NODE)
    board.tick()
    assert board.kept == [ClusterCopy(70, (T,), (U,))]
    board.image.has(T, U)
    board.tick()
    assert board.kept[-1] == ClusterCopy(70, (T, U)), "the newest data was put back"


GROWN = T._replace(replicas=((1, 2), (2, 3), (3, 1)), config={"retention.ms": "9"})


def test_an_older_ensemble_takes_no_partitions_out_of_the_copy() -> None:
    """Partitions are only added, so that a shorter list is older, whatever the version of its znode."""
    board = Keeping(ClusterCopy(70, (GROWN, U)))
    board.image.has(T, U)
    board.tick()
    assert not board.kept, "the copy is the newer one"
    board.image.has(GROWN._replace(config={}), U)
    board.tick()
    assert board.kept == [ClusterCopy(70, (GROWN._replace(config={}), U))], "the newest data was put back"


def test_a_topic_that_comes_back_without_its_newest_partitions_keeps_them() -> None:
    board = Keeping(ClusterCopy(70, (), (GROWN,)))
    board.image.has(T)
    board.tick()
    assert board.kept == [ClusterCopy(70, (GROWN,))]


def test_partitions_that_were_never_compared_are_known_of_a_topic_that_is_gone() -> None:
    board = Keeping(ClusterCopy(70, (T,)))
    board.image.is_settled = False
    for read in (GROWN, T):  # from a server that is behind
        board.image.has(read)
        board.keeper.topic_changed("t")
    board.image.has()
    board.keeper.topic_changed("t")
    board.image.is_settled = True
    board.tick()
    board.answers(Failure.NO_NODE)
    board.tick()
    assert board.kept == [ClusterCopy(70, (), (GROWN,))]


def test_a_znode_that_a_rebuild_made_again_counts_though_it_has_fewer_partitions() -> None:
    """The board with the longer list was written off; it follows what the rebuild decided."""
    board = Keeping(ClusterCopy(70, (GROWN,)))
    again = T._replace(epoch=1 << 44)
    board.image.has(again)
    board.tick()
    assert board.kept == [ClusterCopy(1 << 44, (again,))]


def test_what_was_not_answered_is_asked_again_once_everything_was_read_again() -> None:
    board = Keeping(ClusterCopy(70, (T,)))
    board.tick()
    board.answers(Failure.CONNECTION_LOSS)
    board.tick()
    assert board.kept == [ClusterCopy(70, (), (T,))]
    board.keeper.read_again()
    board.tick()
    assert board.answers(Stat(0, 80, 80, 0)) == [Exists(deleted_path("id-t"))]
    board.tick()
    assert board.kept[-1].deletions == (CopiedDeletion("t", "id-t", 80),)


def test_a_topic_of_the_same_name_takes_nothing_from_the_former_one() -> None:
    board = Keeping(ClusterCopy(70, (T,)))
    again = T._replace(topic_id="id-new", epoch=90)
    board.image.has(again)
    board.tick()
    board.answers(Stat(0, 85, 85, 0))
    board.tick()
    assert board.kept == [ClusterCopy(90, (again,), (), (CopiedDeletion("t", "id-t", 85),))]


def test_many_changes_are_one_write_a_second() -> None:
    board = Keeping()
    board.tick()
    for number in range(20):
        board.image.has(T._replace(epoch=number))
        board.tick(10.0)
    assert len(board.kept) == 1
    board.tick()
    assert len(board.kept) == 2
    assert board.kept[-1].topics[0].epoch == 19


@pytest.mark.parametrize("tries", [1, 3])
def test_a_disk_that_refuses_is_asked_again(tries: int) -> None:
    board = Keeping()
    board.refuses = True
    board.image.has(T)
    for number in range(tries):
        board.tick(RETRY_MS)
        assert len(board.kept) == number + 1
        board.tick(RETRY_MS / 2)
        assert len(board.kept) == number + 1, "not more often"
    board.refuses = False
    board.tick(RETRY_MS)
    board.tick(RETRY_MS)
    assert len(board.kept) == tries + 1
    assert board.keeper.written == ClusterCopy(OWN, (T,))


def test_a_change_while_the_disk_writes_is_written_next() -> None:
    board = Keeping()
    board.image.has(T)
    board.keeper.tick(OWN, 1.0)
    (first,) = board.left
    board.image.has(T, U)
    board.keeper.tick(OWN, 2 * KEEP_MS)
    assert board.left == [first], "one write at a time"
    board.left.clear()
    board.keeper.copy_written(2 * KEEP_MS, done=True)
    board.keeper.tick(OWN, 3 * KEEP_MS)
    assert board.left == [KeepCopy(ClusterCopy(60, (T, U)))]


def test_as_many_deletions_are_kept_as_are_told() -> None:
    old = tuple(CopiedDeletion(f"d{number}", f"id-{number}", number) for number in range(DELETIONS_KEPT))
    board = Keeping(ClusterCopy(DELETIONS_KEPT, (T,), (), old))
    board.tick()
    board.answers(Stat(0, 5000, 5000, 0))
    board.tick()
    assert board.kept[-1].deletions == (*old[1:], CopiedDeletion("t", "id-t", 5000))
    assert board.kept[-1].as_of == 5000


def has_format(data: bytes) -> tuple[ClusterMember, list[Effect]]:
    member = ClusterMember(Identity(1, "one", (5,), "site"), Settings())
    member.event_received(Connected(7, 6000), 1.0)
    (token,) = [each.token for each in member.effects if isinstance(each, Ask) and each.request == Get(FORMAT)]
    member.effects.clear()
    member.answer_received(token, Node(data, Stat(0, 1, 1, 0)), 2.0)
    return member, member.effects


def test_a_rebuilt_ensemble_s_zxids_are_epochs_behind_its_base() -> None:
    member, effects = has_format(encode_rebuilt_format(Format("site", 1 << 44), security=False))
    creates = [each for each in effects if isinstance(each, Ask) and getattr(each.request, "ephemeral", False)]
    member.answer_received(creates[0].token, Stat(0, 9, 9, 7), 3.0)
    assert member.effects[-1] == type(member.effects[-1])((1 << 44) + 9, "site")


def test_nobody_joins_while_the_znodes_are_being_rebuilt() -> None:
    _, effects = has_format(encode_rebuilt_format(Format("site", 1 << 44, rebuilding=True), security=False))
    (sentence,) = [str(each) for each in effects]
    assert "are being rebuilt; let `edge-broker cluster rebuild` come to its end first" in sentence
