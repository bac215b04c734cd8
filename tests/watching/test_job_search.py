"""Search and PolledJob against a scripted cluster: retries and outages in no time."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import attrs
import pytest

from tests.operators.statuses import application, status
from tests.watching.observations import TRAINING
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.results import ApplicationRef
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.watching.job_poller import FoundApplication, JobObservation, JobSearch, JobTarget, PolledJob

FIRST, SECOND = "application_1700000000000_0001", "application_1700000000000_0002"
OF_TRAINING, BY_ID, BY_TAG = JobTarget(identity=TRAINING), JobTarget(application_id=FIRST), JobTarget(tag="nightly")


class ScriptedHook:
    """Stands for the hook. ``owner``: the application that the store calls the training's."""

    def __init__(self) -> None:
        self.applications: dict[str, Application] = {}
        self.owner: str | None = None
        self.calls: Counter[str] = Counter()
        self.fault: Exception | None = None

    def run(self, application_id: str, state: str = "RUNNING") -> None:
        tags = [TRAINING.tag, "nightly"]
        self.applications[application_id] = attrs.evolve(application(state), id=application_id, tags=tags)
        self.owner = application_id

    def live(self) -> dict[str, Application]:
        return {each.id: each for each in self.applications.values() if not each.is_final}

    def find(self, identity: Identity) -> list[Application]:
        assert identity == TRAINING
        self.calls["find"] += 1
        if self.fault is not None:
            raise self.fault
        return list(reversed(self.live().values()))

    def newest_application(self, _: Identity) -> str | None:
        return self.owner

    def application(self, application_id: str) -> Application | None:
        if self.fault is not None:
            raise self.fault
        return self.applications.get(application_id)

    def job_status(self, _: Identity, application_id: str, **__: Any) -> JobStatus | None:
        return attrs.evolve(status(), application_id=application_id) if application_id in self.applications else None

    def application_ref(self, *, application_id: str = "", tag: str = "") -> ApplicationRef | None:
        if tag:
            return self._of_tag(tag)
        known = self.applications.get(application_id)
        return None if known is None else ApplicationRef(application_id, known, TRAINING)

    def _of_tag(self, tag: str) -> ApplicationRef | None:
        having = [each for each in self.applications.values() if tag in each.tags]
        return ApplicationRef(having[-1].id, having[-1], None) if having else None


@pytest.fixture
def hook() -> ScriptedHook:
    return ScriptedHook()


def look(search: JobSearch, hook: ScriptedHook) -> JobObservation:
    return search.look(cast(TonyHook, hook))


def looked_at(observation: JobObservation) -> str | None:
    return observation.found.application_id if observation.found is not None else None


@pytest.mark.parametrize("target", [OF_TRAINING, BY_ID, BY_TAG])
def test_it_is_there_when_it_is_there(hook: ScriptedHook, target: JobTarget) -> None:
    search = JobSearch(target)
    assert look(search, hook) == JobObservation()
    hook.run(FIRST)
    seen = look(search, hook)
    assert seen.found == FoundApplication(FIRST, TRAINING)
    assert seen.is_live
    assert seen.status is not None


@pytest.mark.parametrize(("target", "then"), [(OF_TRAINING, SECOND), (BY_TAG, SECOND), (BY_ID, FIRST)])
def test_a_retry_has_another_application_which_is_followed_once_the_first_has_ended(
    hook: ScriptedHook, target: JobTarget, then: str
) -> None:
    search = JobSearch(target)
    hook.run(FIRST)
    look(search, hook)
    hook.run(SECOND)
    assert looked_at(look(search, hook)) == FIRST
    hook.run(FIRST, "FAILED")
    hook.owner = SECOND
    hook.applications[SECOND] = hook.applications.pop(SECOND)
    assert looked_at(look(search, hook)) == then


def test_one_that_runs_is_not_searched_for_again(hook: ScriptedHook) -> None:
    search = JobSearch(OF_TRAINING)
    hook.run(FIRST)
    for _ in range(5):
        look(search, hook)
    assert hook.calls["find"] == 1


def test_one_that_is_about_to_be_submitted_is_absent(hook: ScriptedHook) -> None:
    search = JobSearch(OF_TRAINING)
    hook.run(FIRST, "FAILED")
    assert look(search, hook).has_ended
    hook.owner = SECOND
    seen = look(search, hook)
    assert looked_at(seen) == SECOND
    assert not seen.is_live
    assert not seen.has_ended


def test_an_outage_keeps_what_was_found(hook: ScriptedHook) -> None:
    search = JobSearch(OF_TRAINING)
    hook.fault = ClusterUnreachable("gone")
    assert look(search, hook) == JobObservation(outages=(hook.fault,))
    hook.fault = None
    hook.run(FIRST)
    look(search, hook)
    hook.fault = ClusterUnreachable("gone")
    assert look(search, hook) == JobObservation(outages=(hook.fault,), found=FoundApplication(FIRST, TRAINING))


@pytest.mark.parametrize("target", [OF_TRAINING, BY_ID, BY_TAG])
def test_the_list_of_applications_tells_when_a_look_is_due(hook: ScriptedHook, target: JobTarget) -> None:
    job = PolledJob(target, 3600.0)

    def is_due() -> bool:
        return not job.is_among(hook.live())

    def look_at_it() -> None:
        job.is_seen(job.look(cast(TonyHook, hook)))

    look_at_it()
    assert not is_due()  # there is nothing yet
    hook.run(FIRST)
    assert is_due()  # now there is
    look_at_it()
    assert not is_due()
    hook.run(FIRST, "FAILED")
    assert is_due()  # it has ended
    look_at_it()
    assert not is_due()
    hook.run(SECOND)
    assert is_due() is (target is not BY_ID)


async def test_what_the_list_says_keeps_the_newest_status(hook: ScriptedHook) -> None:
    job = PolledJob(OF_TRAINING, 3600.0)
    hook.run(FIRST)
    job.is_seen(job.look(cast(TonyHook, hook)))
    assert job.is_among(hook.live())
    seen = await job.next(1.0)
    assert seen is not None
    assert (seen.whole, looked_at(seen), seen.status is not None) == (False, FIRST, True)
