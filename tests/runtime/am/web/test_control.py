"""What can be asked of a running job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import attrs
import pytest

from tests.runtime.am.session.world import World, job
from tests.runtime.am.web.site import Answered, Master, OpenGate, Session, ask, router, serving
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.am.session.session_events import (
    CheckpointOrder,
    ExportRequested,
    ResizeOrder,
    ResumeOrder,
    StopOrder,
)
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.web_app import Routes
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.jobspec.model import Duration, Timeouts
from tony_provider.runtime.protocol.limits import KEEP_LOGS, RELEASE_WAIT, STOP_SLACK, stop_seconds
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus, TaskStory

TIMEOUTS = Timeouts(grace=Duration(30), checkpoint=Duration(60))


@attrs.frozen
class Place:
    server: WebServer
    master: Master

    async def put(self, what: str, body: object) -> Answered:
        return await ask(self.server, "PUT", f"/control/{what}", body)


@attrs.define
class Leading(Master):
    """The session is that of a world."""

    world: World | None = None

    def status(self) -> JobStatus:
        assert self.world
        return self.world.status


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    master = Master()
    async with serving(Routes(OpenGate(), router(master, TIMEOUTS)).answer) as server:
        yield Place(server, master)


async def test_a_stop_says_until_when_it_will_have_ended(place: Place) -> None:
    answered = await place.put("stop", {"reason": "marked failed"})
    assert answered.status == 202
    assert answered.json() == {"ends_within": pytest.approx(stop_seconds(30, 60))}
    assert place.master.asked == [StopOrder("marked failed", 30)]


async def test_asked_again_it_does_not_hurry_but_for_a_shorter_grace(place: Place) -> None:
    first = (await place.put("stop", {"reason": "one", "grace": 100})).json()["ends_within"]
    again = (await place.put("stop", {"reason": "two", "grace": 100})).json()["ends_within"]
    assert again < first
    await place.put("stop", {"reason": "three", "grace": 1000})
    assert place.master.asked == [StopOrder("one", 100)]
    sooner = (await place.put("stop", {"reason": "four", "grace": 0})).json()["ends_within"]
    assert sooner == pytest.approx(stop_seconds(0, 60))
    assert place.master.asked[1:] == [StopOrder("four", 0)]


async def test_a_job_that_is_ending_already_goes_on_ending(place: Place) -> None:
    place.master.session.verdict = Verdict(FinalStatus.FAILED, "it failed")
    answered = await place.put("stop", {"reason": "marked failed"})
    assert answered.json() == {"ends_within": pytest.approx(stop_seconds(30, 60))}
    assert place.master.asked == []


async def test_a_checkpoint_can_be_asked_for(place: Place) -> None:
    answered = await place.put("checkpoint", {"reason": "before the night"})
    assert answered.status == 202
    assert answered.json()["newest"]["step"] == 40
    assert place.master.asked == [CheckpointOrder("before the night")]


async def test_an_export_can_be_asked_for(place: Place) -> None:
    answered = await place.put("export", {"reason": "to evaluate it"})
    assert answered.status == 202
    answer = answered.json()
    assert (answer["newest"], answer["checkpoint"]["step"]) == (None, 40)
    assert abs(answer["asked_ms"] - epoch_ms()) < 60_000
    assert place.master.asked == [ExportRequested("to evaluate it", answer["asked_ms"])]
    assert (await place.put("export", {"reason": ""})).status == 400


async def test_a_job_that_is_ending_saves_and_exports_nothing_more(place: Place) -> None:
    place.master.session.verdict = Verdict(FinalStatus.KILLED, "enough")
    answered = await place.put("export", {"reason": "to evaluate it"})
    assert (answered.status, answered.json()["error"]) == (409, "the job is ending: no task is left to export a model")
    assert (await place.put("checkpoint", {"reason": "before the night"})).status == 409
    assert place.master.asked == []


async def test_a_job_can_be_suspended(place: Place) -> None:
    answered = await place.put("suspend", {"reason": "the day belongs to others"})
    assert answered.status == 202
    longest = CHECKPOINT_WAIT + 30 + 60 + STOP_SLACK + KEEP_LOGS + RELEASE_WAIT
    assert answered.json() == {"suspended_within": longest, "state": "RUNNING"}
    place.master.session.phase = JobState.SUSPENDED
    again = await place.put("suspend", {"reason": "the day belongs to others"})
    assert (again.status, again.json()) == (202, {"suspended_within": 0.0, "state": "SUSPENDED"})


async def test_and_resumed(place: Place) -> None:
    place.master.session.phase = JobState.SUSPENDED
    answered = await place.put("resume", {"reason": "it is night"})
    assert (answered.status, answered.json()) == (202, {"state": "SUSPENDED"})
    assert place.master.asked == [ResumeOrder("it is night")]


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("suspend", "the job is ending: it cannot be suspended any more"),
        ("resume", "the job is ending: it cannot be resumed any more"),
    ],
)
@pytest.mark.parametrize("verdict", [None, Verdict(FinalStatus.KILLED, "enough")])
async def test_a_job_that_is_ending_is_not_suspended(
    place: Place, order: str, why: str, verdict: Verdict | None
) -> None:
    place.master.session.verdict = verdict
    place.master.session.phase = JobState.FINISHING
    answered = await place.put(order, {"reason": "r"})
    assert (answered.status, answered.json()["error"]) == (409, why)
    assert place.master.asked == []


@pytest.mark.parametrize("order", ["suspend", "resume"])
@pytest.mark.parametrize("body", [None, {}, {"reason": ""}, {"reason": "r", "until": "tomorrow"}])
async def test_these_orders_have_a_reason_and_nothing_else(place: Place, order: str, body: object) -> None:
    assert (await place.put(order, body)).status == 400
    assert place.master.asked == []


async def test_a_job_is_resized(place: Place) -> None:
    answered = await place.put("resize", {"tasks": {"worker": 4}, "reason": "there is room"})
    assert (answered.status, answered.json()) == (202, {"before": {"worker": 2}, "state": "RUNNING"})
    assert place.master.asked == [ResizeOrder({"worker": 4}, "there is room")]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"tasks": {"worker": 6}, "reason": "r"}, "not {'worker': 6}"),
        ({"tasks": {}, "reason": "r"}, "not {}"),
        ({"tasks": {"worker": 4}, "reason": ""}, "reason: must be text of 1 to 2000 characters"),
        ({"tasks": {"worker": "4"}, "reason": "r"}, "ResizeOrder.tasks['worker']"),
        ({"tasks": {"worker": True}, "reason": "r"}, "ResizeOrder.tasks['worker']"),
        ({"tasks": {"worker": 4.5}, "reason": "r"}, "ResizeOrder.tasks['worker']"),
        ({"tasks": {"worker": None}, "reason": "r"}, "ResizeOrder.tasks['worker']"),
        ({"tasks": ["worker"], "reason": "r"}, "tasks"),
        ({"worker": 4, "reason": "r"}, "tasks"),
        (None, "the body is empty"),
    ],
)
async def test_what_cannot_be_is_refused_in_words(place: Place, body: object, why: str) -> None:
    answered = await place.put("resize", body)
    assert answered.status == 400
    assert why in answered.json()["error"]
    assert place.master.asked == []


async def test_a_job_that_is_ending_is_not_resized(place: Place) -> None:
    order = {"tasks": {"worker": 4}, "reason": "there is room"}
    place.master.session.resizing.is_too_late = True
    late = await place.put("resize", order)
    assert (late.status, "do not restart" in late.json()["error"]) == (409, True)
    place.master.session.verdict = Verdict(FinalStatus.KILLED, "enough")
    ending = await place.put("resize", order)
    assert (ending.status, ending.json()["error"]) == (409, "the job is ending: it cannot be resized any more")
    assert place.master.asked == []


async def test_the_status_is_the_jobs(place: Place) -> None:
    answered = await ask(place.server, "GET", "/status")
    assert answered.status == 200
    assert answered.headers["content-type"] == "application/json"
    assert load_json(answered.body, JobStatus) == place.master.status()


async def test_the_story_of_a_task_says_why_it_is_where_it_is() -> None:
    world = World(job({"worker": 1}), ["worker"]).run()
    world.end("worker:0", exit_code=3)
    async with serving(Routes(OpenGate(), router(Leading(cast(Session, world.session), world=world))).answer) as server:
        answered = await ask(server, "GET", "/story/worker-0")
        assert load_json(answered.body, TaskStory) == world.session.story("worker:0")
        assert (await ask(server, "GET", "/story/worker-1")).status == 404
    last = answered.json()["transitions"][-1]
    assert (last["subject"], last["before"], last["after"], last["event"]) == (
        "worker:0",
        "RUNNING",
        "FAILED",
        "ProcessEnd",
    )
    assert last["why"].startswith("its user process failed: worker:0 on node1:1 ended with exit code 3")


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
