"""Requests to the NameNodes: failover, retries with back-off and jitter, authentication, and an overall deadline."""

from __future__ import annotations

import logging
import random
import ssl
import threading
import time
from http.client import HTTPConnection
from typing import Optional
from urllib.parse import quote, urlencode

import attrs

from tony_provider.runtime.common.clock import server_clock_ahead
from tony_provider.runtime.storage import errors
from tony_provider.runtime.storage.uris import Uri
from tony_provider.runtime.storage.webhdfs.transport import (
    BROKEN,
    TIMEOUTS,
    Deadline,
    HttpLogin,
    IdleConnections,
    Negotiate,
    NotNow,
    Transport,
    WebHdfsAnswer,
    check_answer,
    describe_failure,
    server_of,
    watch,
)

log = logging.getLogger(__name__)

ROOT = "/webhdfs/v1"  # prefix of every path, on NameNodes and DataNodes
_FIRST_PAUSE = 0.2  # seconds to pause after all NameNodes have failed; doubled each time all fail again
_LONGEST_PAUSE = 5.0


@attrs.define
class Call:
    """One WebHDFS operation. If the answer is lost, the operation is sent again, so the server may execute it twice."""

    method: str
    op: str
    uri: Uri
    what: str  # description of the operation for error messages
    params: dict[str, str] = attrs.field(factory=dict)
    perhaps_done: bool = False  # whether a server may have executed an attempt whose answer was lost
    leaves_content: bool = False  # whether to leave the content of a success unread, which may be a whole file


class NameNodes:
    """Client for the NameNodes of an HDFS. It finds the active NameNode. Thread-safe."""

    def __init__(self, transport: Transport, token: Optional[str], negotiate: Optional[Negotiate]) -> None:
        self._transport = transport
        self._config = transport.config
        self.token = token
        self._negotiate = negotiate
        # Index of the address to try first. Threads change the index without a lock; a race costs at most one attempt.
        self._active = 0
        self._servers = set(map(server_of, self._config.addresses))
        self._idle = {address: IdleConnections() for address in self._config.addresses}
        self._closed = threading.Event()
        self._warned = False  # whether the current outage has been logged
        self.clock_ahead: Optional[float] = None  # see ``Storage.clock_ahead``

    def close(self) -> None:
        self._closed.set()
        for idle in self._idle.values():
            idle.close()

    def wait(self, seconds: float) -> bool:
        """Wait for at most ``seconds`` before the next attempt. Return False if the storage was closed."""
        return not self._closed.wait(random.uniform(seconds / 2, seconds))  # noqa: S311 (jitter)

    def ask(self, call: Call, deadline: Optional[Deadline] = None) -> WebHdfsAnswer:
        """Send a call to the active NameNode, and return its answer: success or a redirect.

        If the NameNode reports an error, raises the corresponding StorageError. If no NameNode has answered by the
        deadline (default: ``timeout`` of the configuration), raises StorageUnreachable or StorageTimeout. The message
        then contains the problem of each NameNode.
        """
        deadline = deadline or Deadline(self._config.timeout)
        failures: dict[str, BaseException] = {}
        count = len(self._config.addresses)
        tries = 0
        while True:
            index = self._active
            address = self._config.addresses[index]
            try:
                answer = self._ask_one(address, call, deadline)
            except ssl.SSLCertVerificationError as error:
                raise errors.StorageAuthError(
                    str(call.uri), call.what, f"{address}: {error.verify_message}", "set ca_file to its authority"
                ) from error
            except (NotNow, *BROKEN) as error:
                failures[address] = error
                self._active = (index + 1) % count
            else:
                self._warned = False
                return answer
            tries += 1
            if tries >= count:
                self._warn(address, call, describe_failure(failures[address]))
            if deadline.over or not self._pause(tries, count, deadline):
                raise self._give_up(call, failures, deadline) from failures[address]

    def _ask_one(self, address: str, call: Call, deadline: Deadline) -> WebHdfsAnswer:
        idle = self._idle[address]
        kept = idle.take()
        connection = kept or self._transport.connect(address, deadline)
        try:
            answer = self._ask_over(connection, address, call, deadline)
        except BaseException as error:
            connection.close()
            if kept and isinstance(error, BROKEN) and not isinstance(error, TIMEOUTS):
                return self._ask_one(address, call, deadline)  # the server has just closed the kept connection
            raise
        if not answer.unread:
            idle.keep(connection)
        check_answer(answer, str(call.uri), call.what)
        return answer

    def _ask_over(self, connection: HTTPConnection, address: str, call: Call, deadline: Deadline) -> WebHdfsAnswer:
        url = self._url(address, call)
        silence = self._config.silence_timeout
        watch(
            connection,
            deadline.left(self._config.response_timeout),
            silence,
            lambda: self._warn(address, call, f"no answer for {silence:g} s"),
        )
        login = self.login(address)
        asked = time.time()
        try:
            answer = self._transport.exchange(
                connection, call.method, url, login, deadline, leaves_content=call.leaves_content
            )
        except BROKEN:
            call.perhaps_done = True
            raise
        self.clock_ahead = server_clock_ahead(answer.date, asked, time.time(), self.clock_ahead)
        return answer

    def _warn(self, address: str, call: Call, problem: str) -> None:
        """Log a warning that an operation waits for the storage, at most once per outage."""
        if not self._warned:
            self._warned = True
            log.warning("waiting for the storage to %s %s: NameNode %s: %s", call.what, call.uri, address, problem)

    def _pause(self, tries: int, count: int, deadline: Deadline) -> bool:
        """Pause if all NameNodes have failed since the last pause. Return False if no time is left."""
        rounds, within = divmod(tries, count)
        if within:
            return not self._closed.is_set()
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (rounds - 1))
        return self.wait(deadline.left(longest)) and not deadline.over

    def _url(self, address: str, call: Call) -> str:
        params = {"op": call.op, **call.params}
        if self.token is not None:
            params["delegation"] = self.token
        else:
            if self._config.user and self._negotiate is None:
                params["user.name"] = self._config.user
            if self._config.proxy_user:
                params["doas"] = self._config.proxy_user
        return f"{address}{ROOT}{quote(call.uri.path)}?{urlencode(params, quote_via=quote)}"

    def login(self, url: str) -> Optional[HttpLogin]:
        """Return the login for a request to a configured address, or None for a DataNode, whose URL has a token."""
        server = server_of(url)
        if not self._negotiate or self.token or server not in self._servers:
            return None
        return self._negotiate(server[1])

    def _give_up(self, call: Call, failures: dict[str, BaseException], deadline: Deadline) -> errors.StorageUnreachable:
        if self._closed.is_set():
            return errors.StorageUnreachable(str(call.uri), call.what, "the storage was closed", "")
        seconds = min(self._config.response_timeout, deadline.seconds)
        said = ", ".join(f"{address}: {describe_failure(error, seconds)}" for address, error in failures.items())
        silent = all(isinstance(error, TIMEOUTS) for error in failures.values())
        kind = errors.StorageTimeout if silent else errors.StorageUnreachable
        return kind(str(call.uri), call.what, f"no NameNode answered within {deadline.seconds:g} s ({said})")
