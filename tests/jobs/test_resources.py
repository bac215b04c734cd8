"""Resources that a cluster counts in units of its own."""

from __future__ import annotations

from typing import Any

from tests.hadoop.config import RATE
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.cluster.yarn.cluster_view import as_list, resources


def test_a_container_has_what_was_asked_for_in_whatever_unit(yarn: YarnPlace) -> None:
    task = {"memory": "128MiB", "command": "sleep 1000"}
    tasks = {"plain": {**task, "resources": {RATE: 1}}, "unit": {**task, "resources": {RATE: "2048Mi"}}}

    job = yarn.submit({"tasks": {name: {**each, "role": "worker"} for name, each in tasks.items()}})

    until(lambda: _rate(yarn.report(job.id)) == 1 + 2, job.describe)
    job.hook.kill(job.id, "seen enough")
    job.end()


def _rate(report: dict[str, Any]) -> int:
    """What an application has of it now, in the cluster's unit, as the ResourceManager tells it."""
    usages = as_list((report.get("resourceInfo") or {}).get("resourceUsagesByPartition"))
    return sum(resources(usage.get("used") or {}).get(RATE, 0) for usage in usages)
