"""More of everything than there should be: connections, half requests, messages; from addresses of nodes."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.hadoop.processes import Process
from tests.secure.callers import flood, secrets_of
from tests.secure.field import Field
from tests.secure.flooding import HALF, SOURCES, connections, half_said, status_seconds
from tests.secure.row import row
from tests.secure.victim import Victim, peak_bytes
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.protocol.task_identity import TaskIdentity

IDLE = 6000
BEATS, BEAT_BYTES = 4, 11 << 20


@row("idle-connections", f"open {IDLE:,} connections to the port for executors and say nothing; then a task dies")
def idle_connections(field: Field) -> str:
    victim = field.victim(own=True)
    with connections(victim.ports()["grpc"], IDLE) as opened:
        descriptors = len(list(Path(f"/proc/{victim.master.pid}/fd").iterdir()))
        cost = status_seconds(field, victim)
        before = _trainings(victim)
        killed = before[0]
        killed.signal(signal.SIGKILL)
        victim.until(lambda: len(set(_trainings(victim)) - {killed}) == len(before), "the training to start again")
    field.cost = f"{descriptors} descriptors of the master; status within {cost:.1f} s"
    return f"{opened} connections were taken by the system; the status went on, and the dead task started again"


@row("half-requests", f"leave {HALF} requests half said at the page's port, from {len(SOURCES)} addresses")
def half_requests(field: Field) -> str:
    return half_said(field)


@row(
    "large-heartbeats",
    f"send {BEATS} heartbeats of {BEAT_BYTES >> 20} MiB with a task's own proof",
    by="a task of the job",
)
def large_heartbeats(field: Field) -> str:
    victim = field.victim(own=True)
    own = secrets_of(victim.credentials("worker:0"))
    identity = TaskIdentity(victim.id, victim.container("worker:0"), "worker:0", 1)
    before = victim.master.resident_bytes()
    heard = flood(victim.ports()["grpc"], identity, own[contract.SECRET_TASK_TOKEN].decode(), own, BEATS, BEAT_BYTES)
    seconds = status_seconds(field, victim)
    grown = (peak_bytes(victim.master) - before) >> 20
    field.expect(heard.welcome, f"the task itself was not let in: {heard}")
    # The stream ends well where the task's own executor has come back before its end was told.
    said = next(each for each in victim.job.log_folders(victim.id) if each.name.endswith("_000001")) / "stderr"
    refused = "worker:0 sent a rejected message: a message of the kind heartbeat" in said.read_text()
    field.expect(heard.code != "OK" or refused, f"they were taken: {heard}")
    field.expect(grown < 100, f"the master has grown by {grown} MiB")
    victim.until(lambda: victim.job.status().state is JobState.RUNNING, "the job to run on")
    field.cost = f"master's peak {grown} MiB above; status within {seconds:.1f} s"
    return (
        f"the stream is ended: {heard}" if heard.code != "OK" else "refused, each; the task's own stream has come back"
    )


def _trainings(victim: Victim) -> list[Process]:
    """The processes of her program, each known by the executor that is its parent."""
    executors = {each.pid for each in victim.job.executors()}
    pids = [each.pid for each in victim.job.processes() if str(victim.go) in each.words and each.parent in executors]
    return [process for pid in pids if (process := Process.of(pid)) is not None]
