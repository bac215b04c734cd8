"""The ResourceManagers' REST interface with failover, deadlines and typed errors, based on yarn-api-client.

Requests to application masters go through YARN's web proxy, which passes the user's identity to the master.

yarn-api-client provides the calls. This module replaces its transport, which has these defects:

- It elects a ResourceManager only once, and mistakes a standby that redirects for the active one.
- It drops base paths and status codes.
- It uses the environment's proxies.

Calls: https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import attrs
import requests
from requests.auth import AuthBase
from yarn_api_client.base import BaseYarnAPI
from yarn_api_client.base import Response as YarnResponse
from yarn_api_client.resource_manager import ResourceManager as YarnApi

from tony_provider.cluster.errors import (
    ClusterAuthError,
    ClusterUnreachable,
    ConfigurationHidden,
    MasterOutOfReach,
    RestSubmissionDisabled,
    UnexpectedAnswer,
)
from tony_provider.cluster.http import ROUTER_KEY, YARN_ROUTER, bounded_request, json_object
from tony_provider.cluster.interface import Submission
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import MASTER_ANSWER_LIMIT, YARN_ANSWER_LIMIT
from tony_provider.runtime.common.clock import server_clock_ahead
from tony_provider.runtime.common.network import page_title
from tony_provider.runtime.common.text import MASK, printable
from tony_provider.runtime.hadoop.gss import explained, reason
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.hadoop.yarn_records import MODIFY_APP, VIEW_APP, AccessList
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.launch.launch_context import launch_environment, script_values
from tony_provider.runtime.storage import uris

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_ANSWER = 60.0  # seconds from an answer's first byte to its last
_FIRST_PAUSE = 0.2  # seconds after a failed attempt with all ResourceManagers; doubles up to _LONGEST_PAUSE
_LONGEST_PAUSE = 3.0
_REST_DISABLED = "App submission via REST is disabled"


@attrs.frozen
class RestConfig:
    """Settings of the connection to the ResourceManagers' REST interface.

    This class does not validate the addresses, because ``hooks/connection.py`` does.
    """

    addresses: list[str]  # http(s)://host:port of every ResourceManager, optionally with a path (of a gateway)
    user: str | None = None  # request parameter ``user.name``, for clusters without Kerberos
    proxy_user: str | None = None  # request parameter ``doAs``, for clusters with Kerberos
    auth: AuthBase | None = None  # SPNEGO, or the login at a gateway; None without both
    gateway: bool = False  # whether the addresses are those of a gateway
    verify: bool | str = True  # whether to verify https servers, or a PEM file to verify them with
    trust_env: bool = False  # use the environment's proxy variables
    response_timeout: float = (
        20.0  # limit in seconds for a connection to a ResourceManager, and for each of its answers
    )
    timeout: float = contract.CALL_SECONDS  # seconds for one call including all retries and failovers

    @property
    def identity(self) -> dict[str, str]:
        """Return the request parameters that name the user."""
        if self.auth is None:
            return {"user.name": self.user} if self.user else {}
        return {"doAs": self.proxy_user} if self.proxy_user else {}


class RestError(UnexpectedAnswer):
    """An error answer of the active ResourceManager."""


class RestNotFoundError(RestError):
    """The active ResourceManager does not know the path, or the application in the path."""


class _Unavailable(Exception):  # noqa: N818
    """This ResourceManager cannot serve the call now, so try the others, and later this one again."""


def rest_url(address: str, path: str, gateway: bool) -> str:
    """Return the URL of a call at a ResourceManager's address. Knox's service RESOURCEMANAGER omits ``/ws``."""
    return address + (path.removeprefix("/ws") if gateway and address.endswith("/resourcemanager") else path)


class _Endpoint(YarnApi):  # type: ignore[misc]
    """yarn-api-client's calls, sent to one ResourceManager with this module's transport."""

    def __init__(self, address: str, config: RestConfig) -> None:
        # Skips the constructor of YarnApi, which would elect a ResourceManager.
        BaseYarnAPI.__init__(self, address, config.response_timeout, config.auth, config.verify)
        self.address = address.rstrip("/")
        self.config = config
        self.session.trust_env = config.trust_env
        self.session.proxies = {}
        self.clock_ahead: float | None = None  # see YarnRest
        self._seen_active = False

    def request(self, api_path: str, method: str = "GET", **kwargs: Any) -> YarnResponse:
        params = {**(kwargs.pop("params", None) or {}), **self.config.identity}
        headers = {"Accept": "application/json", **(kwargs.pop("headers", None) or {})}
        asked = time.time()
        try:
            response = bounded_request(
                self.session,
                method,
                rest_url(self.address, api_path, self.config.gateway),
                YARN_ANSWER_LIMIT,
                self.config.response_timeout + _LONGEST_ANSWER,
                params=params,
                headers=headers,
                timeout=min(self.config.response_timeout, self.config.timeout),
                allow_redirects=False,
                **kwargs,
            )
        except requests.exceptions.SSLError as error:
            raise ClusterUnreachable(
                f"{self.address} has a certificate that is not trusted ({error}); set `verify` in the tony connection "
                "to the PEM file of its authority"
            ) from error
        except requests.RequestException as error:
            self._seen_active = False
            raise _Unavailable(_reason(error)) from error
        self.clock_ahead = server_clock_ahead(response.headers.get("Date"), asked, time.time(), self.clock_ahead)
        try:
            _check(self, response)
        except _Unavailable:
            self._seen_active = False
            raise
        return _Answer(response)

    @property
    def is_active(self) -> bool:
        """Return whether the ResourceManager is active. Send no request if it was active at the last call."""
        if self._seen_active:
            return True
        try:
            answer = self.cluster_information().data
            if ROUTER_KEY in answer:
                raise UnexpectedAnswer(f"{self.address} is {YARN_ROUTER}; {ROUTER_REMEDY}")
            info = answer["clusterInfo"]
        except (RestError, KeyError, TypeError) as error:
            raise UnexpectedAnswer(f"{self.address} is not a ResourceManager's web address ({error})") from error
        self._seen_active = str(info.get("haState", "ACTIVE")) == "ACTIVE"
        return self._seen_active


class _Answer(YarnResponse):  # type: ignore[misc]
    def __init__(self, response: requests.Response) -> None:
        try:
            super().__init__(response)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswer(
                f"{response.url} does not answer with JSON; check that it is a ResourceManager's web address"
            ) from error


@attrs.frozen
class Setting:
    """A property of a daemon's configuration."""

    value: str
    source: str  # the file that it comes from, such as ``core-site.xml``


class YarnRest:
    """Sends calls to the active ResourceManager.

    Thread-safe: each thread has its own connections. A call holds no lock while it waits: if Airflow kills a task, the
    task makes calls from a second thread while its first thread may be blocked. Raises ClusterUnreachable if no
    ResourceManager is active before the deadline, ClusterAuthError, and RestError for errors of the ResourceManager
    itself.
    """

    def __init__(self, config: RestConfig) -> None:
        self.config = config
        self._active = config.addresses[0].rstrip("/")  # address of the last successful call, initially a guess
        self.clock_ahead = 0.0  # seconds by which the active ResourceManager's clock is ahead of ours; 0 if unknown
        self._connections = threading.local()
        self._open: list[_Endpoint] = []
        self._settings: dict[str, Setting] | None = None

    def call(self, action: Callable[[YarnApi], YarnResponse]) -> Any:
        """Return the JSON answer to ``action``, such as ``lambda rm: rm.cluster_information()``.

        ``action`` must be idempotent: after a connection error it is retried, perhaps with another ResourceManager.
        """
        return self._with_active(lambda endpoint: action(endpoint).data)

    def request(self, path: str, method: str = "GET", **kwargs: Any) -> Any:
        """Return the answer to a request that yarn-api-client lacks or does not send as documented."""
        return self._with_active(lambda endpoint: endpoint.request(path, method, **kwargs).data)

    def setting(self, name: str) -> str | None:
        """Return a property of the ResourceManager's configuration, or None if it is not set.

        Raises ConfigurationHidden on clusters that show their configuration to administrators only.
        """
        found = self.settings.get(name)
        return None if found is None else found.value

    @property
    def settings(self) -> dict[str, Setting]:
        """The ResourceManager's whole configuration, as it was at the first use.

        Raises ConfigurationHidden on clusters that show their configuration to administrators only, UnexpectedAnswer.
        """
        if self._settings is None:  # not a cached_property, because on Python 3.11 all instances share its lock
            answer = self._with_active(_configuration)
            try:
                self._settings = {
                    str(each["key"]): Setting(str(each.get("value", "")), str(each.get("resource", "")))
                    for each in answer["properties"]
                }
            except (KeyError, TypeError, AttributeError) as error:
                raise UnexpectedAnswer("the ResourceManager did not answer with its configuration") from error
        return self._settings

    @property
    def addresses(self) -> list[str]:
        """Return all ResourceManagers' addresses, the last known active one first. Sends no request."""
        every = (address.rstrip("/") for address in self.config.addresses)
        return sorted(every, key=lambda address: address != self._active)

    def active_host(self) -> str:
        """Return the host in the address of the active ResourceManager."""
        return urlsplit(self._with_active(lambda endpoint: endpoint.address)).hostname or ""

    def close(self) -> None:
        """Close all connections. Later calls open them again. Idempotent."""
        while self._open:
            self._open.pop().session.close()

    def _with_active(self, action: Callable[[_Endpoint], T]) -> T:
        deadline = time.monotonic() + self.config.timeout
        pause = _FIRST_PAUSE
        while True:
            reasons: list[str] = []
            for endpoint in self._candidates():
                try:
                    if not endpoint.is_active:
                        reasons.append(f"{endpoint.address} is a standby")
                        continue
                    result = action(endpoint)
                except _Unavailable as error:
                    reasons.append(f"{endpoint.address}: {error}")
                else:
                    self._active = endpoint.address
                    self.clock_ahead = endpoint.clock_ahead or 0.0
                    return result
            if time.monotonic() + pause >= deadline:
                raise ClusterUnreachable(
                    f"no active ResourceManager answered within {self.config.timeout:g} s ({'; '.join(reasons)}); "
                    "check the addresses in the tony connection, and that YARN runs"
                )
            log.debug("No active ResourceManager: %s", "; ".join(reasons))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _candidates(self) -> list[_Endpoint]:
        """Return all endpoints, the last known active one first."""
        endpoints: list[_Endpoint] | None = getattr(self._connections, "endpoints", None)
        if endpoints is None:
            endpoints = [_Endpoint(address, self.config) for address in self.config.addresses]
            self._connections.endpoints = endpoints
            self._open += endpoints
        return sorted(endpoints, key=lambda endpoint: endpoint.address != self._active)


def _configuration(endpoint: _Endpoint) -> Any:
    try:
        return endpoint.request("/conf", params={"format": "json"}).data
    except (ClusterAuthError, RestNotFoundError) as error:
        # The server accepts our identity for other calls, so it hides the settings. Gateways may not know their path.
        raise ConfigurationHidden(f"the ResourceManager does not show its configuration: {error}") from error


def _check(endpoint: _Endpoint, response: requests.Response) -> None:
    """Raise an error unless the response is a success."""
    if response.status_code < requests.codes.multiple_choices:
        return
    if endpoint.config.gateway and is_refused_by_gateway(response):
        raise ClusterAuthError(f"{endpoint.address}: {refused_by_gateway(response)}; {GATEWAY_REMEDY}")
    if response.is_redirect:
        raise _Unavailable("it is a standby")
    if response.status_code in (requests.codes.bad_gateway, requests.codes.service_unavailable):
        raise _Unavailable(f"it answered {response.status_code}")
    exception, message = said_exception(response)
    if "StandbyException" in exception or "This is standby RM" in message:
        raise _Unavailable("it is a standby")
    if _REST_DISABLED in message:
        raise RestSubmissionDisabled
    if response.status_code == requests.codes.unauthorized:
        _refuse_identity(endpoint, message)
    if response.status_code == requests.codes.forbidden:
        if reason(message):
            raise ClusterAuthError(f"{endpoint.address} refuses: {explained(message)}")
        raise ClusterAuthError(f"{endpoint.address} does not allow {_who(endpoint.config)} to do this: {message}")
    kind = RestNotFoundError if response.status_code == requests.codes.not_found else RestError
    raise kind(f"the ResourceManager answered {response.status_code}: {message or exception or 'no reason given'}")


ROUTER_REMEDY = "name the ResourceManagers of one sub-cluster in the tony connection"
GATEWAY_REMEDY = "check `gateway`, and the user and the password or JWT, in the tony connection"


def is_refused_by_gateway(response: requests.Response) -> bool:
    """Return whether a gateway asks for a login, perhaps by a redirect to a page. Standby servers redirect by 307."""
    return response.status_code in (requests.codes.found, requests.codes.see_other, requests.codes.unauthorized)


def refused_by_gateway(response: requests.Response) -> str:
    """Describe the answer of a gateway that asks for a login."""
    if response.is_redirect:  # the query may contain a token
        return f"the gateway redirects to {response.headers['Location'].partition('?')[0]}"
    return "the gateway refuses the login"


def _refuse_identity(endpoint: _Endpoint, message: str) -> NoReturn:
    if endpoint.config.auth is None:
        raise ClusterAuthError(
            f"{endpoint.address} requires Kerberos; set `kerberos` to true in the tony connection ({message})"
        )
    if reason(message):
        raise ClusterAuthError(f"{endpoint.address} does not accept the Kerberos ticket: {explained(message)}")
    raise ClusterAuthError(
        f"{endpoint.address} does not accept the Kerberos ticket; check that the worker has a valid one (klist, "
        f"`airflow kerberos`): {message}"
    )


def _who(config: RestConfig) -> str:
    return config.proxy_user or config.user or "this user"


def path_segment(application_id: str) -> str:
    """Quote an id for use in a URL path.

    Ids come from users and from Airflow's stores, so they may contain anything.
    """
    return quote(application_id, safe="")


def said_exception(response: requests.Response) -> tuple[str, str]:
    """Return class name and message of Hadoop's ``RemoteException``. For any other answer, return "" and its text."""
    try:
        answer = json_object(response) or {}
        remote = answer.get("RemoteException", answer)  # the web server's own errors have no RemoteException
        return str(remote.get("exception", "")), str(remote["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        text = " ".join(page_title(response.content).split())
        return "", text[:1000] or response.reason


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "it did not answer in time"
    # requests wraps urllib3's error, whose text repeats the host. The innermost error has the cause.
    inner: BaseException = error
    while inner.__context__ is not None:
        inner = inner.__context__
    return str(inner) or type(error).__name__


APPLICATION_TYPE = "TONY"


def submission_context(submission: Submission) -> dict[str, Any]:
    """Return the body of ``POST /ws/v1/cluster/apps``."""
    description = submission.description
    job = description.job
    values = script_values(submission.am_command, launch_environment(description), submission.am_files)
    context: dict[str, Any] = {
        "application-id": description.application_id,
        "application-name": job.name,
        "application-type": APPLICATION_TYPE,
        "am-container-spec": {
            "local-resources": _entries({name: _local(resource) for name, resource in values.files.items()}),
            "commands": {"command": values.command},
            "environment": _entries(values.variables),
            "credentials": _credentials(submission.credentials),
            **_access_lists(job),
        },
        "unmanaged-AM": False,
        "max-app-attempts": job.am.attempts,  # YARN uses its own limit if that is lower
        "attempt-failures-validity-interval": int(job.am.attempts_window * 1000),
        "keep-containers-across-application-attempts": True,
        "resource": {"memory": int(job.am_memory), "vCores": job.am.vcores},
        "application-tags": {"tag": submission.tags},
    }
    if job.queue is not None:
        context["queue"] = job.queue
    if job.priority is not None:
        context["priority"] = job.priority
    if job.node_label is not None:
        context["app-node-label-expression"] = job.node_label
    if (am_label := job.am.node_label or job.node_label) is not None:
        context["am-container-node-label-expression"] = am_label
    return context


def _access_lists(job: JobSpec) -> dict[str, Any]:
    """Return the job's access lists without empty ones.

    Empty lists equal YARN's default, and Hadoop 2.10's JSON reader fails on them.
    """
    who = {VIEW_APP: job.acls.viewers, MODIFY_APP: job.acls.modify}
    lists = {each: AccessList.of(names.users, names.groups) for each, names in who.items()}
    texts = {name: found.text for name, found in lists.items() if found != AccessList()}
    return {"application-acls": _entries(texts)} if texts else {}


def masked(context: dict[str, Any]) -> dict[str, Any]:
    """Return the submission context for display: with masked credentials, and plain maps in place of JAXB's format."""
    container = {key: _plain(value) for key, value in context["am-container-spec"].items()}
    credentials = context["am-container-spec"]["credentials"].items()
    container["credentials"] = {kind: dict.fromkeys(_plain(values), MASK) for kind, values in credentials}
    return {**context, "am-container-spec": container}


def _plain(value: dict[str, Any]) -> Any:
    entries = value.get("entry")
    return {each["key"]: each["value"] for each in entries} if isinstance(entries, list) else value


def _local(resource: LocalizedResource) -> dict[str, Any]:
    return {
        "resource": uris.encoded(resource.uri),
        "type": "FILE",  # even for archives: a hash cannot be verified after YARN has unpacked the file
        "visibility": "PRIVATE" if resource.is_verified else "APPLICATION",
        "size": resource.size,
        "timestamp": resource.modified_ms,
    }


def _credentials(credentials: Credentials) -> dict[str, Any]:
    tokens = {alias: token.to_url_string() for alias, token in credentials.tokens.items()}
    secrets = {name: base64.b64encode(secret).decode() for name, secret in credentials.secrets.items()}
    # Omits empty maps because Hadoop 2.10's JSON reader fails on an empty list.
    return {key: _entries(values) for key, values in (("tokens", tokens), ("secrets", secrets)) if values}


def _entries(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return a Java map in JAXB's format."""
    return {"entry": [{"key": key, "value": value} for key, value in mapping.items()]}


_PAUSE = 0.5  # seconds before the next attempt with all addresses, if none has answered
_LEAST = 0.1  # minimum seconds for one request, even if the deadline is closer


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
                raise MasterOutOfReach(f"the master of {application_id} cannot be reached: {reasons}")
            time.sleep(_PAUSE)

    def _further(self, application_id: str, known: Sequence[str]) -> list[str]:
        """Return the application's tracking URL if it is a proxy address that is not in ``known``, otherwise [].

        This is an address of the stand-alone proxy, if the cluster has one. Behind a gateway it cannot be reached.
        """
        if self._rest.config.gateway:
            return []
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
                    json=body,  # requests encodes it as ASCII, which survives the proxy's charset
                )
            except requests.RequestException as error:
                raise _NoAnswer(f"{url} does not answer ({type(error).__name__})") from error


def _first(
    ways: Sequence[str], path: str, send: Callable[[str, float], Any], deadline: float, problems: list[Exception]
) -> Any:
    """Return the first answer from one of the addresses. Otherwise return None. Append failures to ``problems``."""
    for way in ways:
        try:
            return send(f"{way}/{path}", max(_LEAST, deadline - time.monotonic()))
        except (_NoAnswer, _NotHere) as problem:
            problems.append(problem)
    return None


def _text(response: requests.Response) -> bytes:
    """Return a plain-text answer. Only masters answer with plain text; the proxy and the ResourceManager send HTML."""
    if response.ok and _content_type(response) == "text/plain":
        return response.content
    url = response.url.partition("?")[0]
    if response.status_code == requests.codes.not_found and (found := _json(response)) is not None:
        raise _NotHere(f"{url}: {printable(str(found.get('error', 'not found')))}")
    _answer(response)
    raise _NotHere(f"{url} does not answer with text")


def _answer(response: requests.Response) -> dict[str, Any]:
    """Return a JSON answer. Only masters answer with JSON; the proxy and the ResourceManager send HTML."""
    found = _json(response)
    if found is not None and response.ok:
        return found
    has_said = found is not None and "error" in found
    said = printable(str(found["error"])) if found is not None and has_said else f"answered {response.status_code}"
    if response.status_code == requests.codes.unauthorized:
        raise ClusterAuthError(f"{response.url} does not accept our identity: {_kerberos_reason(response) or said}")
    if response.status_code == requests.codes.forbidden:
        why = _kerberos_reason(response)
        refused = f"{response.url} refuses access" + (f": {why}" if why else "")
        raise ClusterAuthError(said if found is not None else refused)
    if has_said and response.status_code < requests.codes.server_error:
        raise UnexpectedAnswer(f"the application's master rejected the request: {said}")
    if response.is_redirect:
        said = "redirects: it has no application master there"
    elif response.ok:
        said = "answers with a web page: it has no application master there"
    raise _NotHere(f"{response.url.partition('?')[0]} {said}")


def _kerberos_reason(response: requests.Response) -> str:
    """Return why Hadoop rejects our identity, with a remedy, or "" if the error is not from Kerberos."""
    _, said = said_exception(response)
    return explained(said) if reason(said) else ""


def _json(response: requests.Response) -> dict[str, Any] | None:
    return json_object(response) if _content_type(response) == "application/json" else None


def _content_type(response: requests.Response) -> str:
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip()
