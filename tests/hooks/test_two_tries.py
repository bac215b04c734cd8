"""Two tries of one training at the same time: one application does the work, whoever submits when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.hooks.jobs import ended, identity, job, running
from tests.waiting import until
from tony_provider.cluster.base import Submission
from tony_provider.cluster.errors import StagingFailed, SubmissionRefused
from tony_provider.cluster.lineage_choice import Resume
from tony_provider.cluster.local.cluster import LocalCluster
from tony_provider.cluster.yarn.cluster import YarnCluster
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.spec.model import JobSpec


@pytest.fixture(params=["local", "yarn"])
def hook(request: pytest.FixtureRequest) -> TonyHook:
    found: TonyHook = request.getfixturevalue(request.param)
    return found


def long_job(folder: Path) -> JobSpec:
    """Leaves a file for each application whose user process has run."""
    return job(f"touch {folder}/$TONY_APPLICATION_ID; exec sleep 600", timeouts={"grace": "1s"})


def workers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("application_*"))


def submit(folder: Path, resume: Resume = Resume.AUTO) -> str | None:
    """None when another try has taken over before anything was started."""
    with TonyHook() as hook:
        try:
            return hook.submit(long_job(folder), identity=identity(hook), resume=resume)
        except StagingFailed as error:
            assert "taken over" in str(error)  # noqa: PT017
            return None


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> Callable[[threading.Event, threading.Event], None]:
    """Makes the first submission wait just before the cluster hears of it, until told to go on."""

    def hold(reached: threading.Event, go_on: threading.Event) -> None:
        for kind in (LocalCluster, YarnCluster):
            real = kind.submit

            def slow(
                self: LocalCluster | YarnCluster, submission: Submission, real: Callable[..., None] = real
            ) -> None:
                if not reached.is_set():
                    reached.set()
                    assert go_on.wait(120)
                real(self, submission)

            monkeypatch.setattr(kind, "submit", slow)

    return hold


@pytest.mark.parametrize("resume", [Resume.AUTO, Resume.NEVER])
def test_a_try_that_was_overtaken_just_before_its_submission_does_no_work(
    hook: TonyHook,
    tmp_path: Path,
    held_back: Callable[[threading.Event, threading.Event], None],
    resume: Resume,
) -> None:
    """Whether the one that overtakes it goes on in its lineage, or opens another."""
    reached, go_on = threading.Event(), threading.Event()
    held_back(reached, go_on)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(submit, tmp_path)
        try:
            assert reached.wait(120)
            second = submit(tmp_path, resume)
        finally:
            go_on.set()
        late = first.result(120)
    assert late is not None
    assert second is not None
    which = identity(hook)
    assert ended(hook, late).id == late
    status = hook.job_status(which, late)
    assert status is not None
    assert status.failure is not None
    assert status.failure.kind is FailureKind.FENCED
    running(hook, which, second)
    until(lambda: workers(tmp_path), "the user process")
    assert workers(tmp_path) == [second]
    hook.kill(second, "enough")
    ended(hook, second)


def test_many_tries_at_once_leave_one_application(hook: TonyHook, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        submitted = [found for found in pool.map(submit, [tmp_path] * 3) if found is not None]
    which = identity(hook)
    lineage = hook.lineage(which, owner(hook))
    assert lineage is not None
    assert lineage.name == "L0001"
    for application_id in submitted:
        if application_id != owner(hook):
            ended(hook, application_id)
    assert [application.id for application in hook.find(which)] == [owner(hook)]
    running(hook, which, owner(hook))
    hook.kill(owner(hook), "enough")
    ended(hook, owner(hook))


def test_a_submission_that_is_refused_changes_nothing(local: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above all, a training that has succeeded and is cleared does not take itself for one that failed."""
    which = identity(local)
    first = local.submit(job("true"), identity=which)
    ended(local, first)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LocalCluster, "submit", refuse)
        with pytest.raises(SubmissionRefused, match="the queue is stopped"):
            local.submit(job("true"), identity=which)
    assert owner(local) == first
    second = local.submit(job("true"), identity=which)
    ended(local, second)
    lineage = local.lineage(which, second)
    assert lineage is not None
    assert lineage.name == "L0002"


def refuse(*_: object) -> None:
    raise SubmissionRefused("the queue is stopped")


def owner(hook: TonyHook) -> str:
    found = hook.predecessor(identity(hook))
    assert found is not None
    return found.application_id
