"""What a job is made of, one laid over the other, and of which of them each key is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tony_provider.runtime.spec.merge import merge

DEFAULT = "default"

_NOT_SAID: Any = object()


@attrs.frozen
class Layer:
    """A job, or a part of one, and whose word it is."""

    origin: str  # as people call it: "the job", "overrides"
    plain: Mapping[str, Any]


@attrs.frozen
class Layers:
    """What a job is made of, each over the one before; see ``merge``."""

    below_first: Sequence[Layer]

    def merged(self) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for layer in self.below_first:
            whole = merge(whole, layer.plain)
        return whole

    def over(self, plain: Mapping[str, Any], origin: str) -> Layers:
        """These, with another one above all."""
        return Layers([*self.below_first, Layer(origin, plain)])

    def origin(self, path: Sequence[str]) -> str:
        """Whose word a key of the job is; DEFAULT where nobody says anything, or the last word was to delete it."""
        for layer in reversed(self.below_first):
            said = _said(layer.plain, path)
            if said is None:
                return DEFAULT
            if said is not _NOT_SAID:
                return layer.origin
        return DEFAULT


def _said(plain: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What is said of a key, by itself or of one above it (a path in place of an input's mapping); None: deleted."""
    found: Any = plain
    for name in path:
        if not isinstance(found, Mapping):
            return found
        if name not in found:
            return _NOT_SAID
        found = found[name]
    return found
