"""Jobs of several containers, and what a cluster's nodes and queues could hold."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tony_provider.cluster.errors import JobRejected, JobTooLarge
from tony_provider.cluster.yarn.cluster_view import ClusterView, Node, Queue, queues, shared_labels
from tony_provider.cluster.yarn.job_checks import capacity_shortages, present_shortages
from tony_provider.runtime.common.quantities import GPU
from tony_provider.runtime.jobspec.model import AmSpec, JobSpec, Memory, Milestone, Role, StartRule, TaskSpec

SUCCEEDED = Milestone.SUCCEEDED
GIB = 1024
PLAIN = [Node(host, frozenset(), {"memory-mb": 4 * GIB, "vcores": 4}) for host in ("a", "b")]
LABELLED = Node("c", frozenset({"gpu"}), {"memory-mb": 8 * GIB, "vcores": 8, GPU: 4})
TENTH = Queue("root.tenth", "RUNNING", True, False, None, maximum={"": 10.0, "gpu": 50.0})
VIEW = ClusterView(
    queues=[Queue("root.ml", "RUNNING", True, False, None, maximum={"": 100.0}), TENTH],
    labels=frozenset({"gpu"}),
    nodes=[*PLAIN, LABELLED],
    largest={"memory-mb": 8 * GIB, "vcores": 16, GPU: 4},
)


def job(count: int, memory: int, queue: str | None = "ml", am: int = 256, **more: Any) -> JobSpec:
    task = TaskSpec("true", instances=count, memory=Memory(memory), **more)
    return JobSpec("tensorflow", {"worker": task}, queue=queue, am=AmSpec(Memory(am)))


@pytest.mark.parametrize(
    "fitting",
    [
        job(1, 4 * GIB),
        job(7, GIB),
        job(1, 4 * GIB, am=4 * GIB),
        job(7, GIB, vcores=4),  # YARN may not heed them
        job(5, 3 * GIB, min_instances=2),
        job(4, 3 * GIB, queue=None),  # it may go anywhere: two on the labelled node
        job(4, GIB, node_label="gpu", gpus=1),
        job(1, 512, queue="tenth"),
        job(3, GIB, queue="tenth", node_label="gpu"),
        job(100, GIB, queue="nobody-s"),  # of a label that no node has yet
    ],
)
def test_what_has_room(fitting: JobSpec) -> None:
    view = attrs.evolve(VIEW, nodes=[]) if fitting.queue == "nobody-s" else VIEW
    assert capacity_shortages(fitting, view) == []


@pytest.mark.parametrize(
    ("large", "expected"),
    [
        (
            job(5, 4 * GIB),
            "1 x 256 MiB (am) + 5 x 4096 MiB (tasks.worker) is 20736 MiB; the nodes have 8192 MiB together",
        ),
        (
            job(5, 4 * GIB, min_instances=2),
            "1 x 256 MiB (am) + 2 x 4096 MiB (tasks.worker) is 8448 MiB; the nodes have 8192 MiB together",
        ),
        (
            job(3, 2 * GIB + 1),
            "3 containers of 2049 MiB or more are needed, but the nodes have room for only 2",
        ),
        (
            job(2, 2 * GIB + 512, am=2 * GIB + 256),
            "3 containers of 2304 MiB or more are needed, but the nodes have room for only 2",
        ),
        (
            job(5, GIB, node_label="gpu", gpus=1),
            "5 x 1 GPU (tasks.worker) is 5 GPUs; the nodes with the label 'gpu' have 4 GPUs together",
        ),
        (
            job(1, GIB, queue="tenth"),
            "1 x 256 MiB (am) + 1 x 1024 MiB (tasks.worker) is 1280 MiB; the queue gets at most 820 MiB, 10 % of the "
            "nodes",
        ),
        (
            job(5, GIB, queue="tenth", node_label="gpu"),
            "5 x 1024 MiB (tasks.worker) is 5120 MiB; the queue gets at most 4096 MiB, 50 % of the nodes with the "
            "label 'gpu'",
        ),
        (job(1, 9 * GIB), "tasks.worker.memory: no node has 9216 MiB; the largest amount on one node is 8192 MiB"),
    ],
)
def test_what_could_never_be_held(large: JobSpec, expected: str) -> None:
    assert capacity_shortages(large, VIEW) == [expected]


def staged(*after: str, memory: int = 4 * GIB) -> JobSpec:
    """A worker of two containers, something before it, and something after these types."""
    tasks = {
        "prepare": TaskSpec("true", memory=Memory(memory)),
        "worker": TaskSpec("true", instances=2, memory=Memory(memory)),
        "export": TaskSpec("true", memory=Memory(memory), role=Role.ONCE, after=dict.fromkeys(after, SUCCEEDED)),
    }
    return JobSpec("tensorflow", tasks, queue="ml", am=AmSpec(Memory(256)))


def test_types_that_are_never_there_together_need_room_one_after_the_other() -> None:
    nodes = [attrs.evolve(node, resources={**node.resources, "memory-mb": 5 * GIB}) for node in PLAIN]
    view = attrs.evolve(VIEW, nodes=nodes)
    assert capacity_shortages(staged("worker"), view) == []
    (problem,) = capacity_shortages(staged(), view)
    assert problem.startswith("1 x 256 MiB (am) + 2 x 4096 MiB (tasks.worker) + 1 x 4096 MiB (tasks.export) is")
    (problem,) = capacity_shortages(staged("worker", memory=5 * GIB), view)
    assert problem.startswith("1 x 256 MiB (am) + 2 x 5120 MiB (tasks.worker) is")
    narrow = attrs.evolve(
        VIEW, nodes=[attrs.evolve(nodes[0], resources={"memory-mb": 13 * GIB, "vcores": 4}), nodes[1]]
    )
    (problem,) = capacity_shortages(staged(memory=5 * GIB + 1), narrow)
    assert problem == "3 containers of 5121 MiB or more are needed, but the nodes have room for only 2"


def test_tasks_that_come_one_by_one_need_room_for_one() -> None:
    tasks = {name: TaskSpec("true", instances=9, memory=Memory(4 * GIB)) for name in ("worker", "more")}
    spec = JobSpec("standalone", tasks, start=StartRule.FIRST_COME, queue="ml", am=AmSpec(Memory(256)))
    nodes = [PLAIN[0], attrs.evolve(PLAIN[1], resources={"memory-mb": GIB, "vcores": 4})]
    assert capacity_shortages(spec, attrs.evolve(VIEW, nodes=nodes)) == []
    once = attrs.evolve(spec, tasks={**tasks, "once": TaskSpec("true", 9, Memory(4 * GIB), role=Role.ONCE)})
    assert capacity_shortages(once, attrs.evolve(VIEW, nodes=nodes)) == []
    served = attrs.evolve(spec, tasks={**tasks, "sidecar": TaskSpec("true", 1, Memory(GIB))})
    assert capacity_shortages(served, attrs.evolve(VIEW, nodes=nodes)) != []


def test_idle_nodes_of_a_shared_label_count() -> None:
    shared = attrs.evolve(VIEW, shared_labels=frozenset({"gpu"}))
    assert capacity_shortages(job(3, 4 * GIB), shared) == []
    assert capacity_shortages(job(3, 4 * GIB), VIEW) != []


def test_where_the_queue_sends_containers_is_its_own_matter() -> None:
    sending = Queue("root.ml", "RUNNING", True, False, None, maximum={"": 1.0}, default_label="gpu")
    assert capacity_shortages(job(3, 4 * GIB), attrs.evolve(VIEW, queues=[sending])) == []


def test_a_retry_may_find_more_nodes() -> None:
    error = JobTooLarge(["too much"])
    assert isinstance(error, JobRejected)
    assert not error.permanent
    assert "set `autoscaling` in the tony connection" in str(error)


def test_maxima_and_default_labels_of_queues() -> None:
    parts = [{"partitionName": "", "absoluteMaxCapacity": 30.0}, {"partitionName": "gpu", "absoluteMaxCapacity": 50.0}]
    new = {"queueName": "new", "absoluteMaxCapacity": 30.0, "capacities": {"queueCapacitiesByPartition": parts}}
    old = {"queueName": "old", "absoluteMaxCapacity": 12.5, "defaultNodeLabelExpression": "gpu"}
    info = {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [new, old]}}
    found = {queue.name: queue for queue in queues({"scheduler": {"schedulerInfo": info}}) or []}
    assert (found["new"].maximum, found["new"].default_label) == ({"": 30.0, "gpu": 50.0}, "")
    assert (found["old"].maximum, found["old"].default_label) == ({"": 12.5}, "gpu")
    assert found["root"].maximum == {}


def test_labels_are_shared_unless_it_is_said_that_they_are_not() -> None:
    labels = [{"name": "a", "exclusivity": "true"}, {"name": "b", "exclusivity": "false"}, {"name": "c"}]
    assert shared_labels({"nodeLabelInfo": labels}) == {"b", "c"}
    assert shared_labels({"nodeLabels": ["d"]}) == {"d"}


def test_what_one_user_may_have_of_a_queue() -> None:
    """YARN gives a last container to whoever has not more than the limit before."""
    ml = Queue("root.ml", "RUNNING", True, False, None, maximum={"": 100.0}, guaranteed={"": 25.0}, user_factor=2.0)
    view = attrs.evolve(VIEW, queues=[ml])
    assert capacity_shortages(job(4, GIB), view) == []
    assert capacity_shortages(job(5, GIB), attrs.evolve(view, queues=[attrs.evolve(ml, user_factor=None)])) == []
    assert capacity_shortages(job(6, GIB), view) == [
        "1 x 256 MiB (am) + 6 x 1024 MiB (tasks.worker) is 6400 MiB; each user of the queue gets at most 4096 MiB, "
        "2 times its 25 % of the nodes"
    ]
    # However small the queue, one container is given.
    tiny = attrs.evolve(ml, guaranteed={"": 1.0}, user_factor=1.0)
    assert capacity_shortages(job(1, GIB), attrs.evolve(view, queues=[tiny])) == []


def test_what_is_not_free_now_is_waited_for() -> None:
    busy = [attrs.evolve(node, free={"memory-mb": 2 * GIB, "vcores": -1}) for node in PLAIN]
    view = attrs.evolve(VIEW, nodes=[*busy, attrs.evolve(LABELLED, free={"memory-mb": 8 * GIB, GPU: 2})])
    assert present_shortages(job(2, GIB), view) == []
    assert present_shortages(job(1, 3 * GIB, node_label="gpu", gpus=4), view) == [
        "tasks.worker.gpus: no node with the label 'gpu' has 4 GPUs free; the largest amount on one node is 2 GPUs"
    ]
    assert present_shortages(job(4, 1536), view) == [
        "1 x 256 MiB (am) + 4 x 1536 MiB (tasks.worker) is 6400 MiB; the nodes have 4096 MiB free together"
    ]
    assert present_shortages(job(2, 2 * GIB), view) == [
        "1 x 256 MiB (am) + 2 x 2048 MiB (tasks.worker) is 4352 MiB; the nodes have 4096 MiB free together"
    ]
