"""Intervals and timeouts, in seconds, that the master and executors share."""

from __future__ import annotations

HEARTBEAT_INTERVAL = 3.0  # between two heartbeats of an executor, unless its Welcome sets another interval
KEEPALIVE_INTERVAL = 10.0  # between gRPC's pings, which detect a peer whose machine is gone
KEEPALIVE_TIMEOUT = 10.0  # for the answer to a ping
KEEP_LOGS = 30.0  # for an executor's last uploads, after its user process's grace and last copies
STOP_SLACK = 5.0  # in addition, for an executor to report that its process has stopped
RELEASE_WAIT = 10.0  # after which an application master no longer waits for a released container
STATUS_INTERVAL = 10.0  # the longest between two updates of status.json while the application master lives
STATUS_STALE = 3 * STATUS_INTERVAL  # a status.json unchanged for this long is out of date
SLOW_ANSWER = 10.0  # after which the user interface shows a peer as not answering
CLOCKS_DIFFER = 60.0  # a larger difference between two clocks is reported and corrected; a greeting may be delayed
LAST_WORDS = 20.0  # for an application master to write its result and unregister after all containers are gone

_MOST_HEARTBEATS = 300.0  # a second, of all tasks together
_MOST_CONNECTIONS = 400.0  # a second: TLS handshakes that one core of an application master completes
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

    ``grace`` is that of its user processes, and ``checkpoint`` the time for the last copies.
    """
    return grace + checkpoint + KEEP_LOGS + RELEASE_WAIT + LAST_WORDS
