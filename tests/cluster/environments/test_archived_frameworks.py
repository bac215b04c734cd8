"""Frameworks of other packages on their way to the nodes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.runtime.frameworks.installed import GOOD, Install, install
from tests.shared_runtime import launch_words
from tony_provider.cluster.environments.runtime_archive import _files, worker_archive
from tony_provider.runtime.frameworks import base

__all__ = ["install"]


def test_one_that_is_half_removed_is_no_other_job_s_trouble(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(GOOD, "mine = my_frameworks.there_is_none:Mine")
    worker_archive(tmp_path / "cache")
    assert "mine (my_frameworks.there_is_none:Mine) is left out of the archive" in caplog.text


def test_of_a_large_package_only_the_part_travels_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "acme" / "ml"
    part.mkdir(parents=True)
    for file in (
        tmp_path / "acme" / "__init__.py",
        tmp_path / "acme" / "large.py",
        part / "mine.py",
        part / "other.py",
    ):
        file.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sorted(name for name, _ in _files("acme.ml.mine")) == [
        "acme/__init__.py",
        "acme/ml/mine.py",
        "acme/ml/other.py",
    ]


def test_it_travels_in_the_runtime_archive(install: Install, tmp_path: Path) -> None:
    before = worker_archive(tmp_path / "cache")
    install(GOOD, "mine = my_frameworks:Mine")
    archive = worker_archive(tmp_path / "cache")
    assert archive != before
    with zipfile.ZipFile(archive) as packed:
        (runtime,) = [name for name in packed.namelist() if name.endswith("/runtime.zip")]
        with zipfile.ZipFile(packed.open(runtime)) as inner:
            inner.extractall(tmp_path / "node")
    assert (tmp_path / "node" / "my_frameworks" / "__init__.py").read_text() == GOOD
    (distribution,) = [found for found in metadata.distributions(path=[str(tmp_path / "node")]) if found.entry_points]
    assert [(point.name, point.group) for point in distribution.entry_points] == [("mine", base.GROUP)]


def test_a_node_finds_it(install: Install, tmp_path: Path) -> None:
    install(GOOD, "mine = my_frameworks:Mine")
    container = tmp_path / "container"
    subprocess.run(launch_words(worker_archive(tmp_path / "cache"), container, "am"), cwd=container, check=False)
    program = """if True:
        import runpy, sys
        sys.argv = ["start.py", "neither"]
        try:
            runpy.run_path("tony/start.py", run_name="__main__")
        except SystemExit:
            from tony_provider.runtime.frameworks import base
            print([point.value for point in base.entry_points()], base.entry_points()[0].load())
    """
    words = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(words, cwd=container, capture_output=True, text=True, check=False)
    assert done.stdout == "['my_frameworks:Mine'] <class 'my_frameworks.Mine'>\n", done.stderr
