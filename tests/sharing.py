"""A pytest plugin: with several workers, tests of what is dear to start run in the same ones.

With `--dist loadfile` those of one file do; and so do all files whose tests take the Kerberos cluster, of which one is
enough: by its fixture, or by that of a place on it. Files whose tests need a cluster, a browser or a whole Airflow are
for the first two workers alone: each that had one of them would start it anew, and two cores are full with two of each.
The others take what mostly waits.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

FIXTURES = ("secure_hadoop", "secure")
WITH_DAEMONS = 2  # workers
_TAKEN = re.compile(rf"\b({'|'.join(FIXTURES)}): ")  # as a test's argument
# By arguments and parameters that lead to a cluster, and by what is imported. A file too many here only has to wait for
# one of the first workers; of one that is missing `tests/test_sharing.py` tells.
_STARTS = re.compile(
    r"\b(hadoop|start_hadoop|yarn|place|wide|outcomes|object_server): |\"(hadoop|secure_hadoop|yarn)\""
    r"|\bhdfs: Place\b|tests\.(browser|hadoop\.resolve|e2e\.(browser|database))\b"
)


@cache  # it is asked after each test
def needs_daemons(text: str) -> bool:
    """Whether a test of a file with this text may start some."""
    return _TAKEN.search(text) is not None or _STARTS.search(text) is not None


class FilesTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return FIXTURES[0] if _TAKEN.search(self._text(file)) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._best_for(node), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and not _may_start_daemons(node) and self._is_dear(self._best_for(node)):
            node.shutdown()  # what is left is for the others
        else:
            super()._reschedule(node)

    def _best_for(self, node: WorkerController) -> str:
        """What is for the first workers alone they do first: the longest are among it."""
        wanted = _may_start_daemons(node)
        waiting: list[str] = list(self.workqueue)
        return next((scope for scope in waiting if self._is_dear(scope) is wanted), waiting[0])

    def _is_dear(self, scope: str) -> bool:
        return scope == FIXTURES[0] or needs_daemons(self._text(scope))

    def _text(self, file: str) -> str:
        return _text(self.config.rootpath / file)


def _may_start_daemons(node: WorkerController) -> bool:
    return int(node.gateway.id.removeprefix("gw")) < WITH_DAEMONS


@cache
def _text(path: Path) -> str:
    return path.read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether | None:
    """None leaves it to what else `--dist` may say."""
    return FilesTogether(config, log) if config.getoption("dist") == "loadfile" else None
