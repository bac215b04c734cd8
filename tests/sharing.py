"""A pytest plugin: with several workers, tests of what is dear to start run in the same one.

With `--dist loadfile` those of one file do; and so do all files whose tests take the Kerberos cluster, of which one is
enough: by its fixture, or by that of a place on it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

FIXTURES = ("secure_hadoop", "secure")
_TAKEN = re.compile(rf"\b({'|'.join(FIXTURES)}): ")  # as a test's argument
_ROOT = Path(__file__).parents[1]


class FilesTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return FIXTURES[0] if _shares(file) else file


@cache
def _shares(file: str) -> bool:
    return _TAKEN.search((_ROOT / file).read_text()) is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether | None:
    """None leaves it to what else `--dist` may say."""
    return FilesTogether(config, log) if config.getoption("dist") == "loadfile" else None
