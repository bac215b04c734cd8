"""The frameworks that jobs can name: ours, one file each, and those that other packages add by an entry point."""

from __future__ import annotations

from tony_provider.runtime.frameworks import base
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.frameworks.generic import Generic
from tony_provider.runtime.frameworks.horovod import Horovod
from tony_provider.runtime.frameworks.jax import Jax
from tony_provider.runtime.frameworks.mpi import MPI
from tony_provider.runtime.frameworks.mxnet import MXNet
from tony_provider.runtime.frameworks.pytorch import PyTorch
from tony_provider.runtime.frameworks.ray import Ray
from tony_provider.runtime.frameworks.standalone import Standalone
from tony_provider.runtime.frameworks.tensorflow import TensorFlow
from tony_provider.runtime.frameworks.xgboost import XGBoost

_OURS: dict[str, Framework] = {
    framework.name: framework
    for framework in (
        TensorFlow(),
        PyTorch(),
        Jax(),
        XGBoost(),
        Ray(),
        Horovod(),
        MPI(),
        MXNet(),
        Generic(),
        Standalone(),
    )
}


class UnknownFrameworkError(LookupError):
    """There is no framework with this name."""


def names() -> tuple[str, ...]:
    """The names of all frameworks: what a job's ``framework`` may be."""
    return (*_OURS, *(name for name in base.plugin_names() if name not in _OURS))


def get_framework(name: str) -> Framework:
    """The framework with this name.

    Raises UnknownFrameworkError, naming those there are; LookupError, saying why another package's cannot be loaded.
    """
    if name in _OURS:
        return _OURS[name]
    found = base.load_plugin(name)
    if found is None:
        raise UnknownFrameworkError(f"no framework {name!r}; there are {', '.join(names())}")
    return found
