from __future__ import annotations

import asyncio

import pytest

from tony_provider.runtime.common.concurrency import wait_with_timeout


async def test_what_the_work_gives() -> None:
    async def seven() -> int:
        return 7

    assert await wait_with_timeout(seven(), 30) == 7
    assert await wait_with_timeout(seven(), None) == 7


async def test_what_the_work_raises() -> None:
    async def fails() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await wait_with_timeout(fails(), 30)


async def test_work_that_takes_longer_is_ended() -> None:
    work = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(asyncio.TimeoutError):
        await wait_with_timeout(work, 0.01)
    assert work.cancelled()


async def test_work_that_ends_as_it_is_cancelled_has_given_something() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "just done"
        return ""

    assert await wait_with_timeout(stubborn(), 0.01) == "just done"


async def test_work_that_is_cancelled_by_somebody_else_is_no_matter_of_time() -> None:
    work = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(work.cancel)
    with pytest.raises(asyncio.CancelledError):
        await wait_with_timeout(work, 30)


async def test_the_work_ends_with_its_caller() -> None:
    work = asyncio.ensure_future(asyncio.Event().wait())
    caller = asyncio.ensure_future(wait_with_timeout(work, 30))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.cancelled()


@pytest.mark.parametrize("rounds", range(5))
async def test_a_cancellation_is_not_lost_when_the_work_is_just_done(rounds: int) -> None:
    """In whichever round of the loop it comes after the event."""
    event = asyncio.Event()
    caller = asyncio.ensure_future(wait_with_timeout(event.wait(), 30))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    event.set()
    for _ in range(rounds):
        await asyncio.sleep(0)
    if caller.cancel():
        with pytest.raises(asyncio.CancelledError):
            await caller
    else:
        assert await caller is True
