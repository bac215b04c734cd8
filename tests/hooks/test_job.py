"""The handle of a job, with a stand-in for its hook; test_local.py and test_control.py have real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest

from tests.operators.statuses import ID, application, status
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.cluster.training.results import ApplicationRef
from tony_provider.hooks import job as job_module
from tony_provider.hooks.job import NoJobDirectory, TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.local import LocalStorage

TRAINING = Identity("train", "0")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_provider.cluster.interface._POLL", 0.001)
    monkeypatch.setattr(job_module, "_LONGEST_PAUSE", 0.002)


def job(root: Path | None = None, identity: Identity | None = TRAINING, **answers: Any) -> TonyJob:
    """``answers``: return values of the hook's methods; a list has one for each call."""
    hook = mock.Mock(storage=LocalStorage, layout=Layout(f"file://{root}"))
    for name, answer in answers.items():
        many = {"side_effect": answer} if isinstance(answer, list) else {"return_value": answer}
        getattr(hook, name).configure_mock(**many)
    return TonyJob(hook, ID, identity)


def test_its_end_is_waited_for() -> None:
    states = [application("ACCEPTED"), application("RUNNING"), application("FINISHED")]
    done = status("SUCCEEDED")
    assert job(application=states, job_status=done).wait() == done


@pytest.mark.parametrize("left", [None, status("RUNNING")])
def test_a_job_that_was_killed_leaves_no_result(left: Any) -> None:
    assert job(application=application("KILLED"), job_status=left).wait() is None


def test_the_result_of_a_job_that_the_cluster_has_forgotten_counts() -> None:
    failed = status("FAILED")
    assert job(application=None, job_status=failed).wait() == failed


def test_a_job_is_waited_for_no_longer_than_was_said() -> None:
    with pytest.raises(TimeoutError, match=rf"{ID} has not ended within 0\.01 s"):
        job(application=application("RUNNING")).wait(0.01)


def test_a_job_without_files_here_can_be_killed_and_says_what_is_missing(tmp_path: Path) -> None:
    foreign = job(tmp_path, identity=None)
    foreign.kill("enough")
    foreign.hook.kill.assert_called_once_with(ID, "enough")  # type: ignore[attr-defined]
    for ask in (foreign.status, foreign.labels, foreign.history, foreign.stored_logs):
        with pytest.raises(NoJobDirectory, match=f"{ID} has no directory in file://{tmp_path}"):
            ask()


@pytest.mark.parametrize(("known", "identity"), [(True, TRAINING), (False, None)])
def test_the_training_of_a_job_is_looked_up_unless_it_is_given(
    monkeypatch: pytest.MonkeyPatch, known: bool, identity: Identity | None
) -> None:
    asked: list[str] = []

    def look(_: TonyHook, *, application_id: str) -> ApplicationRef | None:
        asked.append(application_id)
        return ApplicationRef(application_id, None, TRAINING) if known else None

    monkeypatch.setattr(TonyHook, "application_ref", look)
    hook = TonyHook()
    assert hook.job(ID) == TonyJob(hook, ID, identity)
    other = Identity("other", "1")
    assert hook.job(ID, other).identity == other
    assert asked == [ID]


def test_the_log_of_the_newest_container_comes_first_then_the_running_master(tmp_path: Path) -> None:
    own = job(tmp_path, application=[application("RUNNING"), application("FINISHED")])
    own.hook.get_conn().task_log.return_value = b"now\n"  # type: ignore[attr-defined]
    assert own.logs("worker:0") == b"now\n"
    assert own.logs("worker:0") is None
    logs = Path(own.directory.removeprefix("file://")) / "logs"
    logs.mkdir(parents=True)
    for number, name in enumerate(("worker-0.log", "worker-0.attempt-2.log", "worker-1.log")):
        (logs / name).write_text(f"line {number}\n")
    assert own.logs("worker:0", 4) == b"e 1\n"
    assert [each.name for each in own.stored_logs("worker:0")] == ["worker-0.log", "worker-0.attempt-2.log"]
    assert len(own.stored_logs()) == 3


@pytest.mark.parametrize("action", ["checkpoint", "suspend", "resume"])
def test_requests_go_to_its_master(action: str) -> None:
    own = job(control={"state": "RUNNING"})
    assert getattr(own, action)("because") == {"state": "RUNNING"}
    own.hook.control.assert_called_once_with(ID, action, {"reason": "because"}, seconds=mock.ANY)  # type: ignore[attr-defined]


def test_a_job_is_the_same_through_another_hook() -> None:
    own = job()
    assert own == attrs.evolve(own, hook=mock.Mock())
    assert str(own) == ID
