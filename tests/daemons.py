"""A pytest plugin: ``--no-daemons`` leaves out every test that starts Hadoop, a KDC, PostgreSQL, a browser or a JVM.

``--no-trainings`` leaves out those, too, that run whole trainings on the embedded local cluster.

Nobody marks those tests. What starts such a thing is known, and so is who reaches it: by a fixture, whatever fixtures
are between, or by what the test's file imports.
"""

from __future__ import annotations

from types import ModuleType

import pytest

NO_DAEMONS = "--no-daemons"
NO_TRAININGS = "--no-trainings"
# All clusters, with HDFS, YARN and the KDC, are started by it. It skips by itself a test that asks for it only while it
# runs, by a parameter's name.
FIXTURES = {"start_hadoop", "object_server"}
# Fixtures that are the embedded local cluster, or may be, and an example that is run on it.
EMBEDDED = {"local", "hook", "place", "digits_train"}
STARTERS = {"tests.browser", "tests.e2e.browser", "tests.e2e.database", "tests.hadoop.resolve"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(NO_DAEMONS, action="store_true", help="leave out Hadoop, a KDC, PostgreSQL, browsers and JVMs")
    parser.addoption(NO_TRAININGS, action="store_true", help="leave out what trains on the embedded local cluster")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {
        item
        for item in items
        if (config.getoption(NO_DAEMONS) and needs_daemons(item))
        or (config.getoption(NO_TRAININGS) and EMBEDDED & _fixtures(item))
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def needs_daemons(item: pytest.Item) -> bool:
    """Whether it starts any, by a fixture of its own or by what its file imports."""
    return bool(FIXTURES & _fixtures(item)) or _imports_starter(getattr(item, "module", None))


def _fixtures(item: pytest.Item) -> set[str]:
    """The names of those that it takes, and of those that a parameter of its names."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    return {*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))}


def _imports_starter(module: ModuleType | None) -> bool:
    return any(getattr(value, "__module__", None) in STARTERS for value in vars(module or ModuleType("")).values())
