"""Nodes to avoid because they lose containers or lack something, as long as enough other nodes are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.am.session.actions import AvoidNodes


class NodeBlocklist:
    """Counts lost containers by node, and says which nodes to avoid."""

    def __init__(self, most_losses: int) -> None:
        """``most_losses`` on one node until it is avoided; 0: never."""
        self._most_losses = most_losses
        self._seen: set[str] = set()
        self._in_cluster = 0  # number of nodes, as far as the cluster reports it
        self._avoided: tuple[str, ...] = ()
        self.losses: Counter[str] = Counter()

    def saw(self, node: str) -> None:
        """Record that the cluster gave a container on this node."""
        self._seen.add(node)

    def restore(self, losses: Mapping[str, int]) -> None:
        """Take over what a former application master knew."""
        self.losses.update(losses)
        self._seen.update(losses)

    def counted(self, nodes: int) -> None:
        """Record the number of nodes that can run the job, for the next choice."""
        self._in_cluster = nodes

    def lost(self, node: str, *, unfit: bool = False) -> Optional[AvoidNodes]:
        """Count a container that was lost on this node. Return the nodes to avoid if they have changed.

        ``unfit``: the node lacks something, so it is avoided from the first loss on.
        """
        self.saw(node)
        self.losses[node] = max(self.losses[node] + 1, self._most_losses if unfit else 0)
        return self.choose()

    def lift(self) -> Optional[AvoidNodes]:
        """Avoid no node until the next loss: nothing else is to be had."""
        return self._avoid(())

    def choose(self) -> Optional[AvoidNodes]:
        """Choose by all that is known. Return the nodes to avoid if they have changed."""
        bad = [node for node, losses in self.losses.most_common() if 0 < self._most_losses <= losses]
        most = max(len(self._seen), self._in_cluster) // 2  # never all: a small cluster would be locked out
        return self._avoid(tuple(sorted(bad[:most])))

    def _avoid(self, nodes: tuple[str, ...]) -> Optional[AvoidNodes]:
        if nodes == self._avoided:
            return None
        self._avoided = nodes
        return AvoidNodes(nodes)
