"""Two tries of one training at the same time: one application does the work, whoever submits when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.jobs import ended, identity, job, processes_with, running
from tests.waiting import until
from tony_provider.cluster.errors import ClusterUnreachable, StagingFailed, SubmissionRefused
from tony_provider.cluster.interface import Submission
from tony_provider.cluster.local.local_cluster import LocalCluster
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.plan import Resume
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.checkpoint.stored_checkpoint import owner_file
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.storage.base import write_atomically


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.long), "yarn"])
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
            return hook.submit(SubmissionRequest(long_job(folder), identity(hook), resume=resume)).application_id
        except StagingFailed as error:
            assert "taken over" in str(error)  # noqa: PT017
            return None


Hold = Callable[[threading.Event, threading.Event, str], None]


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Makes the first try wait just before it asks this of the cluster, until told to go on."""

    def hold(reached: threading.Event, go_on: threading.Event, method: str) -> None:
        for kind in (LocalCluster, YarnCluster):
            real = getattr(kind, method)

            def slow(self: LocalCluster | YarnCluster, *arguments: Any, real: Callable[..., Any] = real) -> Any:
                if not reached.is_set():
                    reached.set()
                    assert go_on.wait(120)
                return real(self, *arguments)

            monkeypatch.setattr(kind, method, slow)

    return hold


def overtaken(folder: Path, held_back: Hold, method: str, resume: Resume = Resume.AUTO) -> tuple[str | None, str]:
    """The applications of a try that was held back there, and of the one that submitted meanwhile."""
    reached, go_on = threading.Event(), threading.Event()
    held_back(reached, go_on, method)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(submit, folder)
        try:
            assert reached.wait(120)
            second = submit(folder, resume)
        finally:
            go_on.set()
        late = first.result(120)
    assert second is not None
    return late, second


@pytest.mark.parametrize("resume", [Resume.AUTO, pytest.param(Resume.NEVER, marks=pytest.mark.long)])
def test_a_try_that_was_overtaken_just_before_its_submission_does_no_work(
    hook: TonyHook,
    tmp_path: Path,
    held_back: Hold,
    resume: Resume,
) -> None:
    """Whether the one that overtakes it goes on in its chain, or opens another."""
    late, second = overtaken(tmp_path, held_back, "submit", resume)
    assert late is not None
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


def test_a_try_that_was_overtaken_before_it_looks_for_others_ends_none(
    hook: TonyHook, tmp_path: Path, held_back: Hold
) -> None:
    """Or neither would train: the one is ended, and the other gives up."""
    late, second = overtaken(tmp_path, held_back, "applications")
    assert late is None
    assert [application.id for application in hook.find(identity(hook))] == [second]
    hook.kill(second, "enough")
    ended(hook, second)


def test_a_try_that_wakes_up_after_another_one_has_submitted_takes_nothing_over(
    hook: TonyHook, tmp_path: Path, held_back: Hold
) -> None:
    """It had its application id, and made its plan before the other one began."""
    late, second = overtaken(tmp_path, held_back, "new_application")
    assert late is None
    running(hook, identity(hook), second)
    assert [application.id for application in hook.find(identity(hook))] == [second]
    hook.kill(second, "enough")
    ended(hook, second)


def test_many_tries_at_once_leave_one_application(hook: TonyHook, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        submitted = [found for found in pool.map(submit, [tmp_path] * 3) if found is not None]
    which = identity(hook)
    chain = hook.job(owner(hook), which).owned_chain()
    assert chain is not None
    assert chain.name == "chain-0001"
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
    first = local.submit(SubmissionRequest(job("true"), which)).application_id
    ended(local, first)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LocalCluster, "submit", refuse)
        with pytest.raises(SubmissionRefused, match="the queue is stopped"):
            local.submit(SubmissionRequest(job("true"), which))
    assert owner(local) == first
    second = local.submit(SubmissionRequest(job("true"), which)).application_id
    ended(local, second)
    chain = local.job(second, which).owned_chain()
    assert chain is not None
    assert chain.name == "chain-0002"


def test_an_application_whose_owner_cannot_be_read_is_killed_if_its_submission_fails(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody watches it. The cluster has started it, and its answer was lost."""
    which, submit, started = identity(local), LocalCluster.submit, []

    def lose_the_answer(self: LocalCluster, submission: Submission) -> None:
        submit(self, submission)
        started.append(submission.description.application_id)
        newest = local.owners(which).newest()
        write_atomically(local.storage(), owner_file(local.layout.job_dir(which), newest.number), b"changed by hand")
        raise ClusterUnreachable("no answer")

    monkeypatch.setattr(LocalCluster, "submit", lose_the_answer)
    with pytest.raises(ClusterUnreachable, match="no answer"):
        local.submit(SubmissionRequest(job("exec sleep 600", timeouts={"grace": "1s"}), which))
    (application_id,) = started
    assert not processes_with(application_id)


def refuse(*_: object) -> None:
    raise SubmissionRefused("the queue is stopped")


def owner(hook: TonyHook) -> str:
    found = hook.previous_application(identity(hook))
    assert found is not None
    return found.application_id
