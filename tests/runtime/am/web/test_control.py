"""What can be asked of a running job."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest

from tests.runtime.am.web.site import Answered, Master, OpenGate, ask, router, serving
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.web.routes import Routes
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.codec import load_json
from tony_provider.runtime.protocol.status import FinalStatus, JobStatus
from tony_provider.runtime.protocol.timing import stop_seconds
from tony_provider.runtime.spec.model import Duration, Timeouts

TIMEOUTS = Timeouts(grace=Duration(30), checkpoint=Duration(60))


@attrs.frozen
class Place:
    server: WebServer
    master: Master

    async def put(self, what: str, body: object) -> Answered:
        return await ask(self.server, "PUT", f"/control/{what}", body)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    master = Master()
    async with serving(Routes(OpenGate(), router(master, TIMEOUTS)).answer) as server:
        yield Place(server, master)


async def test_a_stop_says_until_when_it_will_have_ended(place: Place) -> None:
    answered = await place.put("stop", {"reason": "marked failed"})
    assert answered.status == 202
    assert answered.json() == {"ends_within": pytest.approx(stop_seconds(30, 60))}
    assert place.master.asked == [("stop", "marked failed", 30)]


async def test_asked_again_it_does_not_hurry_but_for_a_shorter_grace(place: Place) -> None:
    first = (await place.put("stop", {"reason": "one", "grace": 100})).json()["ends_within"]
    again = (await place.put("stop", {"reason": "two", "grace": 100})).json()["ends_within"]
    assert again < first
    await place.put("stop", {"reason": "three", "grace": 1000})
    assert place.master.asked == [("stop", "one", 100)]
    sooner = (await place.put("stop", {"reason": "four", "grace": 0})).json()["ends_within"]
    assert sooner == pytest.approx(stop_seconds(0, 60))
    assert place.master.asked[1:] == [("stop", "four", 0)]


async def test_a_job_that_is_ending_already_goes_on_ending(place: Place) -> None:
    place.master.session.verdict = Verdict(FinalStatus.FAILED, "it failed")
    answered = await place.put("stop", {"reason": "marked failed"})
    assert answered.json() == {"ends_within": pytest.approx(stop_seconds(30, 60))}
    assert place.master.asked == []


async def test_a_checkpoint_can_be_asked_for(place: Place) -> None:
    answered = await place.put("checkpoint", {"reason": "before the night"})
    assert answered.status == 202
    assert answered.json()["newest"]["step"] == 40
    assert place.master.asked == [("checkpoint", "before the night")]


async def test_an_export_can_be_asked_for(place: Place) -> None:
    answered = await place.put("export", {"reason": "to evaluate it"})
    assert answered.status == 202
    answer = answered.json()
    assert (answer["asked_ms"], answer["newest"], answer["checkpoint"]["step"]) == (1700000000000, None, 40)
    assert place.master.asked == [("export", "to evaluate it")]
    assert (await place.put("export", {"reason": ""})).status == 400


async def test_a_job_that_is_ending_exports_nothing_more(place: Place) -> None:
    place.master.session.verdict = Verdict(FinalStatus.KILLED, "enough")
    answered = await place.put("export", {"reason": "to evaluate it"})
    assert (answered.status, answered.json()["error"]) == (409, "the job is ending: nobody is left to export a model")
    assert place.master.asked == []


async def test_the_status_is_the_jobs(place: Place) -> None:
    answered = await ask(place.server, "GET", "/status")
    assert answered.status == 200
    assert answered.headers["content-type"] == "application/json"
    assert load_json(answered.body, JobStatus) == place.master.status()


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"stop",
        [],
        {},
        {"reason": ""},
        {"reason": 1},
        {"reason": "r" * 2001},
        b'{"reason": "\\ud800"}',
        {"reason": "r", "grace": -1},
        {"reason": "r", "grace": "soon"},
        {"reason": "r", "grace": "NaN"},
        {"reason": "r", "grace": "Infinity"},
        {"reason": "r", "grace": 1e9},
        {"reason": "r", "grace": True},
        {"reason": "r", "gracious": 3},
        b"[" * 60000,
        b"\xff",
    ],
)
async def test_an_order_that_is_none_changes_nothing(place: Place, body: object) -> None:
    answered = await place.put("stop", body)
    assert answered.status == 400
    assert answered.json()["error"]
    assert place.master.asked == []


async def test_other_pages_and_methods_are_not_there(place: Place) -> None:
    assert (await ask(place.server, "GET", "/control/stop")).status == 405
    answered = await ask(place.server, "POST", "/status")
    assert answered.status == 405
    assert answered.headers["allow"] == "GET, HEAD"
    assert (await ask(place.server, "GET", "/control/../status")).status == 404
    assert place.master.asked == []
