"""Each key of a job, its value, and whose word that is, in lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.parsing.layers import DEFAULT, Layers
from tony_provider.runtime.parsing.overrides import dotted, leaves
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.tensorboard import without_its_task


def origins(job: JobSpec, completed: JobSpec, layers: Layers, conn_id: str, *, explain: bool) -> Iterator[str]:
    """A line for each key that somebody has given; ``explain``: for all others, too.

    ``completed`` is the job with the defaults of the connection of this id.
    """
    own = dict(leaves(_plain(job)))
    whole = dict(leaves(_plain(completed)))
    lines = [(dotted(path), _shown(value), _origin(layers, path, value, own, conn_id)) for path, value in whole.items()]
    given = [line for line in lines if explain or line[2] != DEFAULT]
    width = max((len(name) for name, _, _ in given), default=0)
    yield from (f"{name:<{width}}  {value}  ({origin})" for name, value, origin in given)


def _plain(job: JobSpec) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(without_its_task(job))
    return plain


def _origin(layers: Layers, path: tuple[str, ...], value: Any, own: dict[tuple[str, ...], Any], conn_id: str) -> str:
    if own.get(path) != value:
        return f"connection {conn_id}"
    return layers.origin(path)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)
