"""Limits and timeouts that application master, executors and Airflow share. All times are in seconds.

The limits apply to sizes and counts in messages, metrics and tunnels, to metric names, and to URIs in a job's status.

Airflow's serialization reserves some keys. If Airflow reads a mapping with a reserved key, for example from an XCom in
the next task, Airflow makes an object of the mapping or fails the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

import attrs

from tony_provider.runtime.common.text import MASK, is_secret_name, is_writable, one_line
from tony_provider.runtime.jobspec.problems import child, item
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageInvalidPath

# Keys of airflow.sdk.serde, and older keys that it still reads.
RESERVED_KEYS = frozenset(
    {"__classname__", "__version__", "__data__", "__id__", "__cache__", "__type", "__var", "__source"}
)
RESERVED_KEY_REASON = (
    "is a reserved key of Airflow's serialization, which would turn the value into an object; use another key"
)


def reserved_key(plain: Any) -> Optional[str]:
    """Return the path of a reserved key in parsed JSON, such as ``scores[0].__type``, or None if there is none."""
    waiting = [("", plain)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            if found := sorted(RESERVED_KEYS & value.keys()):
                return child(path, found[0])
            waiting += [(child(path, key), below) for key, below in value.items() if isinstance(below, (dict, list))]
        elif isinstance(value, list):
            waiting += [(item(path, at), below) for at, below in enumerate(value) if isinstance(below, (dict, list))]
    return None


MOST_METRICS = 200  # distinct metric names of one user process; each heartbeat contains all of them
LONGEST_NAME = 250  # characters of a metric's name
MOST_PARAMETERS = 100  # parameters of one user process; each heartbeat contains all of them
LONGEST_PARAMETER_NAME = 100  # characters
LONGEST_PARAMETER = 250  # characters of a parameter's value
LONGEST_LABEL = 1000  # characters of a short text: an activity, a name, a URI
LONGEST_TEXT = 16 << 10  # characters of the text of an error
BUNDLED_LOGS = 16 << 20  # bytes of the logs that the master stores in one file
MOST_BUNDLED = 10_000  # logs in one file
SENT_LOGS = 64 << 20  # bytes of the logs that all executors of a job together send to the master at their end
OUTPUT_TAIL = 8 << 10  # UTF-8 bytes of the last output lines of a user process, for messages
LAST_WORDS = 256 << 10  # bytes of output that a killed executor sends; YARN leaves 250 ms between SIGTERM and SIGKILL
LOG_TAIL = 1 << 20  # bytes of a log to show
LARGEST_PAGE = 16 << 20  # bytes of a TensorBoard page; TensorBoard's largest file has 6 MB (1 MB if compressed)
MOST_PROCESSES = 1024  # user processes in one container
MOST_OUTPUTS = 1000  # outputs of a job to which one user process has written
MOST_NOTICES = 10  # notices about one task
MOST_STACKS = 32  # processes of one task whose stacks are compared with those of other tasks
MOST_FRAMES = 30  # frames of one stack
MOST_ENTRIES = 1000  # top-level entries of a checkpoint directory
MOST_PORTS = 4096  # ports of one container
MOST_HELD_SHARDS = 100_000  # shards that one user process holds

TUNNEL_WINDOW = 128 << 10  # bytes of a stream in transit in one direction
TUNNEL_STREAMS = 64  # streams of one tunnel; a browser opens some six to a server, plus one for each WebSocket
MOST_TUNNEL_STREAMS = 256  # streams of a job; their windows use at most 64 MiB of the master's memory
MOST_TUNNELS = 8  # tunnels of a job
TUNNELS_OF_ONE = 4  # tunnels of one user
TUNNEL_UP = 44 << 10  # bytes that one request of a tunnel carries; in base64, they fit into its size limit
TUNNEL_DOWN = 512 << 10  # bytes that one answer to such a request carries
TUNNEL_WAIT = 10.0  # seconds for which the master holds a request until bytes arrive

LARGEST_MESSAGE = 16 << 20  # bytes; the announcement of a checkpoint of 100,000 files has some 10 MiB
LARGEST_OTHER = (2 << 20) + (64 << 10)  # bytes of every other message; the largest contains the end of a log
LARGEST_HEARTBEAT = 1 << 20  # bytes of a heartbeat

MESSAGES_A_SECOND = 100.0  # messages per second from one executor, after an initial burst
MESSAGES_IN_ONE_GO = 1000  # messages of the initial burst
BYTES_A_SECOND = 16.0 * (1 << 20)  # bytes per second from one executor, after an initial burst
BYTES_IN_ONE_GO = 128 << 20  # bytes of the initial burst
COST_OF_UNDERSTANDING = 8  # the rate limit counts each byte of a parsed message this many times


FIELD_LIMITS: Mapping[str, Mapping[str, int]] = {
    "CheckpointState": {"blocker": LONGEST_TEXT, "base": LONGEST_TEXT, "entries": MOST_ENTRIES},
    "Exported": {"uri": LONGEST_TEXT, "problem": LONGEST_TEXT},
    "Heartbeat": {
        "activity": LONGEST_LABEL,
        "trouble": LONGEST_TEXT,
        "output_problem": LONGEST_TEXT,
        "further": MOST_PROCESSES,
        "notices": MOST_NOTICES,
        "parameters": MOST_PARAMETERS,
        "progress": 1,
    },
    "KeptOutput": {"name": LONGEST_LABEL, "part": LONGEST_LABEL},
    "LastWords": {"tail": OUTPUT_TAIL, "output": LAST_WORDS},
    "PreparationFailed": {"reason": LONGEST_TEXT, "uri": LONGEST_TEXT},
    "ProcessBeat": {"progress": 1},
    "ProcessExited": {
        "output_tail": OUTPUT_TAIL,
        "error": LONGEST_TEXT,
        "not_kept": LONGEST_TEXT,
        "output_problem": LONGEST_TEXT,
        "model_dir": LONGEST_TEXT,
        "node_problem": LONGEST_TEXT,
        "process": LONGEST_LABEL,
        "outputs": MOST_OUTPUTS,
        "parameters": MOST_PARAMETERS,
        "progress": 1,
    },
    "ProcessStack": {"command": LONGEST_LABEL, "process": LONGEST_LABEL, "frames": MOST_FRAMES},
    "Progress": {"metrics": MOST_METRICS},
    "Registration": {"node": LONGEST_LABEL, "python": LONGEST_LABEL},
    "Settled": {"problem": LONGEST_TEXT, "notices": MOST_NOTICES},
    "ShardRequest": {"reason": LONGEST_TEXT},
    "Stacks": {"processes": MOST_STACKS},
}
"""Limits of fields, by message: characters or bytes of a text, or number of entries. Text entries are short lines."""


def size_limit(kind: str) -> int:
    """Return the size limit for messages of this kind, in bytes."""
    if kind in ("uploaded", "checkpoint_state"):
        return LARGEST_MESSAGE
    return LARGEST_HEARTBEAT if kind == "heartbeat" else LARGEST_OTHER


def is_metric_name(text: str) -> bool:
    """Return whether a metric may have this name: one short line that is no key of Airflow's serialization."""
    return len(text) <= LONGEST_NAME and is_writable(text) and one_line(text) == text and text not in RESERVED_KEYS


def valid_parameters(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the valid parameters as texts. Values with the name of a secret are masked.

    The name and the value of a parameter are short lines. The value is a text, number or boolean.
    """
    return {
        name: MASK if is_secret_name(name) else text
        for name, value in found.items()
        if isinstance(value, (str, int, float)) and len(name) <= LONGEST_PARAMETER_NAME and is_metric_name(name)
        if len(text := one_line(str(value))) <= LONGEST_PARAMETER
    }


def fit_heartbeat(heartbeat: tony_pb2.Heartbeat) -> None:
    """Drop metrics from a heartbeat that is too large: first those of the further processes, then the others."""
    for process in reversed(heartbeat.further):
        if heartbeat.ByteSize() <= LARGEST_HEARTBEAT:
            return
        process.progress.ClearField("metrics")
    if heartbeat.ByteSize() > LARGEST_HEARTBEAT:
        heartbeat.progress.ClearField("metrics")


_SHOWN = 300  # characters of a job's text to show in a message


@attrs.frozen
class ForeignPlace:
    """URI in a job's status that is outside the job's directories."""

    key: str  # key of the status, such as model_dir
    value: str
    directory: str  # URI of the directory below which the value should be

    def __str__(self) -> str:
        return f"{self.key[:_SHOWN]}: {self.value[:_SHOWN]!a} does not lie below {self.directory}"


def is_below(uri: str, directory: str) -> bool:
    """Return whether a URI in normal form is below a directory.

    Return False for URIs with ``..``, ``//``, a trailing slash or percent-encoding, because programs interpret these
    differently.
    """
    try:
        place, above = uris.parse(uri), uris.parse(directory)
    except StorageInvalidPath:
        return False
    prefix = f"{above.path.rstrip('/')}/"
    is_same_store = (place.scheme, place.authority) == (above.scheme, above.authority)
    rest = place.path[len(prefix) :]
    return is_same_store and place.path.startswith(prefix) and str(place) == uri and "%" not in rest


def foreign_places(status: JobStatus, application_dir: str) -> list[ForeignPlace]:
    """Return the URIs in a status that are not below the directories of the application or of its training.

    Outputs are not checked here, because they are at the paths that the job names.
    """
    return [
        ForeignPlace(key, value, directory)
        for key, value, directory in _places(status, application_dir)
        if value and not is_below(value, directory)
    ]


def without_foreign_places(status: JobStatus, application_dir: str) -> JobStatus:
    """Return the status without URIs outside the job's directories, and with a warning for each removed URI."""
    foreign = foreign_places(status, application_dir)
    if not foreign:
        return status
    keys = {each.key for each in foreign}
    return attrs.evolve(
        status,
        model_dir=None if "model_dir" in keys else status.model_dir,
        export=None if "export.uri" in keys else status.export,
        checkpoint=None if "checkpoint.uri" in keys else status.checkpoint,
        resumed=None if "resumed.uri" in keys else status.resumed,
        inputs=[each for each in status.inputs if is_below(each.listing, application_dir)],
        warnings=[*status.warnings, *(f"left out of the job's status: {each}" for each in foreign)],
    )


def _places(status: JobStatus, application_dir: str) -> Iterator[tuple[str, str, str]]:
    """Yield key, URI, and the directory below which the URI should be. The URI may be empty."""
    training_dir = uris.parent(uris.parent(application_dir))
    yield "model_dir", status.model_dir or "", application_dir
    yield "export.uri", status.export.uri if status.export else "", application_dir
    yield "checkpoint.uri", status.checkpoint.uri if status.checkpoint else "", training_dir
    # With ``resume_from``, the checkpoint is in the directory of another training, so any URI on the store is valid.
    # Readers of the status do not open this URI.
    store = attrs.evolve(uris.parse(application_dir), path="/")
    yield "resumed.uri", status.resumed.uri if status.resumed else "", str(store)
    for each in status.inputs:
        yield f"inputs.{each.name}.listing", each.listing, application_dir


HEARTBEAT_INTERVAL = 3.0  # time between two heartbeats of an executor, unless its Welcome sets another interval
KEEPALIVE_INTERVAL = 10.0  # time between gRPC's pings, which detect a peer whose machine is gone
KEEPALIVE_TIMEOUT = 10.0  # timeout of the answer to a ping
KEEP_LOGS = 40.0  # time for an executor's last uploads, after its user process's grace and last copies
STOP_SLACK = 5.0  # extra time for an executor to report that its process has stopped
RELEASE_WAIT = 10.0  # time for which an application master waits for a released container to end
STATUS_INTERVAL = 10.0  # longest time between two updates of status.json while the application master lives
STATUS_STALE = 3 * STATUS_INTERVAL  # a status.json unchanged for this long is out of date
SLOW_ANSWER = 10.0  # time without an answer until the user interface shows a peer as not answering
CLOCKS_DIFFER = 60.0  # larger clock differences are reported and corrected; delayed messages cause smaller ones
UNREGISTER_SECONDS = 20.0  # time for a master to write its result and unregister, after all containers are gone

_MOST_HEARTBEATS = 300.0  # heartbeats per second, of all tasks together
_MOST_CONNECTIONS = 400.0  # TLS handshakes per second that one core of an application master completes
_CONNECT_TIMEOUT = 5.0
_LEAST_SILENCE = 15.0
_MISSED_HEARTBEATS = 3


def heartbeat_interval(tasks: int) -> float:
    """Return the seconds between two heartbeats of an executor, for a job of this many tasks."""
    return max(HEARTBEAT_INTERVAL, tasks / _MOST_HEARTBEATS)


def lost_after(interval: float) -> float:
    """Return the seconds without a heartbeat after which an executor with this interval is lost."""
    return max(_MISSED_HEARTBEATS * interval, _LEAST_SILENCE)


def spread(tasks: int) -> float:
    """Return the seconds over which executors of a job spread their simultaneous connections."""
    return tasks / _MOST_CONNECTIONS


def connect_timeout(tasks: int) -> float:
    """Return the timeout of one connection to the master of ``tasks`` tasks, including its TLS handshake.

    A connection that times out in the master's queue wastes work, and delays the next ones.
    """
    return max(_CONNECT_TIMEOUT, 2 * spread(tasks))


def stop_seconds(grace: float, checkpoint: float) -> float:
    """Return the seconds from the request to stop an application until it has ended by itself.

    ``grace`` is the grace period of its user processes, and ``checkpoint`` the time for the last copies.
    """
    return grace + checkpoint + KEEP_LOGS + RELEASE_WAIT + UNREGISTER_SECONDS
