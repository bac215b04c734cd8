"""Whose checkpoints count in a generation."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.ranks import ranks
from tony_provider.runtime.spec.model import MirrorScope, Role


def mirror_ranks(mirror: MirrorScope, cluster: ClusterSpec) -> Sequence[tuple[str, int]]:
    """Name and rank of the tasks whose checkpoint directories are copied to the store, by rank."""
    if mirror is MirrorScope.OFF:
        return []
    return _ranks(cluster, all_ranks=mirror is MirrorScope.ALL)


def checkpoint_makers(mirror: MirrorScope, cluster: ClusterSpec) -> tuple[str, ...]:
    """The tasks to ask for a checkpoint; rank 0 where the program writes to the store itself."""
    return tuple(name for name, _ in _ranks(cluster, all_ranks=mirror is MirrorScope.ALL))


def _ranks(cluster: ClusterSpec, *, all_ranks: bool) -> list[tuple[str, int]]:
    rank_of = ranks(cluster.tasks)
    ranked = [
        (f"{task.type}:{task.index}", rank_of[task.type, task.index])
        for task in cluster.tasks
        if (task.type, task.index) in rank_of and task.role is not Role.PS
    ]
    ranked.sort(key=lambda pair: pair[1])
    return ranked if all_ranks else ranked[:1]
