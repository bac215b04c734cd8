"""The application master's port for executors, to whoever has a certificate, a token or a stream of somebody else's."""

from __future__ import annotations

import signal

import attrs
import grpc

from tests.secure.callers import Heard, call, secrets_of, self_made
from tests.secure.field import Field
from tests.secure.row import row
from tests.secure.victim import Victim
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.protocol.task_identity import TaskIdentity

FORGED = "0" * 64


def _identity(victim: Victim, task: str, attempt: int = 1) -> TaskIdentity:
    return TaskIdentity(victim.id, victim.container(task), task, attempt)


def _token(secrets: dict[str, bytes]) -> str:
    return secrets[contract.SECRET_TASK_TOKEN].decode()


def _kept_out(field: Field, what: str, heard: Heard, *codes: str) -> str:
    field.expect(not heard.welcome, f"{what} was taken for an executor")
    field.expect(heard.code in codes, f"{what}: {heard}")
    return f"{what}: {heard.code}"


def _undisturbed(field: Field, victim: Victim, *, attempts: int = 1) -> None:
    status = victim.job.status()
    field.expect(status.state is JobState.RUNNING, f"alice's job is {status.state.value}")
    first = [task.attempt for task in status.tasks if task.name == "worker:0"]
    field.expect(first == [attempts], f"worker:0 has had {first} containers")


@row("no-certificate", "register as worker:0 without TLS, without a certificate, and with one that was made for it")
def no_certificate(field: Field) -> str:
    victim = field.victim()
    address, identity = victim.ports()["grpc"], _identity(victim, "worker:0")
    authority = secrets_of(victim.credentials("worker:0"))[contract.SECRET_CA]
    key, certificate = self_made(victim.id)
    said = [
        _kept_out(field, what, call(address, identity, FORGED, None, tls=tls), "UNAVAILABLE")
        for what, tls in (
            ("plain", None),
            ("no certificate", grpc.ssl_channel_credentials(authority)),
            ("self-made", grpc.ssl_channel_credentials(authority, key, certificate)),
        )
    ]
    _undisturbed(field, victim)
    return "; ".join(said)


@row("other-jobs-certificate", "register as alice's worker:0 with the certificate and token of a job of his own")
def other_jobs_certificate(field: Field) -> str:
    victim = field.victim()
    address, identity = victim.ports()["grpc"], _identity(victim, "worker:0")
    authority = secrets_of(victim.credentials("worker:0"))[contract.SECRET_CA]
    with field.acting_as("bob") as place:
        job = place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "sleep 600"}}})
        job.until(JobState.RUNNING)
        own = secrets_of(Victim(place, job, field.folder / "none").credentials("worker:0"))
        heard = [
            # He trusts whatever server it is: the authority is the only thing of alice's that he would need.
            call(address, identity, _token(own), own),
            call(address, identity, _token(own), own | {contract.SECRET_CA: authority}),
        ]
    said = [_kept_out(field, what, each, "UNAVAILABLE") for what, each in zip(("his CA", "her CA"), heard, strict=True)]
    _undisturbed(field, victim)
    return "; ".join(said)


@row(
    "other-task",
    "with worker:0's certificate and token speak as worker:1, and as a container never granted",
    by="a task of the job",
)
def other_task(field: Field) -> str:
    victim = field.victim()
    address = victim.ports()["grpc"]
    own = secrets_of(victim.credentials("worker:0"))
    first, second = _identity(victim, "worker:0"), _identity(victim, "worker:1")
    field.expect(contract.SECRET_TASK_KEY not in own, "a task holds the key that makes tokens")
    said = [
        _kept_out(field, what, call(address, identity, token, own), "PERMISSION_DENIED")
        for what, identity, token in (
            ("worker:1", second, _token(own)),
            ("its next attempt", attrs.evolve(first, attempt=2), _token(own)),
            ("a container of its own", attrs.evolve(first, container_id=f"{first.container_id[:-1]}9"), _token(own)),
            ("no token", second, ""),
        )
    ]
    _undisturbed(field, victim)
    return "; ".join(said)


@row(
    "former-attempt",
    "with everything that worker:0's first container had, register again once it has a second",
    by="a task of the job",
)
def former_attempt(field: Field) -> str:
    victim = field.victim(own=True)
    identity, own = _identity(victim, "worker:0"), secrets_of(victim.credentials("worker:0"))
    victim.executor("worker:0").signal(signal.SIGKILL)
    victim.until(
        lambda: victim.job.task("worker:0").attempt == 2 and victim.job.status().state is JobState.RUNNING,
        "a second container of worker:0",
    )
    heard = call(victim.ports()["grpc"], identity, _token(own), own)
    said = _kept_out(field, "the replayed registration", heard, "FAILED_PRECONDITION")
    _undisturbed(field, victim, attempts=2)
    return f"{said}, {heard.words[:60]}"
