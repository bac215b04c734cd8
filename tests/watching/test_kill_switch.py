"""Whose switch it is that was pulled."""

from __future__ import annotations

from unittest import mock

import pytest

from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.watching.kill_switch import KillSwitch

JOB = TonyJob(mock.Mock(), "application_1700000000000_0001", Identity("train", "0"))


def test_what_ended_one_try_says_nothing_of_the_next_one_of_the_same_process() -> None:
    first = KillSwitch().of("try 1")
    first.job = JOB
    first.pulled = True
    assert first.of("try 1") is first, "the same try goes on after it was deferred"
    second = first.of("try 2")
    assert (second.pulled, second.job, second.whose) == (False, None, "try 2")


def test_a_kill_before_a_try_has_begun_is_not_lost() -> None:
    switch = KillSwitch()
    switch.pulled = True
    assert switch.of("try 1").pulled


def test_what_keeps_a_kill_from_its_cluster_is_told_and_the_task_wakes_up(caplog: pytest.LogCaptureFixture) -> None:
    switch = KillSwitch()
    switch.job = JOB
    switch.job.hook.application.side_effect = KeyError("no hook")  # type: ignore[attr-defined]
    switch.pull("enough")
    assert "application_1700000000000_0001 could not be ended: 'no hook'" in caplog.text
    assert switch._woken.is_set()
