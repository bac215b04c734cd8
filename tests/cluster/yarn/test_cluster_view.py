"""The answers below are cut from what real ResourceManagers of these versions said."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tony_provider.cluster.yarn.cluster_view import (
    ClusterView,
    Node,
    Queue,
    node_labels,
    nodes,
    queues,
    resources,
    units,
)
from tony_provider.cluster.yarn.job_checks import capacity_shortages, job_problems
from tony_provider.runtime.common.quantities import GPU, ResourceAmount
from tony_provider.runtime.jobspec.model import AmSpec, JobSpec, Memory, TaskSpec
from tony_provider.runtime.jobspec.units import parse_resource_amount

LEAF = {"type": "capacitySchedulerLeafQueueInfo", "state": "RUNNING", "nodeLabels": ["gpu"]}


def test_queues_of_the_capacity_scheduler() -> None:
    info = {
        "type": "capacityScheduler",
        "queueName": "root",
        "queues": {
            "queue": [
                {**LEAF, "queueName": "default"},
                {"queueName": "prod", "state": "RUNNING", "queues": {"queue": {**LEAF, "queueName": "ml"}}},
                {"queueName": "users", "state": "RUNNING", "autoCreationEligibility": "flexible"},
            ]
        },
    }
    found = {queue.path: queue for queue in queues({"scheduler": {"schedulerInfo": info}}) or []}
    assert found["root.prod.ml"] == Queue("root.prod.ml", "RUNNING", True, False, frozenset({"gpu"}))
    assert not found["root.prod"].is_leaf
    assert not found["root"].is_leaf
    assert found["root.users"].makes_children


def test_other_schedulers_have_no_fixed_queues() -> None:
    assert queues({"scheduler": {"schedulerInfo": {"type": "fairScheduler"}}}) is None
    assert queues({}) is None


@pytest.mark.parametrize(
    "answer",
    [
        {"nodeLabelInfo": {"name": "gpu", "exclusivity": "true"}},
        {"nodeLabelInfo": [{"name": "gpu"}]},
        {"nodeLabels": ["gpu"]},
        {"nodeLabels": "gpu"},
    ],
)
def test_node_labels_of_any_version(answer: dict[str, Any]) -> None:
    assert node_labels(answer) == {"gpu"}


def test_no_labels_and_no_nodes() -> None:
    assert node_labels({}) == set()
    assert nodes({"nodes": None}) == []
    assert nodes({"nodes": ""}) == []


def test_nodes_with_and_without_totals() -> None:
    gpus = {"resourceInformations": {"resourceInformation": [{"name": GPU, "value": 2}, {"name": "memory-mb"}]}}
    new = {"nodeHostName": "a", "totalResource": {"memory": 4096, "vCores": 4, **gpus}, "nodeLabels": ["gpu"]}
    old = {
        "nodeHostName": "b",
        "usedMemoryMB": 96,
        "availMemoryMB": 4000,
        "usedVirtualCores": 1,
        "availableVirtualCores": 3,
        "availableResource": {"memory": 4000, "vCores": 3, **gpus},
    }
    expected = {"memory-mb": 4096, "vcores": 4, GPU: 2}
    assert nodes({"nodes": {"node": [new, old]}}) == [
        Node("a", frozenset({"gpu"}), expected, free={"memory-mb": 0, "vcores": 0}),
        Node("b", frozenset(), expected, free={"memory-mb": 4000, "vcores": 3, GPU: 2}),
    ]
    assert nodes({"nodes": {"node": new}}) == [
        Node("a", frozenset({"gpu"}), expected, free={"memory-mb": 0, "vcores": 0})
    ]
    assert resources({"memory": 1, "vCores": 2}) == {"memory-mb": 1, "vcores": 2}


VIEW = ClusterView(
    queues=[
        Queue("root", "RUNNING", False, False, None),
        Queue("root.ml", "RUNNING", True, False, frozenset()),
        Queue("root.old", "STOPPED", True, False, None),
        Queue("root.users", "RUNNING", False, True, None),
        Queue("root.prod", "RUNNING", False, False, None),
        Queue("root.prod.gpu", "RUNNING", True, False, frozenset({"gpu"})),
    ],
    labels=frozenset({"gpu", "big"}),
    nodes=[
        Node("a", frozenset(), {"memory-mb": 8192, "vcores": 4}),
        Node("b", frozenset({"gpu"}), {"memory-mb": 4096, "vcores": 16, GPU: 2}),
    ],
    largest={"memory-mb": 8192, "vcores": 16, GPU: 4},
)
UNITS = {"rate": "Gi", "share": "m"}
WITH_UNITS = attrs.evolve(
    VIEW,
    largest={**VIEW.largest, "rate": 40, "share": 5000, "fpga": 2},
    nodes=[Node("a", frozenset(), {"memory-mb": 8192, "vcores": 4, "rate": 20, "share": 5000, "fpga": 1})],
    units=UNITS,
)


def spec(queue: str | None = None, label: str | None = None, **task: Any) -> JobSpec:
    return JobSpec(
        "standalone", {"worker": TaskSpec("true", **task)}, queue=queue, node_label=label, am=AmSpec(Memory(64))
    )


@pytest.mark.parametrize(
    "job",
    [
        spec(),
        spec("ml"),
        spec("root.ml"),
        spec("users"),
        spec("users.alice"),
        spec("gpu", "gpu", gpus=2),
        spec("prod.gpu", memory=8000),
        spec(label="big", gpus=4, vcores=16),  # no node has that label yet
    ],
)
def test_a_job_that_fits(job: JobSpec) -> None:
    assert job_problems(job, VIEW) == []
    assert capacity_shortages(job, VIEW) == []


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (spec("nope"), "queue: there is no queue 'nope'; this cluster has gpu, ml, old"),
        (spec("ml.nope"), "queue: there is no queue 'ml.nope'"),
        (spec("old"), "queue: 'old' is STOPPED and accepts no applications"),
        (spec("prod"), "queue: 'prod' is a parent queue, which accepts no applications; below it are gpu"),
        (spec(label="fpga"), "node_label: there is no node label 'fpga'; this cluster has big, gpu"),
        (spec("gpu", "big"), "node_label: queue 'gpu' may not use 'big', only gpu"),
        (spec(memory=8193), "tasks.worker.memory: 8193 MiB in one container is more than the 8192 MiB"),
        (spec(vcores=17), "tasks.worker.vcores: 17 vcores in one container is more than the 16 vcores"),
        (spec(gpus=5), "tasks.worker.gpus: 5 GPUs in one container is more than the 4 GPUs"),
        (
            spec(resources={"fpga": ResourceAmount(1)}),
            "tasks.worker.resources.fpga: this cluster has no resource 'fpga'; it has",
        ),
    ],
)
def test_a_job_that_can_never_run(job: JobSpec, expected: str) -> None:
    [problem] = [found for found in job_problems(job, VIEW) if not found.startswith("am:")]
    assert expected in problem


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (spec(gpus=3), "tasks.worker.gpus: no node has 3 GPUs; the largest amount on one node is 2 GPUs"),
        (spec(label="gpu", memory=5000), "tasks.worker.memory: no node with the label 'gpu' has 5000 MiB"),
        (spec(memory=8192, vcores=16), "tasks.worker: no single node has all of 8192 MiB, 16 vcores"),
    ],
)
def test_a_job_that_no_node_of_now_can_run(job: JobSpec, expected: str) -> None:
    assert job_problems(job, VIEW) == []
    [problem] = capacity_shortages(job, VIEW)
    assert expected in problem


def with_amount(name: str, written: object) -> JobSpec:
    return spec(resources={name: parse_resource_amount(written)})


@pytest.mark.parametrize(
    ("name", "written"),
    [("rate", 20), ("rate", "20Gi"), ("rate", "20480Mi"), ("share", 5000), ("share", "5000m"), ("fpga", "1")],
)
def test_amounts_that_fit_by_the_clusters_units(name: str, written: object) -> None:
    job = with_amount(name, written)
    assert job_problems(job, WITH_UNITS) == []
    assert capacity_shortages(job, WITH_UNITS) == []


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("rate", "41Gi", "resources.rate: 41Gi rate in one container is more than the 40Gi rate that this cluster"),
        ("rate", "1Ti", "resources.rate: 1024Gi rate in one container is more than the 40Gi rate"),
        ("share", 6, None),
        ("share", "6k", "resources.share: 6000000m share in one container is more than the 5000m share"),
        (
            "rate",
            "1500Mi",
            "resources.rate: this cluster counts it in whole Gi, and would round 1500Mi down; write 2Gi",
        ),
        ("fpga", "1500m", "resources.fpga: this cluster counts it one by one, and would round 1500m down; write 2"),
        ("disk", "1Gi", "resources.disk: this cluster has no resource 'disk'; it has fpga, memory-mb, rate, share,"),
    ],
)
def test_amounts_by_the_clusters_units(name: str, written: object, expected: str | None) -> None:
    found = job_problems(with_amount(name, written), WITH_UNITS)
    assert len(found) == (expected is not None)
    if expected:
        assert found[0].startswith(f"tasks.worker.{expected}")


def test_amounts_that_no_node_has() -> None:
    job = with_amount("rate", "25Gi")
    assert job_problems(job, WITH_UNITS) == []
    assert capacity_shortages(job, WITH_UNITS) == [
        "tasks.worker.resources.rate: no node has 25Gi rate; the largest amount on one node is 20Gi rate"
    ]


def test_units_of_a_cluster() -> None:
    listed = [{"name": "memory-mb", "units": "Mi"}, {"name": "rate", "units": "Gi"}, {"name": GPU, "units": ""}]
    assert units({"resourceInformations": {"resourceInformation": listed}}) == {"rate": "Gi"}
    assert units({"memory": 1, "vCores": 1}) == {}


def test_all_problems_at_once() -> None:
    assert len(job_problems(spec("nope", memory=10**6, vcores=10**3, gpus=100), VIEW)) == 4
