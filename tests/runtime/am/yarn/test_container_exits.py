from __future__ import annotations

import pytest

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason
from tony_provider.runtime.am.yarn.yarn_resource_manager import exit_of_status


@pytest.mark.parametrize("code", [0, 1, 65, 143])
def test_a_code_is_the_programs(code: int) -> None:
    ended = exit_of_status(code)
    assert (ended.reason, ended.exit_code) == (ExitReason.EXITED, code)


@pytest.mark.parametrize("status", [-1000, *range(-109, -99)])
def test_what_yarn_has_a_number_for_has_a_reason_of_its_own(status: int) -> None:
    ended = exit_of_status(status)
    assert ended.reason not in (ExitReason.EXITED, ExitReason.OTHER)
    assert (ended.status, ended.exit_code) == (status, None)
    assert "exit code" not in descriptions.container_exit(ended)


def test_reasons_are_told_apart() -> None:
    assert len({exit_of_status(status).reason for status in (-1000, *range(-109, -99))}) == 11


def test_a_number_of_a_newer_yarn_is_no_exit_code_of_a_program() -> None:
    ended = exit_of_status(-110)
    assert ended == ContainerExit(ExitReason.OTHER, -110)
    assert ended.exit_code is None
    assert descriptions.container_exit(ended) == "ended with exit code -110"
