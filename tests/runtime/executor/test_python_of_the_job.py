"""Whose ``python`` the commands of a job find, where it brings no environment along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tony_provider.runtime.executor.user_environment import write_shims


def of_image(folder: Path, *names: str) -> str:
    """The PATH of an image that has these."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f'#!/bin/sh\necho "the image\'s {name}"\n')
        (folder / name).chmod(0o755)
    return str(folder)


def said(bin_directory: Path, name: str, path: str) -> str:
    env = {"PATH": f"{bin_directory}:{path}"}
    program = "import sys; print(sys.executable)"
    return subprocess.run(["/bin/sh", "-c", f"{name} -c '{program}'"], env=env, capture_output=True, text=True).stdout


def test_on_a_node_it_is_the_one_that_suits_the_runtime(tmp_path: Path) -> None:
    path = of_image(tmp_path / "bin", "python", "python3")
    found = write_shims(tmp_path / "own", None)
    assert said(found, "python", path) == said(found, "python3", path) == f"{sys.executable}\n"


def test_in_an_image_it_is_the_images(tmp_path: Path) -> None:
    path = of_image(tmp_path / "bin", "python", "python3")
    found = write_shims(tmp_path / "own", path)
    assert said(found, "python", path) == "the image's python\n"
    assert said(found, "python3", path) == "the image's python3\n"


@pytest.mark.parametrize("only", ["python", "python3"])
def test_an_image_that_has_one_name_of_it_has_the_other_too(tmp_path: Path, only: str) -> None:
    path = of_image(tmp_path / "bin", only)
    found = write_shims(tmp_path / "own", path)
    assert said(found, "python", path) == said(found, "python3", path) == f"the image's {only}\n"


def test_in_an_image_without_any_it_is_the_one_that_was_brought_along(tmp_path: Path) -> None:
    path = of_image(tmp_path / "bin")
    found = write_shims(tmp_path / "own", path)
    assert said(found, "python", path) == said(found, "python3", path) == f"{sys.executable}\n"
