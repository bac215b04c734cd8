"""For how many containers YARN has room: asked for, counted and given back."""

from __future__ import annotations

from tony_provider.runtime.am.resource_manager import ContainerRequest, Room
from tony_provider.runtime.am.yarn.container_requests import FIRST_KEY, RoomFinder
from tony_provider.runtime.hadoop.yarn_records import ContainerId

REQUEST = ContainerRequest(7, 1, 4096, 2, {"yarn.io/gpu": 1}, node_label="gpu", tags=["worker"])
FIRST, SECOND = (ContainerId.parse(f"container_1700000000000_0001_01_00000{number}") for number in (2, 3))


def test_as_many_as_are_wanted_are_asked_for_just_as_they_will_be() -> None:
    finder = RoomFinder()
    assert finder.begin(100.0) == []
    finder.look(REQUEST, 2)
    asked = finder.begin(100.0)
    assert [request.key for request in asked] == [FIRST_KEY, FIRST_KEY + 1]
    assert {(each.memory, each.node_label, *each.tags) for each in asked} == {(4096, "gpu", "worker")}
    assert finder.begin(100.0) == []


def test_it_is_over_as_soon_as_all_are_there() -> None:
    finder = RoomFinder()
    finder.look(REQUEST, 2)
    finder.begin(100.0)
    assert finder.came(FIRST_KEY, FIRST, 100.1)
    assert finder.end(100.1) is None
    assert finder.came(FIRST_KEY + 1, SECOND, 100.2)
    found = finder.end(100.2)
    assert found is not None
    assert (found.room, found.containers) == (Room(7, 2), [FIRST, SECOND])
    assert found.keys == [FIRST_KEY, FIRST_KEY + 1]
    assert finder.end(200.0) is None


def test_or_when_no_more_come() -> None:
    finder = RoomFinder()
    finder.look(REQUEST, 3)
    finder.begin(100.0)
    assert finder.came(FIRST_KEY, FIRST, 102.9)
    assert finder.end(105.8) is None
    found = finder.end(105.9)
    assert found is not None
    assert found.room == Room(7, 1)


def test_however_slowly_they_come_it_is_over_some_time() -> None:
    finder = RoomFinder()
    finder.look(REQUEST, 100)
    finder.begin(100.0)
    for second in range(29):
        finder.came(FIRST_KEY + second, FIRST, 100.0 + second)
    assert finder.end(129.0) is None
    assert finder.end(130.0) is not None


def test_one_look_after_the_other() -> None:
    finder = RoomFinder()
    finder.look(REQUEST, 1)
    finder.begin(100.0)
    finder.look(ContainerRequest(8, 2, 128, 1), 1)
    assert finder.begin(101.0) == []
    found = finder.end(103.0)
    assert found is not None
    assert found.room == Room(7, 0)
    assert [request.memory for request in finder.begin(103.0)] == [128]


def test_a_container_of_an_ended_search_is_not_counted_for_the_next_one() -> None:
    finder = RoomFinder()
    finder.look(REQUEST, 1)
    (first,) = finder.begin(100.0)
    assert finder.end(103.0) is not None
    finder.look(REQUEST, 1)
    (second,) = finder.begin(103.0)
    assert not finder.came(first.key, FIRST, 103.1)
    assert finder.came(second.key, SECOND, 103.1)


def test_the_jobs_own_containers_are_none_of_these() -> None:
    finder = RoomFinder()
    assert not finder.came(1, FIRST, 100.0)
    finder.look(REQUEST, 1)
    finder.begin(100.0)
    assert not finder.came(1, FIRST, 100.0)
