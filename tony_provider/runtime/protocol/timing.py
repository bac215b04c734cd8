"""The times that master and executors agree on, in seconds: how often they speak, and when one gives another up."""

from __future__ import annotations

HEARTBEAT_INTERVAL = 3.0  # an executor sends one this often, unless its Welcome says otherwise
KEEPALIVE_INTERVAL = 10.0  # of gRPC's own pings, which notice a peer whose machine is gone
KEEPALIVE_TIMEOUT = 10.0  # for the answer to one
KEEP_LOGS = 30.0  # an executor has this long beyond its user process's grace and last copies, for its last uploads
STOP_SLACK = 5.0  # and this long beyond them to say that its process is stopped
RELEASE_WAIT = 10.0  # until an application master no longer waits for a container that it has released
STATUS_INTERVAL = 10.0  # status.json is written at least this often while the application master lives
STATUS_STALE = 3 * STATUS_INTERVAL  # one that has not changed for so long is out of date
SLOW_ANSWER = 10.0  # who has not answered for so long does not answer, as people see it
CLOCKS_DIFFER = 60.0  # more between two clocks is reported and corrected; a greeting may be under way for some time
LAST_WORDS = 20.0  # an application master has this long for its result and its farewell once all containers are gone

_MOST_HEARTBEATS = 300.0  # a second, of all tasks together
_MOST_CONNECTIONS = 400.0  # a second: what an application master's core can shake hands with
_CONNECT_TIMEOUT = 5.0
_LEAST_SILENCE = 15.0
_MISSED_HEARTBEATS = 3


def heartbeat_interval(tasks: int) -> float:
    """Seconds between two heartbeats of an executor, for a job of so many tasks."""
    return max(HEARTBEAT_INTERVAL, tasks / _MOST_HEARTBEATS)


def lost_after(interval: float) -> float:
    """The silence after which an executor with this heartbeat interval counts as lost."""
    return max(_MISSED_HEARTBEATS * interval, _LEAST_SILENCE)


def spread(tasks: int) -> float:
    """The seconds over which executors of so many tasks distribute what they would all do at once: connect."""
    return tasks / _MOST_CONNECTIONS


def connect_timeout(tasks: int) -> float:
    """Seconds for one connection to the application master of so many tasks, its TLS handshake included.

    A connection that is given up while it waits for its turn was work for nothing, and makes the next ones later still.
    """
    return max(_CONNECT_TIMEOUT, 2 * spread(tasks))


def stop_seconds(grace: float, checkpoint: float) -> float:
    """Seconds until an application that was told to stop has ended by itself.

    That is ``grace`` of its user processes, then ``checkpoint`` for the last copies.
    """
    return grace + checkpoint + KEEP_LOGS + RELEASE_WAIT + LAST_WORDS
