"""The tasks whose checkpoints are stored in a generation."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.ranks import ranks, saves_checkpoints
from tony_provider.runtime.spec.model import MirrorScope


def mirror_ranks(mirror: MirrorScope, members: Sequence[Task]) -> Sequence[tuple[str, int]]:
    """Return name and rank of the tasks whose checkpoint directories are stored, by rank."""
    if mirror is MirrorScope.OFF:
        return []
    return _ranks(members, all_ranks=mirror is not MirrorScope.LEADER)


def checkpoint_makers(mirror: MirrorScope, members: Sequence[Task]) -> tuple[str, ...]:
    """Return the tasks that receive requests for a checkpoint: rank 0, or all tasks with the scope ``all``."""
    return tuple(name for name, _ in _ranks(members, all_ranks=mirror is MirrorScope.ALL))


def _ranks(members: Sequence[Task], *, all_ranks: bool) -> list[tuple[str, int]]:
    rank_of = ranks(members)
    ranked = [
        (task.name, rank_of[task.type, task.index])
        for task in members
        if (task.type, task.index) in rank_of and saves_checkpoints(task.role)
    ]
    ranked.sort(key=lambda pair: pair[1])
    return ranked if all_ranks else ranked[:1]
