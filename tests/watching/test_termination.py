"""Ending applications whose masters, here stand-ins, answer oddly; tests/hooks/test_control.py has real ones."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any
from unittest import mock

import pytest

from tests.operators.statuses import application
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.watching.termination import (
    KillOrder,
    clean_up,
    end_from_triggerer,
    killed_for,
    logging_end_errors,
    stop_job,
    stop_when_submitted,
)

ID = "application_1700000000000_0001"


def job_of(hook: mock.Mock) -> TonyJob:
    return TonyJob(hook, ID, Identity("x", "0"))


@pytest.mark.parametrize("ends_within", ["x", [], None, True, -1, 1e300, 1e9, float("nan"), float("inf")])
def test_a_master_that_says_no_time_of_its_end_is_killed(ends_within: Any) -> None:
    """Seen: a word in place of a number kept the job from being killed, and 30 years the worker waiting."""
    hook = mock.Mock()
    hook.control.return_value = {"ends_within": ends_within}
    assert stop_job(job_of(hook), KillOrder("enough", "a try"), seconds=1.0) is None
    hook.kill.assert_called_once()
    hook.get_conn().limit.assert_not_called()


def test_a_master_that_says_when_it_ends_is_waited_for() -> None:
    hook = mock.Mock()
    hook.control.return_value = {"ends_within": 150}
    assert stop_job(job_of(hook), KillOrder("enough", "a try"), seconds=1.0) == 150
    hook.kill.assert_not_called()


def test_only_the_callers_thread_reads_the_connection() -> None:
    """Seen: the answer to another thread's question ended the triggerer of Airflow 3.0, with all triggers."""
    hook, opened_by = mock.Mock(), []

    def owners(_: Identity) -> mock.Mock:
        opened_by.append(threading.current_thread())
        return mock.Mock()

    hook.owners, hook.control.return_value = owners, {"ends_within": 3}
    stop_job(job_of(hook), KillOrder("enough", "a try"), seconds=1.0)
    assert opened_by == [threading.current_thread()]


def test_whose_kill_it_was_is_not_looked_for_from_each_of_thousands_of_beginnings() -> None:
    # 64 KiB of these took 3 s, in which nothing else of the process ran.
    assert killed_for(application(diagnostics="Killed by Airflow for try " * 2500)) is None
    assert killed_for(application(diagnostics=f"it was {KillOrder('enough', 'try 2 (0198)')}")) == "try 2 (0198)"


FOREIGN = [KeyError("state"), RecursionError("too deep"), TypeError("int"), ClusterUnreachable("away")]


@pytest.mark.parametrize("error", FOREIGN)
def test_a_master_whose_answer_cannot_be_understood_is_killed(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    hook = mock.Mock()
    hook.control.side_effect = error
    assert stop_job(job_of(hook), KillOrder("enough", "a try"), seconds=1.0) is None
    hook.kill.assert_called_once()
    assert f"Killing {ID} without a grace period: {error}" in caplog.text
    assert ("Traceback" in caplog.text) is not isinstance(error, ClusterUnreachable)


@pytest.mark.parametrize("error", FOREIGN)
def test_what_a_cluster_says_of_a_limit_keeps_nobody_from_waiting_for_the_end(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    hook = mock.Mock()
    hook.control.return_value, hook.get_conn().limit.side_effect = {"ends_within": 3}, error
    assert stop_job(job_of(hook), KillOrder("enough", "a try"), seconds=1.0) == 3
    assert "YARN did not accept a time limit" in caplog.text


@pytest.mark.parametrize("error", FOREIGN)
def test_whatever_keeps_an_application_from_being_ended_is_told(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: a thread of a signal handler died of it, with no word in the task's log."""
    hook = mock.Mock()
    hook.application.side_effect = error
    assert stop_when_submitted(job_of(hook), KillOrder("enough"), within=0.0)
    assert f"{ID} could not be ended: {error}" in caplog.text


@pytest.mark.parametrize("error", FOREIGN)
def test_what_is_left_of_an_application_hides_nothing_else(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    hook = mock.Mock()
    hook.storage.side_effect = error
    clean_up(job_of(hook), logging.getLogger().warning)
    assert f"Some unneeded files of {ID} could not be removed: {error}" in caplog.text


@pytest.mark.parametrize("error", FOREIGN)
async def test_a_triggerer_goes_on_to_the_kill_after_a_stop_that_failed(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    hook = mock.MagicMock()
    hook.__enter__.return_value = hook
    hook.control.side_effect, hook.application.side_effect = error, lambda _: application("KILLED")
    hook.kill.side_effect = [error, None]
    await end_from_triggerer(job_of(hook), KillOrder("a user has ended the task"))
    assert hook.kill.call_count == 2
    assert f"{ID} could not be ended: {error}" in caplog.text


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_what_interrupts_is_no_error_of_an_application(interruption: type[BaseException]) -> None:
    with pytest.raises(interruption), logging_end_errors(job_of(mock.Mock()), logging.getLogger()):
        raise interruption
