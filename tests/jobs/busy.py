"""A job of somebody else that takes all there is."""

from __future__ import annotations

from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.waiting import until


def fill(place: YarnPlace, memory: int) -> Job:
    """Have it run until no node has room for another container of so many MiB. More of its own wait."""
    sleeper = {"instances": 60, "memory": f"{memory}MiB", "command": "exec sleep 600"}
    job = place.submit({"start": "first-come", "tasks": {"worker": sleeper}})
    url = f"{place.cluster.rm_webapp[0]}/ws/v1/cluster/nodes"

    def full() -> bool:
        nodes = place.cluster.client(USER).get_json(url)["nodes"]["node"]
        room = [(node["availMemoryMB"], node["availableVirtualCores"]) for node in nodes if node["state"] == "RUNNING"]
        return all(free < memory or cores < 1 for free, cores in room)

    until(full, job.describe)
    return job
