"""Python environments with frameworks that the tests themselves do not need, made once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's, with its python3-torch
PINS = ("jax==0.10.2", "xgboost==3.2.0", "ray==2.60.0", "numpy==2.4.6")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as whom containers may run here
HOROVOD = "horovod==0.28.1"  # built from source, some four minutes, for Debian's PyTorch
# The last ones that know PyTorch 1.13, and what they want of others: theirs would bring another PyTorch.
TRAINERS = (
    *("pytorch-lightning==1.9.5", "transformers==4.30.2", "torchmetrics==0.11.4", "accelerate==0.20.3"),
    *("lightning-utilities==0.11.9", "tokenizers==0.13.3", "huggingface-hub==0.19.4", "safetensors==0.4.5"),
    *("regex", "tqdm", "fsspec", "packaging", "filelock", "requests", "PyYAML", "typing-extensions", "psutil"),
    *("urllib3", "idna", "certifi", "charset-normalizer", "setuptools<70"),
    *("tensorboard==2.21.0", "protobuf", "absl-py", "grpcio"),
)
JUPYTER = ("jupyterlab==4.6.6", "jupyter-server==2.21.1", "ipykernel==7.4.0", "tornado==6.6.1", "pyzmq==27.3.0")
_HOROVOD_OPTIONS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "MAKEFLAGS": "-j2",
}
_UV = Path(sys.executable).with_name("uv")


def environment() -> Path:
    """One with JAX, XGBoost and Ray. Raises subprocess.CalledProcessError."""
    return make_environment(PINS, lambda made: install(made, *PINS))


def notebook_environment() -> Path:
    """One with JupyterLab and a kernel. Raises subprocess.CalledProcessError."""
    return make_environment(JUPYTER, lambda made: install(made, *JUPYTER))


def torch_environment() -> Path:
    """One over Debian's PyTorch, whose ``bin`` has a ``python``. Raises subprocess.CalledProcessError."""
    return make_environment(("torch",), lambda made: None, "--system-site-packages", python=SYSTEM_PYTHON)


def trainers_environment() -> Path:
    """One with Lightning and transformers, over Debian's PyTorch. Raises subprocess.CalledProcessError."""
    return make_environment(
        TRAINERS, lambda made: install(made, *TRAINERS, "--no-deps"), "--system-site-packages", python=SYSTEM_PYTHON
    )


def horovod_environment() -> Path:
    """One with Horovod, over Debian's PyTorch. Raises subprocess.CalledProcessError."""

    def build(made: Path) -> None:
        install(made, "setuptools<70", "wheel", "packaging", "psutil", "cloudpickle", "pyyaml")
        install(made, "--no-build-isolation-package", "horovod", HOROVOD)

    return make_environment((HOROVOD,), build, "--system-site-packages", python=SYSTEM_PYTHON)


def make_environment(
    pins: Sequence[str], fill: Callable[[Path], None], *options: str, python: str = sys.executable
) -> Path:
    """Return the environment of these pins, and ``fill`` it first if it does not exist yet."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tony-provider" / "pythons"
    made = base / hashlib.sha256("\n".join([*pins, python, sys.version]).encode()).hexdigest()[:16]
    if not (made / "ready").exists():
        subprocess.run([_UV, "venv", "--quiet", "--clear", *options, "--python", python, made], check=True)
        fill(made)
        (made / "ready").touch()
    return made


def install(made: Path, *what: str) -> None:
    command = [str(_UV), "pip", "install", "--quiet", "--python", str(made / "bin" / "python"), *what]
    subprocess.run(command, check=True, env={**os.environ, **_HOROVOD_OPTIONS})


def mpi_environment() -> Path:
    """One over Debian's mpi4py, whose ``bin`` has a ``python``. Raises subprocess.CalledProcessError."""
    return make_environment(("mpi4py",), lambda made: None, "--system-site-packages", python=SYSTEM_PYTHON)


def has_torch() -> bool:
    return _has_module("torch")


def has_mpi() -> bool:
    return _has_module("mpi4py, numpy") and all(map(shutil.which, ("mpirun.openmpi", "mpirun.mpich")))


def _has_module(names: str) -> bool:
    return subprocess.run([SYSTEM_PYTHON, "-c", f"import {names}"], capture_output=True, check=False).returncode == 0
