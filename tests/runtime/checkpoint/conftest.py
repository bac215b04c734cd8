"""Samples of real checkpoints, files like those of PyTorch, and the stores that hold checkpoints."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.storage.conftest import place, webhdfs_config

__all__ = ["place", "webhdfs_config"]

SCRIPT = Path(__file__).with_name("tensorflow_samples.py")
SAMPLES = Path(__file__).with_name("samples")
LONG_AGO = time.time() - 3600

Sample = Callable[[str], Path]


def run_tensorflow(what: str, directory: Path) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), what, str(directory)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def tensorflow_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``tensorflow_samples.py`` writes. Do not change it."""
    directory = tmp_path_factory.mktemp("tensorflow")
    run_tensorflow("write", directory)
    return directory


@pytest.fixture
def sample(tmp_path: Path, request: pytest.FixtureRequest) -> Sample:
    """A copy of a directory with real checkpoints, an hour old, to do anything with."""

    def copy(name: str) -> Path:
        kept = SAMPLES / name
        source = kept if kept.exists() else request.getfixturevalue("tensorflow_samples") / name
        target = tmp_path / "checkpoints"
        shutil.copytree(source, target)
        return age(target)

    return copy


def age(directory: Path, when: float = LONG_AGO) -> Path:
    for path in directory.rglob("*"):
        os.utime(path, (when, when), follow_symlinks=False)
    return directory


def torch_like(path: Path, state: object, *, at: float) -> Path:
    """Write a file as ``torch.save`` does, with the members that the readers need. ``at``: seconds since the epoch."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
        archive.writestr("archive/version", "3")
    os.utime(path, (at, at))
    return path
