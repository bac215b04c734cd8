"""Requests to application masters through YARN's web proxy, which passes the user's identity to the master."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import requests

from tony_provider.cluster.errors import ClusterAuthError, MasterOutOfReach, UnexpectedAnswer
from tony_provider.cluster.http import bounded_request, json_object
from tony_provider.cluster.yarn.rest import YarnRest, path_segment, said_exception
from tony_provider.runtime.common.bounds import MASTER_ANSWER_LIMIT
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.hadoop.gss import explained, reason

_PAUSE = 0.5  # seconds between two rounds while no ResourceManager answers
_LEAST = 0.1  # seconds for one request


class _NotHere(Exception):  # noqa: N818
    """This address does not lead to the master; another one may."""


class _NoAnswer(Exception):  # noqa: N818
    """The address does not answer, perhaps only temporarily."""


class MasterProxy:
    """Sends requests to application masters through YARN's web proxy.

    ``tracking_url`` returns the tracking URL that the ResourceManager has for an application.
    """

    def __init__(self, rest: YarnRest, tracking_url: Callable[[str], str | None]) -> None:
        self._rest = rest
        self._tracking_url = tracking_url

    def ask(
        self,
        application_id: str,
        path: str,
        seconds: float,
        *,
        body: Mapping[str, Any] | None = None,
        is_text: bool = False,
    ) -> Any:
        """Send a request to a master; see ``Cluster.ask_master``.

        Raises MasterOutOfReach, ClusterAuthError, UnexpectedAnswer.
        """
        answer_of = _text if is_text else _answer

        def send(url: str, left: float) -> Any:
            return answer_of(self._send(url, left, body))

        deadline = time.monotonic() + seconds
        # The proxies within the ResourceManagers, at addresses that are known to be reachable from this machine.
        known = [f"{address}/proxy/{path_segment(application_id)}" for address in self._rest.addresses]
        while True:
            problems: list[Exception] = []
            answer = _first(known, path, send, deadline, problems)
            somebody = any(isinstance(problem, _NotHere) for problem in problems)
            if answer is None and somebody:
                answer = _first(self._further(application_id, known), path, send, deadline, problems)
            if answer is not None:
                return answer
            if somebody or time.monotonic() + _PAUSE >= deadline:
                reasons = "; ".join(map(str, problems))
                raise MasterOutOfReach(f"the master of {application_id} cannot be asked: {reasons}")
            time.sleep(_PAUSE)

    def _further(self, application_id: str, known: Sequence[str]) -> list[str]:
        """Return YARN's address of the application, which is that of a stand-alone proxy if there is one."""
        url = (self._tracking_url(application_id) or "").rstrip("/")
        return [url] if url not in known and urlsplit(url).path.startswith("/proxy/") else []

    def _send(self, url: str, seconds: float, body: Mapping[str, Any] | None) -> requests.Response:
        config = self._rest.config
        # The proxy of a secure cluster shows a confirmation page to users other than the owner, unless this is set.
        params = {"proxyapproved": "true", **config.identity}
        with requests.Session() as session:
            session.trust_env, session.auth, session.verify = config.trust_env, config.auth, config.verify
            try:
                return bounded_request(  # type: ignore[no-any-return]
                    session,
                    "GET" if body is None else "PUT",
                    url,
                    MASTER_ANSWER_LIMIT,
                    seconds,
                    params=params,
                    headers={"Accept": "application/json"},
                    timeout=min(seconds, config.response_timeout),
                    allow_redirects=False,
                    json=body,  # ASCII, because of the proxy's charset
                )
            except requests.RequestException as error:
                raise _NoAnswer(f"{url} does not answer ({type(error).__name__})") from error


def _first(
    ways: Sequence[str], path: str, send: Callable[[str, float], Any], deadline: float, problems: list[Exception]
) -> Any:
    """Return the first answer. Otherwise return None and append the reasons to ``problems``."""
    for way in ways:
        try:
            return send(f"{way}/{path}", max(_LEAST, deadline - time.monotonic()))
        except (_NoAnswer, _NotHere) as problem:
            problems.append(problem)
    return None


def _text(response: requests.Response) -> bytes:
    """Return a plain-text answer. Masters answer with plain text, the proxy and the ResourceManager with pages."""
    if response.ok and response.headers.get("Content-Type", "").partition(";")[0].strip() == "text/plain":
        return response.content
    if response.status_code == requests.codes.not_found and (found := _json(response)) is not None:
        said = printable(str(found.get("error", "there is no such thing")))
        raise _NotHere(f"{response.url.partition('?')[0]}: {said}")
    _answer(response)
    raise _NotHere(f"{response.url.partition('?')[0]} answers with no text")


def _answer(response: requests.Response) -> dict[str, Any]:
    """Return a JSON answer. Only masters answer with JSON; the proxy and the ResourceManager answer with pages."""
    found = _json(response)
    if found is not None and response.ok:
        return found
    has_said = found is not None and "error" in found
    said = printable(str(found["error"])) if found is not None and has_said else f"answered {response.status_code}"
    if response.status_code == requests.codes.unauthorized:
        raise ClusterAuthError(f"{response.url} does not accept who we are: {_kerberos_reason(response) or said}")
    if response.status_code == requests.codes.forbidden:
        why = _kerberos_reason(response)
        refused = f"{response.url} does not let us through" + (f": {why}" if why else "")
        raise ClusterAuthError(said if found is not None else refused)
    if has_said and response.status_code < requests.codes.server_error:
        raise UnexpectedAnswer(f"the application's master does not take this: {said}")
    if response.is_redirect:
        said = "knows of no master there"
    elif response.ok:
        said = "answers with a page: it has no master there"
    raise _NotHere(f"{response.url.partition('?')[0]} {said}")


def _kerberos_reason(response: requests.Response) -> str:
    """Return why Hadoop rejects our identity, with a remedy, or "" if the error is not from Kerberos."""
    _, said = said_exception(response)
    return explained(said) if reason(said) else ""


def _json(response: requests.Response) -> dict[str, Any] | None:
    if response.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
        return None
    return json_object(response)
