"""Requests to the master of an application on this machine, with the secret from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from tony_provider.cluster.bounded_answers import ask, json_object
from tony_provider.cluster.errors import MasterOutOfReach, NotServed, UnexpectedAnswer
from tony_provider.runtime.listeners import peer_users
from tony_provider.runtime.most_bytes import MASTER_ANSWER
from tony_provider.runtime.protocol import tracking
from tony_provider.runtime.text import printable


def ask_master(folder: Path, path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The master's answer to a PUT. Raises MasterOutOfReach, UnexpectedAnswer."""
    response = _send("PUT", folder, path, seconds, json=dict(body))
    answer = json_object(response)
    if response.ok and answer is not None:
        return answer
    said = answer.get("error") if answer is not None else response.status_code
    if response.status_code >= requests.codes.server_error:
        raise MasterOutOfReach(f"the master of {folder.name} cannot take this: {printable(str(said))}")
    raise UnexpectedAnswer(f"the application's master does not take this: {printable(str(said))}")


def read_master(folder: Path, path: str, seconds: float) -> bytes:
    """The master's answer to a GET. Raises MasterOutOfReach; for what it does not have NotServed, which is one."""
    response = _send("GET", folder, path, seconds)
    if not response.ok:
        said = (json_object(response) or {}).get("error", response.status_code)
        raise NotServed(f"the master of {folder.name} has no such thing: {printable(str(said))}")
    return response.content


def _send(method: str, folder: Path, path: str, seconds: float, **more: Any) -> requests.Response:
    url, secret = tracking.read_url(folder), tracking.read_secret(folder)
    if not url or not secret:
        raise MasterOutOfReach(f"the master of {folder.name} has not started")
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
    with requests.Session() as session:
        session.trust_env = False  # no proxy is between this machine and itself
        session.mount("http://", _OwnMaster(folder))
        try:
            return ask(  # type: ignore[no-any-return]
                session, method, url + path, MASTER_ANSWER, seconds, headers=headers, timeout=seconds, **more
            )
        except requests.RequestException as error:
            raise MasterOutOfReach(
                f"the master of {folder.name} does not answer ({type(error).__name__}); it may have ended"
            ) from error


class _OwnMaster(HTTPAdapter):
    """Connects to nobody but a process of the user whose folder it is, and says nothing before that is known.

    Any user of this machine may take the port of a master that has ended, and would be told the next one's secret.
    Connecting raises MasterOutOfReach.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more)
        connect = partial(_OwnConnection, self._folder)
        pool = type("_OwnPool", (HTTPConnectionPool,), {"ConnectionCls": staticmethod(connect)})
        self.poolmanager.pool_classes_by_scheme = {"http": pool}


class _OwnConnection(HTTPConnection):
    def __init__(self, folder: Path, *arguments: Any, **more: Any) -> None:
        self._folder = folder
        super().__init__(*arguments, **more)

    def connect(self) -> None:
        super().connect()
        users = peer_users(self.sock)
        if users - {self._folder.stat().st_uid}:
            raise MasterOutOfReach(
                f"the master of {self._folder.name} has ended: another user of this machine has its port"
            )
        if not users:
            raise MasterOutOfReach(f"the master of {self._folder.name} has ended: nobody is at its port any more")
