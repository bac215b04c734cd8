"""Frameworks of other packages: classes that their entry points in the group ``tony_provider.frameworks`` name.

The same on Airflow's side and on the nodes, where the runtime archive has the package and its entry points.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Optional

from tony_provider.runtime.frameworks.base import Framework

if TYPE_CHECKING:
    from importlib import metadata

GROUP = "tony_provider.frameworks"


@cache
def entry_points() -> tuple[metadata.EntryPoint, ...]:
    """Those of the group, in the order of their names. Looks at every installed distribution, once."""
    from importlib import metadata  # hundreds of kilobytes, in each container, which few jobs need

    if sys.version_info >= (3, 10):
        found = list(metadata.entry_points(group=GROUP))
    else:
        found = list(metadata.entry_points().get(GROUP, ()))
    return tuple(sorted(set(found), key=lambda point: point.name))


def names() -> tuple[str, ...]:
    """The names that other packages give their frameworks."""
    return tuple(dict.fromkeys(point.name for point in entry_points()))


@cache
def load(name: str) -> Optional[Framework]:
    """The framework that another package calls so; None where no package does. Raises LookupError, saying why not."""
    point = next((point for point in entry_points() if point.name == name), None)
    if point is None:
        return None
    try:
        framework = point.load()()
    except Exception as error:  # whatever somebody else's module may raise
        raise LookupError(f"the framework {name!r} ({point.value}) cannot be loaded: {error!r}") from error
    if not isinstance(framework, Framework):
        raise LookupError(f"the framework {name!r} ({point.value}) is no Framework of {Framework.__module__}")  # noqa: TRY004
    return framework
