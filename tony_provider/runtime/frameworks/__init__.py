"""Registry of the frameworks that a job can name: built-in ones, and plugins from other packages' entry points."""

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
from tony_provider.runtime.jobspec.model import Role, TaskSpec, role_of

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
    """No framework has this name."""


def names() -> tuple[str, ...]:
    """Return the names of all frameworks: the possible values of a job's ``framework``."""
    return (*_OURS, *(name for name in base.plugin_names() if name not in _OURS))


def get_framework(name: str) -> Framework:
    """Return the framework with this name.

    Raises UnknownFrameworkError, which lists the known names, or LookupError if a plugin cannot be loaded.
    """
    if name in _OURS:
        return _OURS[name]
    found = base.load_plugin(name)
    if found is None:
        raise UnknownFrameworkError(f"no framework {name!r}; there are {', '.join(names())}")
    return found


def has_default_command(framework: object, task_type: str, role: object = None) -> bool:
    """Return whether the framework runs its own command in tasks of this type, such as a node of Ray.

    Without ``role``, the name of the task type decides. Unknown frameworks and roles have no command.
    """
    try:
        found = Role(role) if role else role_of(task_type, TaskSpec())
        return bool(get_framework(str(framework)).default_command(found))
    except (LookupError, ValueError):
        return False
