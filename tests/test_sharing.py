"""Which tests run in which worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemons import needs_daemons as item_needs_daemons
from tests.sharing import needs_daemons

ROOT = Path(__file__).parents[1]
SAYS_WHERE = """
import os, pathlib, pytest

@pytest.fixture
def {fixture}():
    pass

@pytest.mark.parametrize("number", range(4))
def test_it(number, {fixture}: None) -> None:
    with pathlib.Path("{where}").open("a") as where:
        print(os.environ["PYTEST_XDIST_WORKER"], file=where)
"""


def test_files_whose_tests_start_daemons_are_known(request: pytest.FixtureRequest) -> None:
    """Of all those that were asked for."""
    files = {item.path for item in request.session.items if item_needs_daemons(item)}
    assert [str(path) for path in sorted(files) if not needs_daemons(path.read_text())] == []


def test_what_starts_daemons_is_for_the_first_two_workers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = pytester.path / "where"
    where.mkdir()

    def write(name: str, fixture: str) -> None:
        text = SAYS_WHERE.format(fixture=fixture, where=where / name)
        (pytester.path / f"test_{name}.py").write_text(text)

    for number in range(5):
        write(f"dear_{number}", "hadoop")
        write(f"cheap_{number}", "nothing")
    for number in range(2):
        write(f"secure_{number}", "secure_hadoop")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = pytester.runpytest_subprocess(
        "-p", "tests.sharing", "--numprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder"
    )
    done.assert_outcomes(passed=48)
    workers = {path.name: set(path.read_text().split()) for path in where.iterdir()}
    assert all(len(each) == 1 for each in workers.values())
    assert set.union(*(each for name, each in workers.items() if "cheap" not in name)) <= {"gw0", "gw1"}
    assert workers["secure_0"] == workers["secure_1"]
    assert workers["cheap_0"] | workers["cheap_1"] == {"gw2", "gw3"}
