"""Registry of the frameworks that a job can name: built-in ones, and plugins from other packages' entry points."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from tony_provider.runtime.frameworks import base
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.jobspec.model import Role, TaskSpec, role_of

# Class of each built-in framework, by name, which is also the name of its module. A process loads only its job's.
_OURS = {
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
    "jax": "Jax",
    "xgboost": "XGBoost",
    "ray": "Ray",
    "horovod": "Horovod",
    "mpi": "MPI",
    "mxnet": "MXNet",
    "generic": "Generic",
    "standalone": "Standalone",
}


@cache
def _load(name: str) -> Framework:
    framework: Framework = getattr(import_module(f"{__name__}.{name}"), _OURS[name])()
    return framework


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
        return _load(name)
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
