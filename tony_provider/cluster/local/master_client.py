"""Requests to the master of an application on this machine, with the secret from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from tony_provider.cluster.bounded_answers import ask, json_object
from tony_provider.cluster.errors import MasterOutOfReach, NotServed, UnexpectedAnswer
from tony_provider.runtime.listeners import listening_users
from tony_provider.runtime.most_bytes import MASTER_ANSWER
from tony_provider.runtime.protocol import tracking


def ask_master(folder: Path, path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The master's answer to a PUT. Raises MasterOutOfReach, UnexpectedAnswer."""
    response = _send("PUT", folder, path, seconds, json=dict(body))
    answer = json_object(response)
    if response.ok and answer is not None:
        return answer
    said = answer.get("error") if answer is not None else response.status_code
    raise UnexpectedAnswer(f"the application's master does not take this: {said}")


def read_master(folder: Path, path: str, seconds: float) -> bytes:
    """The master's answer to a GET. Raises MasterOutOfReach; for what it does not have NotServed, which is one."""
    response = _send("GET", folder, path, seconds)
    if not response.ok:
        said = (json_object(response) or {}).get("error", response.status_code)
        raise NotServed(f"the master of {folder.name} has no such thing: {said}")
    return response.content


def _send(method: str, folder: Path, path: str, seconds: float, **more: Any) -> requests.Response:
    url, secret = tracking.read_url(folder), tracking.read_secret(folder)
    if not url or not secret:
        raise MasterOutOfReach(f"the master of {folder.name} has not started")
    _expect_own(folder, url)
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
    with requests.Session() as session:
        session.trust_env = False  # no proxy is between this machine and itself
        try:
            return ask(  # type: ignore[no-any-return]
                session, method, url + path, MASTER_ANSWER, seconds, headers=headers, timeout=seconds, **more
            )
        except requests.RequestException as error:
            raise MasterOutOfReach(
                f"the master of {folder.name} does not answer ({type(error).__name__}); it may have ended"
            ) from error


def _expect_own(folder: Path, url: str) -> None:
    """Any user of this machine may take the port of a master that has ended, and would be told the next one's secret.

    Raises MasterOutOfReach.
    """
    strangers = listening_users(urlsplit(url).port or 0) - {folder.stat().st_uid}
    if strangers:
        raise MasterOutOfReach(f"the master of {folder.name} has ended: another user of this machine has its port")
