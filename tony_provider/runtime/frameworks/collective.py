"""Base of frameworks with collective operations: all processes train together and meet at rank 0."""

from __future__ import annotations

from abc import abstractmethod

import attrs

from tony_provider.runtime.common.network import Address
from tony_provider.runtime.frameworks.base import MAIN_PORT, ClusterSpec, Framework, TaskAddress, TaskEnvironment
from tony_provider.runtime.jobspec.model import JobSpec, Role, in_cluster, ranks


@attrs.frozen
class Member:
    """One process of a gang: its ranks and rendezvous address. Here a node is one task with its processes."""

    job: JobSpec
    task: TaskAddress  # address of the process
    rank: int
    world_size: int
    meeting: TaskAddress  # address of rank 0, where all processes meet
    generation: int
    node_rank: int
    node_count: int
    cross_rank: int  # rank among all processes with the same local rank, at most one in each node
    cross_size: int  # number of these processes

    @classmethod
    def of(cls, job: JobSpec, cluster: ClusterSpec, task: TaskAddress) -> Member:
        """Return the member for a process of the cluster that has a rank."""
        rank_of = ranks(cluster.tasks)
        own = rank_of[task.type, task.index]
        first = min(rank_of, key=rank_of.__getitem__)
        nodes, peers = [], []  # ranks
        for each in cluster.tasks:
            rank = rank_of.get((each.type, each.index))
            if rank is not None and each.local_rank == 0:
                nodes.append(rank)
            if rank is not None and each.local_rank == task.local_rank:
                peers.append(rank)
        return cls(
            job=job,
            task=task,
            rank=own,
            world_size=len(rank_of),
            meeting=cluster.task(*first),
            generation=cluster.generation,
            node_rank=sum(rank <= own for rank in nodes) - 1,
            node_count=len(nodes),
            cross_rank=sum(rank < own for rank in peers),
            cross_size=len(peers),
        )

    @property
    def local_rank(self) -> int:
        """The rank of the process in its container, from 0."""
        return self.task.local_rank

    @property
    def local_world_size(self) -> int:
        """The number of processes in its container."""
        return self.task.local_world_size

    @property
    def gpus(self) -> int:
        """The number of GPUs of its container."""
        return self.job.tasks[self.task.type].gpus

    def meeting_point(self, port: str = MAIN_PORT) -> Address:
        """Return the address of rank 0 with one of its named ports."""
        return Address(self.meeting.host, self.meeting.ports[port])


class CollectiveFramework(Framework):
    """Gang of chief and workers with ranks. It can start with any size, but no process can continue without the others.

    Evaluators and sidecars are not part of the gang and get none of the framework's variables.
    """

    forbidden_roles = ((Role.PS, "has no parameter servers; give it another role"),)

    def elastic(self, role: Role) -> bool:
        """Return True for workers: the next generation gets a new world size. No other task can replace the chief."""
        return role is Role.WORKER

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        task = cluster.task(task_type, index)
        if not in_cluster(task.role):
            return TaskEnvironment({})
        return self.membership(Member.of(job, cluster, task))

    @abstractmethod
    def membership(self, member: Member) -> TaskEnvironment:
        """Return the environment in which the process joins the gang. The executor calls this."""
