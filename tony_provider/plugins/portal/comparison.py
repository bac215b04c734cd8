"""What differs between the specifications of a few jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def differences(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The places at which the documents differ, such as ``tasks.worker.memory``, with each one's value.

    None where a document has nothing at that place.
    """
    flat = [dict(_leaves(document, "")) for document in documents]
    paths = sorted({path for each in flat for path in each})
    values = {path: [each.get(path) for each in flat] for path in paths}
    return {path: found for path, found in values.items() if any(each != found[0] for each in found)}


def entries(document: Mapping[str, Any]) -> int:
    """How many places with a value a document has."""
    return len(_leaves(document, ""))


def _leaves(value: Mapping[str, Any], path: str) -> list[tuple[str, Any]]:
    """Lists are values: which of their items is which, nobody can tell."""
    found: list[tuple[str, Any]] = []
    for key, each in value.items():
        place = f"{path}.{key}" if path else key
        found += _leaves(each, place) if isinstance(each, Mapping) and each else [(place, each)]
    return found
