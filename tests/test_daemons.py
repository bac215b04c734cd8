"""``make unit`` has every test that starts no daemon and trains nothing, and no other."""

from __future__ import annotations

import pytest

from tests.daemons import NO_DAEMONS, NO_TRAININGS

FIXTURES = """
    import pytest

    @pytest.fixture
    def yarn(hadoop): ...

    @pytest.fixture
    def local(): ...

    @pytest.fixture(params=["local", "yarn"])
    def place(request):
        return request.getfixturevalue(request.param)
"""


PLUGINS = ("-p", "tests.daemons", "-p", "tests.hadoop.fixtures", "-p", "no:asyncio")


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makeconftest(FIXTURES)
    pytester.makepyfile(tests)
    return pytester.runpytest_inprocess(*PLUGINS, *options)


def test_a_cluster_behind_other_fixtures_is_not_started(pytester: pytest.Pytester) -> None:
    tests = "def test_alone(): ...\ndef test_local(local): ...\ndef test_yarn(yarn): ..."
    run(pytester, tests, NO_DAEMONS).assert_outcomes(passed=2, deselected=1)


def test_a_cluster_that_is_asked_for_by_a_parameter_is_not_started(pytester: pytest.Pytester) -> None:
    tests = "def test_anywhere(place): ...\ndef test_everywhere(place): ..."
    run(pytester, tests, NO_DAEMONS).assert_outcomes(passed=2, skipped=2)


def test_a_file_that_can_start_a_browser_is_left_out(pytester: pytest.Pytester) -> None:
    tests = "from tests.browser import browser\ndef test_page(): ..."
    run(pytester, tests, NO_DAEMONS).assert_outcomes(deselected=1)


def test_what_trains_on_the_embedded_cluster_is_left_out(pytester: pytest.Pytester) -> None:
    tests = "def test_alone(): ...\ndef test_local(local): ...\ndef test_anywhere(place): ..."
    run(pytester, tests, NO_DAEMONS, NO_TRAININGS).assert_outcomes(passed=1, deselected=3)


def test_without_the_option_nothing_is_left_out(pytester: pytest.Pytester) -> None:
    tests = "from tests.browser import browser\ndef test_yarn(yarn): ...\ndef test_anywhere(place): ..."
    run(pytester, tests, "--collect-only").stdout.fnmatch_lines(["*3 tests collected*"])
