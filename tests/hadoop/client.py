"""HTTP to a cluster as one of its users, simple or by SPNEGO: enough to set the cluster up and to look at it."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.hadoop.config import Layout

TIMEOUT_SECONDS = 15
# Proxy settings of the environment are not for loopback addresses.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HttpError(Exception):
    """No answer, or one that was not 2xx."""


@dataclass(frozen=True)
class Client:
    """Requests as `user`: its name in a parameter on a simple cluster, its keytab on a secure one."""

    user: str
    layout: Layout
    secure: bool

    def get_json(self, url: str, **query: str) -> Any:
        return json.loads(self.request("GET", url, query=query))

    def request(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        content_type: str = "application/octet-stream",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The body of a 2xx answer; redirects keep method and body. Raises HttpError otherwise.

        `headers` go over the content type's.
        """
        parameters = dict(query or {}) | ({} if self.secure else {"user.name": self.user})
        if parameters:
            url += ("&" if "?" in url else "?") + urlencode(parameters)
        named = ({} if body is None else {"Content-Type": content_type}) | dict(headers or {})
        return (self._by_curl if self.secure else _by_urllib)(method, url, body, named)

    def _by_curl(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        command = ["curl", "--silent", "--show-error", "--fail-with-body", "--noproxy", "*", "--location"]
        command += ["--negotiate", "--user", ":", "--max-time", str(TIMEOUT_SECONDS), "--request", method]
        if body is not None:
            command += ["--data-binary", "@-"]
        for name, value in headers.items():
            command += ["--header", f"{name}: {value}"]
        done = subprocess.run(
            [*command, url],
            input=body or b"",
            capture_output=True,
            timeout=TIMEOUT_SECONDS + 5,
            env=self.layout.kerberos_environment(self.user),
            check=False,
        )
        if done.returncode != 0:
            raise HttpError(f"{method} {url}: {done.stderr.decode()} {done.stdout[:2000].decode(errors='replace')}")
        return done.stdout


def _by_urllib(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers))
    try:
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        # urllib itself follows redirects of GET only; WebHDFS sends a PUT on to a DataNode.
        if error.code == 307:
            return _by_urllib(method, error.headers["Location"], body, headers)
        raise HttpError(f"{method} {url}: {error.code} {error.read()[:2000].decode(errors='replace')}") from error
    except OSError as error:
        raise HttpError(f"{method} {url}: {error}") from error
