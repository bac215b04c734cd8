"""An installation without the provider, for processes that find this folder on their PYTHONPATH.

Python imports this module before anything else. The provider's files are there still; that it is installed, and with
it its entry points, is hidden.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import importlib_metadata  # Airflow asks this one on Python 3.11, and that of Python itself on newer ones

_HIDDEN = "tony_provider-"  # how its folder begins: to ask each for its name would be to read hundreds of files


def _hide(metadata: ModuleType) -> None:
    found = metadata.distributions

    def others(**wanted: Any) -> Iterator[Any]:
        return (each for each in found(**wanted) if not each._path.name.startswith(_HIDDEN))

    metadata.distributions = others  # type: ignore[attr-defined]


_hide(importlib.metadata)
_hide(importlib_metadata)
