"""Trying again what a store refuses for the time being."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import attrs
import pytest

from tony_provider.runtime.common import concurrency
from tony_provider.runtime.common.concurrency import Cancelled, pauses, retry, retry_blocking
from tony_provider.runtime.storage import StorageError, StorageNotFound, StorageTimeout, StorageUnreachable


@attrs.define
class Store:
    """Fails in these ways, one after the other, and then does not."""

    errors: list[type[StorageError]]
    tried: int = 0
    told: list[StorageError] = attrs.field(factory=list)
    cancelled: threading.Event = attrs.field(factory=threading.Event)

    def use(self) -> str:
        self.tried += 1
        if self.errors:
            raise self.errors.pop(0)("hdfs:///a", "read", "of the test")
        return "there"

    async def use_on_the_loop(self) -> str:
        return self.use()


def on_the_loop(store: Store, seconds: float) -> str:
    return asyncio.run(retry(store.use_on_the_loop, seconds, StorageUnreachable, store.told.append))


def in_a_thread(store: Store, seconds: float) -> str:
    return retry_blocking(store.use, seconds, StorageUnreachable, store.told.append, store.cancelled)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "FIRST_PAUSE", 0.01)


@pytest.fixture(params=[on_the_loop, in_a_thread])
def use(request: pytest.FixtureRequest) -> Callable[[Store, float], str]:
    found: Callable[[Store, float], str] = request.param
    return found


def test_what_passes_is_waited_for_and_told_once(use: Callable[[Store, float], str]) -> None:
    store = Store([StorageTimeout, StorageUnreachable])
    assert use(store, 60) == "there"
    assert (store.tried, [type(error) for error in store.told]) == (3, [StorageTimeout])


def test_what_is_no_matter_of_time_is_not_waited_for(use: Callable[[Store, float], str]) -> None:
    store = Store([StorageTimeout, StorageUnreachable, StorageNotFound])
    with pytest.raises(StorageNotFound):
        use(store, 60)
    assert store.tried == 3


def test_there_is_an_end(use: Callable[[Store, float], str]) -> None:
    store = Store([StorageUnreachable] * 1000)
    with pytest.raises(StorageUnreachable):
        use(store, 0.1)
    assert 1 < store.tried < 10


def test_a_stop_ends_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "FIRST_PAUSE", 3600)
    store = Store([StorageUnreachable])
    threading.Timer(0.1, store.cancelled.set).start()
    with pytest.raises(Cancelled):
        in_a_thread(store, 7200)
    assert store.tried == 1


def test_pauses_grow_to_their_maximum_with_jitter() -> None:
    found = pauses(1.0, 4.0, jitter=0.5)
    for middle in (1.0, 2.0, 4.0, 4.0):
        assert middle * 0.5 <= next(found) <= middle * 1.5
