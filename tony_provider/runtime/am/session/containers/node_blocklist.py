"""Nodes that containers are lost on again and again are avoided, as long as enough others are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.am.session.actions import AvoidNodes


class NodeBlocklist:
    def __init__(self, most_losses: int) -> None:
        """``most_losses`` on one node until it is avoided; 0: never."""
        self._most_losses = most_losses
        self._seen: set[str] = set()
        self._avoided: tuple[str, ...] = ()
        self.losses: Counter[str] = Counter()

    def saw(self, node: str) -> None:
        """The cluster gave a container there."""
        self._seen.add(node)

    def restore(self, losses: Mapping[str, int]) -> None:
        """What a former application master knew."""
        self.losses.update(losses)
        self._seen.update(losses)

    def lost(self, node: str) -> Optional[AvoidNodes]:
        """A container was lost there. What is to be avoided from now on, when that is something else than before."""
        self.saw(node)
        self.losses[node] += 1
        return self.choose()

    def lift(self) -> Optional[AvoidNodes]:
        """Nothing else is to be had: take what there is. Until the next loss."""
        return self._avoid(())

    def choose(self) -> Optional[AvoidNodes]:
        """What is to be avoided by all that is known, when that is something else than before."""
        bad = [node for node, losses in self.losses.most_common() if 0 < self._most_losses <= losses]
        return self._avoid(tuple(sorted(bad[: len(self._seen) // 2])))  # never all: a small cluster would be locked out

    def _avoid(self, nodes: tuple[str, ...]) -> Optional[AvoidNodes]:
        if nodes == self._avoided:
            return None
        self._avoided = nodes
        return AvoidNodes(nodes)
