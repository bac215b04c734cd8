"""How much an executor may say, and how fast. Honest ones stay below it by themselves, and the master enforces it.

A task's program may mean harm, and it can read its executor's credentials: what comes over a stream is what it likes.
"""

from __future__ import annotations

from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.reserved_keys import RESERVED_KEYS
from tony_provider.runtime.text import is_writable, one_line

MOST_METRICS = 200  # different names of one user process; each heartbeat carries them all
LONGEST_NAME = 250  # characters of a metric's name
LONGEST_LABEL = 1000  # characters of what is said in a few words: an activity, a name, a URI
LONGEST_TEXT = 16 << 10  # characters of what went wrong
OUTPUT_TAIL = 8 << 10  # bytes, in UTF-8: the last lines of a user process's stderr, and of last words
LAST_WORDS = 256 << 10  # bytes: YARN leaves 250 ms between SIGTERM and SIGKILL
LOG_TAIL = 1 << 20  # bytes of a log that are shown at most
LARGEST_PAGE = 16 << 20  # bytes of TensorBoard's; its largest file has 6 MB, and a sixth of that when packed
MOST_PROCESSES = 1024  # of one container
MOST_OUTPUTS = 1000  # of a job, that a user process has left something for
MOST_NOTICES = 10  # of one task
MOST_STACKS = 32  # processes of one task whose stacks are compared with those of other tasks
MOST_FRAMES = 30  # of one stack
MOST_ENTRIES = 1000  # of a checkpoint directory, at its top level
MOST_PORTS = 4096  # of one container
MOST_HELD_SHARDS = 100_000  # of one user process

TUNNEL_WINDOW = 128 << 10  # bytes of a stream that may be on their way in one direction
TUNNEL_STREAMS = 64  # of one tunnel; a browser opens some six connections to a server, and each WebSocket is one
MOST_TUNNEL_STREAMS = 256  # of all tunnels of a job: with the window, 64 MiB of the master's memory at worst
MOST_TUNNELS = 8  # of a job
TUNNELS_OF_ONE = 4  # user
TUNNEL_UP = 44 << 10  # bytes in one request of a tunnel, in base64 less than a request may have
TUNNEL_DOWN = 512 << 10  # bytes in one answer
TUNNEL_WAIT = 10.0  # seconds that a request for what comes next is held, at most

LARGEST_MESSAGE = 16 << 20  # bytes; a checkpoint of 100,000 files takes some 10 MiB to announce
LARGEST_OTHER = (2 << 20) + (64 << 10)  # bytes of every message but that; the end of a log with what is around it
LARGEST_HEARTBEAT = 1 << 20  # bytes

MESSAGES_A_SECOND = 100.0  # of one executor, once it has sent a number in one go
MESSAGES_IN_ONE_GO = 1000
BYTES_A_SECOND = 16.0 * (1 << 20)  # likewise; what has to be understood, and not only passed on, counts several times
BYTES_IN_ONE_GO = 128 << 20
COST_OF_UNDERSTANDING = 8


def largest(kind: str) -> int:
    """The largest size of a message of this kind, in bytes."""
    if kind in ("uploaded", "checkpoint_state"):
        return LARGEST_MESSAGE
    return LARGEST_HEARTBEAT if kind == "heartbeat" else LARGEST_OTHER


def is_metric_name(text: str) -> bool:
    """Return whether a metric may have this name: one short line that is no key of Airflow's serialization."""
    return len(text) <= LONGEST_NAME and is_writable(text) and one_line(text) == text and text not in RESERVED_KEYS


def fit(heartbeat: tony_pb2.Heartbeat) -> None:
    """Leave metrics out of a heartbeat that is too large with them: those of the further processes, then the others."""
    for process in reversed(heartbeat.further):
        if heartbeat.ByteSize() <= LARGEST_HEARTBEAT:
            return
        process.progress.ClearField("metrics")
    if heartbeat.ByteSize() > LARGEST_HEARTBEAT:
        heartbeat.progress.ClearField("metrics")
