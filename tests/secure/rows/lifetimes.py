"""A training over several lifetimes of its tokens, while what it stands on dies; containers run as their user."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.hadoop.user_containers import system_user
from tests.jobs.places import USER, YarnPlace
from tests.jobs.renewals import until_ms, until_newer, until_over
from tests.jobs.waiters import deferred
from tests.jobs.zones import beside, outlives_every_token
from tests.secure.field import LIFE_MS, Field
from tests.secure.row import SHORT_LIVED, row
from tests.secure.victim import SECONDS, Victim
from tony_provider.runtime.protocol.status import JobState, JobStatus

_ALONE = "2200MiB"  # no two on one node


@row(
    "several-lifetimes",
    "kill master, NodeManager, an executor and a node for good, over lifetimes of its tokens",
    by="nobody",
    cluster=SHORT_LIVED,
)
def several_lifetimes(field: Field) -> str:
    victim = field.submit_victim(hadoop=True, memory=_ALONE)
    with deferred(victim.job, field.place):
        try:
            first = _outlive(field, victim)
            status, until = victim.job.status(), until_ms(victim.job)
            uids = _uids(victim)
        finally:
            victim.go.touch()  # whoever waits for its end waits in any case
        victim.job.end(SECONDS)
    field.mend_daemons()  # what the lost node has of the job goes when its NodeManager begins again
    field.expect(uids == {system_user("alice")}, f"its processes are of the users {uids}")
    lifetimes = (until - first) // LIFE_MS
    tasks = ", ".join(f"{task.name} in its container number {task.attempt}" for task in status.tasks)
    renewed = [each["event"] for each in victim.job.events()].count("store_token")
    return f"{lifetimes} lifetimes after the first, {renewed} newer tokens, master number {status.am_attempt}; {tasks}"


@row(
    "zone-and-other-hdfs",
    "nothing: staging in an encryption zone, data in another and on another HDFS, over lifetimes of every token",
    by="nobody",
    cluster=SHORT_LIVED,
)
def zone_and_other_hdfs(field: Field) -> str:
    here, zone = field.folder / f"here-{uuid4().hex[:8]}", f"zone-{uuid4().hex[:8]}"
    here.mkdir()
    here.chmod(0o777)  # her programs leave words in it
    home = f"/user/{USER}"
    for name in (zone, f"{zone}-private"):
        field.hadoop.make_zone(f"{home}/{name}", USER, name)
    place = YarnPlace(beside(field.hadoop, f"{home}/{zone}/tony"), cluster=field.hadoop)
    field.at_end(place.close)
    job = outlives_every_token(place, here, f"{home}/{zone}-private")
    renewed = [each for each in job.events() if each["event"] == "store_token"]
    return f"{len(renewed)} newer tokens of two HDFS and a key server over https; Hadoop's own programs read both after"


def _outlive(field: Field, victim: Victim) -> int:
    """The end of its first token, in ms since the epoch, long after which it runs."""
    victim.until_running()
    first = until_ms(victim.job)
    until_newer(victim.job)
    until_over(victim.job, first)
    _kill_master(victim)
    _restart_node(field, victim)
    until_newer(victim.job)
    _kill_executor(victim)
    _lose_node(field, victim)
    until_newer(victim.job)
    return first


def _kill_master(victim: Victim) -> None:
    victim.master.signal(signal.SIGKILL)
    _running(victim, "the next master", lambda status: status.am_attempt == 2)


def _restart_node(field: Field, victim: Victim) -> None:
    """A NodeManager is killed and begins again: its containers live on, and it knows them."""
    before = {task.name: task.container_id for task in victim.job.status().tasks}
    daemon = _daemon(field, victim, "worker:0")
    field.hadoop.kill(daemon)
    field.hadoop.restart(daemon)
    after = {task.name: task.container_id for task in victim.job.status().tasks}
    field.expect(before == after, f"containers were lost with their NodeManager: {before}, {after}")
    field.expect(victim.executor("worker:0").alive(), "the executor has ended with its NodeManager")


def _kill_executor(victim: Victim) -> None:
    victim.executor("worker:1").signal(signal.SIGKILL)
    _running(victim, "another container of worker:1", lambda _: victim.job.task("worker:1").attempt == 2)


def _lose_node(field: Field, victim: Victim) -> None:
    """For good: YARN declares it lost, and its task gets a container elsewhere."""
    masters = _node_of_master(victim)
    task = next(each for each in ("worker:0", "worker:1") if _host(victim, each) != masters)
    attempt = victim.job.task(task).attempt
    field.hadoop.kill(_daemon(field, victim, task))
    _running(victim, f"another container of {task}", lambda _: victim.job.task(task).attempt > attempt)


def _running(victim: Victim, what: str, holds: Callable[[JobStatus], bool]) -> None:
    def look() -> bool:
        status = victim.job.status()
        return status.state is JobState.RUNNING and holds(status)

    victim.until(look, what)


def _host(victim: Victim, task: str) -> str:
    return str(victim.job.task(task).node).partition(":")[0]


def _node_of_master(victim: Victim) -> str:
    host, _ = victim.ports()["web"]
    return host


def _daemon(field: Field, victim: Victim, task: str) -> str:
    hosts = [node.host for node in field.hadoop.state.addresses.nodemanagers]
    return f"nodemanager-{hosts.index(_host(victim, task)) + 1}"


def _uids(victim: Victim) -> set[int]:
    """Of its containers' processes: masters and executors, and what they started."""
    ours = [
        each
        for each in victim.job.processes()
        if "/container-executor" not in each.words and str(victim.id) in each.environment.decode(errors="replace")
    ]
    return {Path(f"/proc/{each.pid}").stat().st_uid for each in ours}
