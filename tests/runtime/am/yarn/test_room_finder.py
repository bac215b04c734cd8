"""What room YARN has for an application: the limit that it tells, and the small container that brings it to do so."""

from __future__ import annotations

from tony_provider.runtime.am.resource_manager import ContainerRequest, Room
from tony_provider.runtime.am.yarn.room_finder import PROBE, RoomFinder
from tony_provider.runtime.hadoop import yarn_messages

REQUEST = ContainerRequest(0, 1, 4096, 2, {"yarn.io/gpu": 1}, node_label="gpu")
LIMIT = yarn_messages.resource(2048, 3, {"yarn.io/gpu": 2, "rate": 5}, {"rate": "Gi"})


def test_nobody_is_told_before_somebody_looks() -> None:
    assert RoomFinder().room(LIMIT) is None


def test_a_small_container_of_the_same_label_is_asked_for_and_withdrawn() -> None:
    finder = RoomFinder()
    assert finder.look(REQUEST, 100.0) == ContainerRequest(PROBE, 1000, 1, 1, node_label="gpu")
    assert finder.look(REQUEST, 101.0) is None  # it is under way
    assert finder.room(LIMIT) is None
    assert not finder.is_over(102.9)
    assert finder.is_over(103.0)
    assert not finder.is_over(104.0)
    assert finder.room(LIMIT) == Room(2048, 3, {"yarn.io/gpu": 2, "rate": 5}, {"rate": "Gi"})
    assert finder.look(REQUEST, 200.0) is not None


def test_or_is_granted_and_given_back() -> None:
    finder = RoomFinder()
    finder.look(REQUEST, 100.0)
    finder.granted()
    assert not finder.is_over(200.0)
    assert finder.room(LIMIT) is not None


def test_only_what_has_changed_is_told_and_the_answer_to_each_look() -> None:
    finder = RoomFinder()
    for now in (100.0, 200.0):
        finder.look(REQUEST, now)
        finder.granted()
        assert finder.room(LIMIT) is not None
        assert finder.room(LIMIT) is None
    assert finder.room(yarn_messages.resource(1024, 3)) == Room(1024, 3)


def test_cores_that_the_scheduler_does_not_count_are_no_limit() -> None:
    finder = RoomFinder(counts_vcores=False)
    finder.look(REQUEST, 100.0)
    finder.granted()
    assert finder.room(yarn_messages.resource(1024, 0)) == Room(1024, None)
