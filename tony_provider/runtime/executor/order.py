"""The application master's order to start a user process."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.protocol import addresses, points, tony_pb2
from tony_provider.runtime.ranks import ranks


@attrs.frozen
class Order:
    """An order by a rendezvous: start the user process among these others, and let it go on from there."""

    start: int  # counts the starts of this task's process, over containers and application masters
    cluster: ClusterSpec
    resume: Optional[ResumePoint] = None  # None: from the beginning
    keep_checkpoints: bool = False  # the checkpoint directory stays as it is; the process goes on from what it holds

    @classmethod
    def of_message(cls, rendezvous: tony_pb2.Rendezvous) -> Order:
        resume = points.of_message(rendezvous.resume) if rendezvous.HasField("resume") else None
        cluster = addresses.unpack(rendezvous.generation, rendezvous.cluster)
        return cls(rendezvous.start, cluster, resume, rendezvous.keep_checkpoints)

    @property
    def generation(self) -> int:
        return self.cluster.generation

    def rank(self, task_type: str, index: int) -> Optional[int]:
        """The task's rank; None for tasks outside the cluster: evaluators, side-cars."""
        return ranks(self.cluster.tasks).get((task_type, index))

    def __str__(self) -> str:
        return f"start {self.start} (generation {self.generation})"
