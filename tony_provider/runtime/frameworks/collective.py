"""The base of frameworks whose processes train together and meet at rank 0: any program of collective operations."""

from __future__ import annotations

from abc import abstractmethod

import attrs

from tony_provider.runtime.common.network import Address
from tony_provider.runtime.frameworks.base import MAIN_PORT, ClusterSpec, Framework, TaskAddress, TaskEnvironment
from tony_provider.runtime.jobspec.model import JobSpec, Role
from tony_provider.runtime.jobspec.problems import Problem, child
from tony_provider.runtime.jobspec.task_types import in_cluster, ranks


@attrs.frozen
class Member:
    """One process of a gang, as it sees the others. A node is a task: the processes of one container."""

    job: JobSpec
    task: TaskAddress  # the process's own
    rank: int
    world_size: int
    meeting: TaskAddress  # of rank 0, where all meet
    generation: int
    node_rank: int
    node_count: int
    cross_rank: int  # among the processes of its local rank, one of each node that has so many
    cross_size: int  # how many those are

    @classmethod
    def of(cls, job: JobSpec, cluster: ClusterSpec, task: TaskAddress) -> Member:
        """A process of the cluster that has a rank."""
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
        """The number of the process in its container, from 0."""
        return self.task.local_rank

    @property
    def local_world_size(self) -> int:
        """How many processes its container runs."""
        return self.task.local_world_size

    @property
    def gpus(self) -> int:
        """How many GPUs its container has."""
        return self.job.tasks[self.task.type].gpus

    def meeting_point(self, port: str = MAIN_PORT) -> Address:
        """The address of rank 0 with one of its named ports."""
        return Address(self.meeting.host, self.meeting.ports[port])


class CollectiveFramework(Framework):
    """Chief and workers, each with a rank; none can go on without the others, and any number of them can train.

    Evaluators and side-cars find none of the framework's variables: they are not part of the gang.
    """

    def problems(self, job: JobSpec) -> list[Problem]:
        parameter_servers = [name for name, role in job.roles.items() if role is Role.PS]
        return [
            *super().problems(job),
            *(
                Problem(
                    child("tasks", name), Role.PS.value, f"{self.name} has no parameter servers; give it another role"
                )
                for name in parameter_servers
            ),
        ]

    def elastic(self, role: Role) -> bool:
        """True for workers: the next generation has another world size. The chief has what others lack."""
        return role is Role.WORKER

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        task = cluster.task(task_type, index)
        if not in_cluster(task.role):
            return TaskEnvironment({})
        return self.membership(Member.of(job, cluster, task))

    @abstractmethod
    def membership(self, member: Member) -> TaskEnvironment:
        """What the process finds to take part. Called on the executor's side."""
