"""The examples on the frameworks' pages, run as they stand there, for frameworks that the tests themselves do not need.

Those of the others are in tests/documents. MXNet's is run by none: its last release runs on no Python of today.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.framework_examples import model_files, place, run_example
from tests.kinds.environments import AS_ROOT, environment, horovod_environment, mpi_environment, torch_environment

__all__ = ["place"]


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch(place: Path) -> None:
    assert model_files(run_example("pytorch", place, str(torch_environment()))) == ["model.pt"]


@pytest.mark.long
def test_jax(place: Path) -> None:
    assert model_files(run_example("jax", place, str(environment()))) == ["weights.npy"]


@pytest.mark.long
def test_xgboost(place: Path) -> None:
    assert model_files(run_example("xgboost", place, str(environment()))) == ["model.json"]


@pytest.mark.long
def test_ray(place: Path) -> None:
    squares = sum(number * number for number in range(100))
    assert run_example("ray", place, str(environment()))["returned"] == {"total": squares}


@pytest.mark.long
@pytest.mark.usefixtures("mpi")
def test_mpi(place: Path) -> None:
    given = run_example("mpi", place, str(mpi_environment()), env=AS_ROOT)
    assert given["returned"] == {"size": 3, "total": 6}


@pytest.mark.long
@pytest.mark.timeout(1500)  # with Horovod's build
@pytest.mark.usefixtures("torch")
def test_horovod(place: Path) -> None:
    assert model_files(run_example("horovod", place, str(horovod_environment()))) == ["model.pt"]
