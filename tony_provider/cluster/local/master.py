"""Asking the master of an application on this machine, with the secret from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from tony_provider.cluster.errors import MasterOutOfReach, UnexpectedAnswer
from tony_provider.runtime.protocol import tracking


def ask_master(folder: Path, path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Its answer to a PUT. Raises MasterOutOfReach, UnexpectedAnswer."""
    url, secret = tracking.read_url(folder), tracking.read_secret(folder)
    if not url or not secret:
        raise MasterOutOfReach(f"the master of {folder.name} has not started")
    with requests.Session() as session:
        session.trust_env = False  # no proxy is between this machine and itself
        try:
            response = session.put(
                url + path, json=dict(body), headers={"Authorization": f"Bearer {secret}"}, timeout=seconds
            )
            answer = response.json()
        except (requests.RequestException, ValueError) as error:
            raise MasterOutOfReach(
                f"the master of {folder.name} does not answer ({type(error).__name__}); it may have ended"
            ) from error
    if response.ok and isinstance(answer, dict):
        return answer
    said = answer.get("error") if isinstance(answer, dict) else response.status_code
    raise UnexpectedAnswer(f"the application's master does not take this: {said}")
