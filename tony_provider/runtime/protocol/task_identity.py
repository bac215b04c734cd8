"""The identity of an executor towards its application master, and the TLS credentials and gRPC options of both.

Executor and master authenticate with certificates of the application's own authority (mutual TLS). The master creates
an HMAC for each container, task and attempt. The executor proves its task by sending this HMAC with each call.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Union

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol import limits

METADATA_TASK = "tony-task"
METADATA_CONTAINER = "tony-container"
METADATA_ATTEMPT = "tony-attempt"
METADATA_TOKEN = "tony-token"

_MOST_WAITING = 1 << 20  # open streams that are not yet accepted
_LONGEST_WAITING = 600  # seconds
_ENVELOPE = 1024  # bytes of overhead around a message's content
_MOST_STREAMS = 4  # streams on one connection; an executor uses a single stream
_HANDSHAKE = 10.0  # shortest timeout of a connection's TLS handshake, in seconds

Options = list[tuple[str, Union[int, str]]]


class IdentityError(Exception):
    """A caller did not prove to be the task that it claims to be. The message contains no secret."""


class MissingSecretError(IdentityError):
    """The container's credentials lack a secret that proves or checks an identity."""


@attrs.frozen
class TaskIdentity:
    """Identity of an executor: its application, container, task and attempt."""

    application_id: str
    container_id: str
    task: str  # such as worker:0
    attempt: int  # number of the task's container, counted from 1

    @property
    def task_type(self) -> str:
        return self.task.rpartition(":")[0]


def make_token(key: bytes, identity: TaskIdentity) -> str:
    """Return the printable proof of an identity, which the container's executor sends.

    ``key`` is the application master's ``SECRET_TASK_KEY``.
    """
    fields = (identity.application_id, identity.container_id, identity.task, str(identity.attempt))
    # Each field follows its length, so that two identities never have the same message.
    message = b"".join(len(field).to_bytes(4, "big") + field for field in (text.encode() for text in fields))
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def call_metadata(identity: TaskIdentity, token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that an executor sends with each call: its identity and the proof."""
    return (
        (METADATA_TASK, identity.task),
        (METADATA_CONTAINER, identity.container_id),
        (METADATA_ATTEMPT, str(identity.attempt)),
        (METADATA_TOKEN, token),
    )


def verify(key: bytes, application_id: str, metadata: Iterable[tuple[str, Union[str, bytes]]]) -> TaskIdentity:
    """Return the identity of the sender of a call's metadata. Raises IdentityError if the proof is wrong.

    The caller must check whether the container is still the task's current container.
    """
    values: dict[str, str] = {}
    for name, value in metadata:
        if isinstance(value, bytes):
            continue  # gRPC has bytes only for names that end in -bin, and no name here does
        if name in values:
            raise IdentityError(f"{name} was sent twice")
        values[name] = value
    missing = [n for n in (METADATA_TASK, METADATA_CONTAINER, METADATA_ATTEMPT, METADATA_TOKEN) if n not in values]
    if missing:
        raise IdentityError(f"the call's metadata lacks {', '.join(missing)}")
    attempt = values[METADATA_ATTEMPT]
    if not (attempt.isascii() and attempt.isdigit() and len(attempt) <= 9):
        raise IdentityError(f"{METADATA_ATTEMPT} is not a number")
    identity = TaskIdentity(application_id, values[METADATA_CONTAINER], values[METADATA_TASK], int(attempt))
    expected = make_token(key, identity).encode()
    if not hmac.compare_digest(expected, values[METADATA_TOKEN].encode()):
        raise IdentityError(
            f"the token does not belong to {identity.task} in {identity.container_id}, attempt {identity.attempt}"
        )
    return identity


def secret(secrets: Mapping[str, bytes], name: str) -> bytes:
    """Return the secret with this name. Raises MissingSecretError if it does not exist."""
    try:
        return secrets[name]
    except KeyError:
        raise MissingSecretError(f"the container's credentials do not contain {name}") from None


def server_credentials(secrets: Mapping[str, bytes]) -> Any:
    """Return the TLS credentials of the master's gRPC server; clients must have a certificate of the same authority.

    Raises MissingSecretError.
    """
    import grpc  # imported only when used, because the Airflow side loads this module without gRPC

    pair = (secret(secrets, contract.SECRET_AM_KEY), secret(secrets, contract.SECRET_AM_CERTIFICATE))
    authority = secret(secrets, contract.SECRET_CA)
    return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=True)


def channel_credentials(secrets: Mapping[str, bytes]) -> Any:
    """Return the TLS credentials of an executor's channel. Raises MissingSecretError."""
    import grpc

    return grpc.ssl_channel_credentials(
        root_certificates=secret(secrets, contract.SECRET_CA),
        private_key=secret(secrets, contract.SECRET_CLIENT_KEY),
        certificate_chain=secret(secrets, contract.SECRET_CLIENT_CERTIFICATE),
    )


def channel_options(application_id: str, tasks: int = 1) -> Options:
    """Return the options of an executor's channel: the server must be this application's master, on any host.

    ``tasks``: number of tasks of the application.
    """
    return [
        ("grpc.ssl_target_name_override", application_id),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),  # a new channel starts without the back-off of the previous one
        ("grpc.min_reconnect_backoff_ms", _milliseconds(limits.connect_timeout(tasks))),
        ("grpc.keepalive_time_ms", _milliseconds(limits.KEEPALIVE_INTERVAL)),
        ("grpc.keepalive_timeout_ms", _milliseconds(limits.KEEPALIVE_TIMEOUT)),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def server_options(connections: int = 1024, tasks: int = 1) -> Options:
    """Return the options of the application master's server, for receiving the executors' pings and sending its own.

    ``connections``: limit for all connections, including unauthenticated ones; further connections are closed at once.
    ``tasks``: number of tasks of the application.
    """
    return [
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", _milliseconds(max(_HANDSHAKE, limits.connect_timeout(tasks)))),
        ("grpc.max_concurrent_streams", _MOST_STREAMS),
        ("grpc.so_reuseport", 0),  # no other process shares the port
        # Thousands of executors connect at once, and a rejected executor would retry again and again.
        ("grpc.server.max_pending_requests", _MOST_WAITING),
        ("grpc.server.max_pending_requests_hard_limit", _MOST_WAITING),
        ("grpc.server_max_unrequested_time_in_server", _LONGEST_WAITING),
        ("grpc.max_receive_message_length", limits.LARGEST_MESSAGE + _ENVELOPE),
        ("grpc.keepalive_time_ms", _milliseconds(limits.KEEPALIVE_INTERVAL)),
        ("grpc.keepalive_timeout_ms", _milliseconds(limits.KEEPALIVE_TIMEOUT)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _milliseconds(limits.KEEPALIVE_INTERVAL / 2)),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
