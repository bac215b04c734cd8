"""Ending applications whose masters, here stand-ins, answer oddly; tests/hooks/test_control.py has real ones."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from tony_provider.watching.termination import Kill, stop_application

ID = "application_1700000000000_0001"


@pytest.mark.parametrize("ends_within", ["x", [], None, True, -1, 1e300, 1e9, float("nan"), float("inf")])
def test_a_master_that_says_no_time_of_its_end_is_killed(ends_within: Any) -> None:
    """Seen: a word in place of a number kept the job from being killed, and 30 years the worker waiting."""
    hook = mock.Mock()
    hook.control.return_value = {"ends_within": ends_within}
    assert stop_application(hook, ID, Kill("enough", "a try"), seconds=1.0) is None
    hook.kill.assert_called_once()
    hook.limit.assert_not_called()


def test_a_master_that_says_when_it_ends_is_waited_for() -> None:
    hook = mock.Mock()
    hook.control.return_value = {"ends_within": 150}
    assert stop_application(hook, ID, Kill("enough", "a try"), seconds=1.0) == 150
    hook.kill.assert_not_called()
