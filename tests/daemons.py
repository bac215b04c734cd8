"""A pytest plugin: ``--no-daemons`` leaves out every test that starts Hadoop, a KDC, PostgreSQL, a browser or a JVM.

Nobody marks those tests. What starts such a thing is known, and so is who reaches it: by a fixture, whatever fixtures
are between, or by what the test's file imports.
"""

from __future__ import annotations

from types import ModuleType

import pytest

OPTION = "--no-daemons"
# All clusters, with HDFS, YARN and the KDC, are started by it. It skips by itself a test that asks for it only while it
# runs, by a parameter's name.
FIXTURES = {"start_hadoop"}
STARTERS = {"tests.browser", "tests.e2e.browser", "tests.e2e.database", "tests.hadoop.resolve"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="leave out what needs a JVM, Hadoop, PostgreSQL or a browser")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption(OPTION):
        config.hook.pytest_deselected(items=[item for item in items if _needs_daemons(item)])
        items[:] = [item for item in items if not _needs_daemons(item)]


def _needs_daemons(item: pytest.Item) -> bool:
    fixtures = FIXTURES & set(getattr(item, "fixturenames", ()))
    return bool(fixtures) or _imports_starter(getattr(item, "module", None))


def _imports_starter(module: ModuleType | None) -> bool:
    return any(getattr(value, "__module__", None) in STARTERS for value in vars(module or ModuleType("")).values())
