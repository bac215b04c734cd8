"""A distribution that brings a framework, installed for one test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tony_provider.runtime.frameworks import base

GOOD = """
from tony_provider.runtime.frameworks.base import Framework, TaskEnvironment

class Mine(Framework):
    name = "mine"

    def environment(self, job, cluster, task_type, index):
        return TaskEnvironment({"MINE": "1"})
"""
Install = Callable[[str, str], None]


def forget() -> None:
    base.load_plugin.cache_clear()
    base.entry_points.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution with a package, whose text is given, and an entry point."""

    def add(text: str, entry_point: str) -> None:
        (tmp_path / "my_frameworks").mkdir()
        (tmp_path / "my_frameworks" / "__init__.py").write_text(text)
        info = tmp_path / "my_frameworks-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-frameworks\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[{base.GROUP}]\n{entry_point}\n")
        forget()

    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield add
    forget()
    sys.modules.pop("my_frameworks", None)
