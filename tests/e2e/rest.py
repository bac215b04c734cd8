"""Airflow's REST interface, as a program outside of it uses it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

TIMEOUT_SECONDS = 60.0  # the first answers come late on a busy machine
FOUR = {"metadatabase": "", "scheduler": "", "triggerer": "", "dag_processor": ""}
# Proxy settings of the environment are not for loopback addresses.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RestError(Exception):
    """An answer that is none of 2xx."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Rest:
    """``login``: user and password; without, where everybody is an administrator."""

    url: str
    login: tuple[str, str] | None = None
    _token: str = field(default="", repr=False)

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The JSON answer of ``/api/v2<path>``. Raises RestError, OSError."""
        query_string = f"?{urlencode(query, doseq=True)}" if query else ""
        return self._ask(method, f"/api/v2{path}{query_string}", body, self.token)

    def ask(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        """Return the status of any path of the API server, and its JSON or the text of the error."""
        try:
            return 200, self._ask(method, path, body, self.token)
        except RestError as error:
            return error.status, str(error).partition(f" {path}: ")[2]

    @property
    def token(self) -> str:
        """Of the user, for the interface."""
        if not self._token:
            self._token = self._log_in()
        return self._token

    def _log_in(self) -> str:
        if self.login is None:
            return str(self._ask("GET", "/auth/token")["access_token"])
        user, password = self.login
        return str(self._ask("POST", "/auth/token", {"username": user, "password": password})["access_token"])

    def unhealthy(self) -> list[str]:
        """Which of its processes do not work."""
        try:
            answer = self._ask("GET", "/api/v2/monitor/health")
        except (OSError, RestError):
            return ["api-server"]
        return [name for name in FOUR if answer[name]["status"] != "healthy"]

    def page(self, path: str, query: str = "") -> str:
        """The address for a browser."""
        return f"{self.url}{quote(path)}{query}"

    def _ask(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method, headers=headers)
        try:
            with _opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            said = error.read()[:2000].decode(errors="replace")
            raise RestError(error.code, f"{method} {path}: {error.code} {said}") from error
        return json.loads(content) if content else None
