"""``make unit`` has every test that starts no daemon, and no other."""

from __future__ import annotations

import pytest

from tests.daemons import OPTION

CLUSTER = """
    import pytest

    @pytest.fixture
    def start_hadoop():
        raise AssertionError("a cluster was started")

    @pytest.fixture
    def yarn(start_hadoop): ...

    @pytest.fixture
    def local(): ...

    @pytest.fixture(params=["local", "yarn"])
    def place(request):
        return request.getfixturevalue(request.param)
"""


def run(pytester: pytest.Pytester, tests: str, *options: str) -> dict[str, int]:
    pytester.makeconftest(CLUSTER)
    pytester.makepyfile(tests)
    return pytester.runpytest_inprocess("-p", "tests.daemons", "-p", "no:asyncio", *options).parseoutcomes()


def test_a_cluster_behind_other_fixtures_is_not_started(pytester: pytest.Pytester) -> None:
    tests = "def test_alone(): ...\ndef test_local(local): ...\ndef test_yarn(yarn): ..."
    assert run(pytester, tests, OPTION) == {"passed": 2, "deselected": 1}


def test_a_cluster_that_is_asked_for_by_a_parameter_is_not_started(pytester: pytest.Pytester) -> None:
    assert run(pytester, "def test_anywhere(place): ...", OPTION) == {"passed": 1, "skipped": 1}


def test_a_file_that_can_start_a_browser_is_left_out(pytester: pytest.Pytester) -> None:
    assert run(pytester, "from tests.browser import browser\ndef test_page(): ...", OPTION) == {"deselected": 1}


def test_without_the_option_everything_runs(pytester: pytest.Pytester) -> None:
    assert run(pytester, "def test_alone(): ...\ndef test_yarn(yarn): ...") == {"passed": 1, "errors": 1}
