"""The frameworks that jobs can name, one file each."""

from __future__ import annotations

from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.frameworks.standalone import Standalone
from tony_provider.runtime.frameworks.tensorflow import TensorFlow

_FRAMEWORKS: dict[str, Framework] = {framework.name: framework for framework in (TensorFlow(), Standalone())}


def names() -> tuple[str, ...]:
    """The names of all frameworks: what a job's ``framework`` may be."""
    return tuple(_FRAMEWORKS)


def get_framework(name: str) -> Framework:
    """The framework with this name. Raises LookupError, naming those there are."""
    try:
        return _FRAMEWORKS[name]
    except KeyError:
        raise LookupError(f"no framework {name!r}; there are {', '.join(_FRAMEWORKS)}") from None
