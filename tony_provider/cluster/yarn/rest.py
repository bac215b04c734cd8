"""The ResourceManagers' REST interface with failover, deadlines and typed errors, around yarn-api-client.

yarn-api-client knows the calls. What it lacks is here: it elects a ResourceManager once and takes a redirecting standby
for the active one, drops base paths and status codes, and trusts the environment's proxy variables.
Calls: https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import attrs
import requests
from requests.auth import AuthBase
from yarn_api_client.base import BaseYarnAPI
from yarn_api_client.base import Response as YarnResponse
from yarn_api_client.resource_manager import ResourceManager as YarnApi

from tony_provider.cluster import defaults
from tony_provider.cluster.errors import (
    ClusterAuthError,
    ClusterUnreachable,
    ConfigurationHidden,
    RestSubmissionDisabled,
    UnexpectedAnswer,
)
from tony_provider.cluster.http import bounded_request, json_object
from tony_provider.cluster.interface import Submission
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common.bounds import YARN_ANSWER_LIMIT
from tony_provider.runtime.common.clock import server_clock_ahead
from tony_provider.runtime.common.network import page_title
from tony_provider.runtime.common.text import MASK
from tony_provider.runtime.hadoop.gss import explained, reason
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.hadoop.yarn_records import MODIFY_APP, VIEW_APP, AccessList
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.launch.launch_context import launch_environment, script_values
from tony_provider.runtime.storage import uris

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_ANSWER = 60.0  # seconds from an answer's first byte to its last
_FIRST_PAUSE = 0.2  # seconds between two rounds over all ResourceManagers; doubles
_LONGEST_PAUSE = 3.0
_REST_DISABLED = "App submission via REST is disabled"


@attrs.frozen
class RestConfig:
    """How the ResourceManagers' REST interface is reached.

    Raises nothing: ``hooks/connection.py`` has checked the addresses.
    """

    addresses: list[str]  # http(s)://host:port of every ResourceManager, perhaps with a path (a gateway's)
    user: str | None = None  # on clusters without Kerberos: user.name
    proxy_user: str | None = None  # on clusters with it: doAs
    auth: AuthBase | None = None  # SPNEGO
    verify: bool | str = True  # whether https servers are checked, or the PEM file to check them against
    trust_env: bool = False  # use the environment's proxy variables
    response_timeout: float = 20.0  # seconds that one ResourceManager may take to connect, and to answer
    timeout: float = defaults.CALL_SECONDS  # seconds for one call in all, with every retry and failover

    @property
    def identity(self) -> dict[str, str]:
        """The request parameters that say for whom a request is."""
        if self.auth is None:
            return {"user.name": self.user} if self.user else {}
        return {"doAs": self.proxy_user} if self.proxy_user else {}


class RestError(UnexpectedAnswer):
    """The active ResourceManager answered a call with an error of its own."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        super().__init__(f"the ResourceManager answered {status}: {message or exception or 'no reason given'}")
        self.status = status
        self.exception = exception  # the Java class's simple name, such as NotFoundException; may be empty
        self.message = message


class _Unavailable(Exception):  # noqa: N818
    """This ResourceManager cannot serve now; another one, or the same a little later, perhaps can."""


class _Endpoint(YarnApi):  # type: ignore[misc]
    """yarn-api-client's calls, sent to one ResourceManager in our way."""

    def __init__(self, address: str, config: RestConfig) -> None:
        # Not YarnApi's own: that would elect.
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
                self.address + api_path,
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
        """Asked before the first call only: a standby answers the later ones with a redirect."""
        if self._seen_active:
            return True
        try:
            info = self.cluster_information().data["clusterInfo"]
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


class YarnRest:
    """Calls to whichever ResourceManager is active.

    Safe in several threads, each with connections of its own. No lock is held while waiting: a task that is being
    killed calls from a second thread while its first one may be anywhere. Raises ClusterUnreachable when none was
    active until the deadline, ClusterAuthError, RestError for an error of the ResourceManager itself.
    """

    def __init__(self, config: RestConfig) -> None:
        self.config = config
        self._active = config.addresses[0].rstrip("/")  # where the last call found it, or a first guess
        self.clock_ahead = 0.0  # seconds by which the clock of the active one is ahead of this machine's; 0: not known
        self._connections = threading.local()
        self._open: list[_Endpoint] = []

    def call(self, action: Callable[[YarnApi], YarnResponse]) -> Any:
        """The JSON that ``action`` gets, such as ``lambda rm: rm.cluster_information()``.

        After a connection error it is sent again, perhaps to another ResourceManager: it must be idempotent.
        """
        return self._with_active(lambda endpoint: action(endpoint).data)

    def request(self, path: str, method: str = "GET", **kwargs: Any) -> Any:
        """The answer to a request that yarn-api-client does not know, or does not send as documented."""
        return self._with_active(lambda endpoint: endpoint.request(path, method, **kwargs).data)

    def setting(self, name: str) -> str | None:
        """A property of the ResourceManager's own configuration; None when it is not set.

        Raises ConfigurationHidden on clusters that show their configuration to administrators only.
        """

        def read(endpoint: _Endpoint) -> Any:
            try:
                return _configuration(endpoint, {"name": name})
            except RestError as error:
                if error.status == requests.codes.not_found:
                    return {}
                raise

        value = self._with_active(read).get("property", {}).get("value")
        return None if value is None else str(value)

    def every_setting(self) -> list[dict[str, Any]]:
        """The ResourceManager's whole configuration: of each property ``key``, ``value``, and ``resource``, its file.

        Raises ConfigurationHidden on clusters that show their configuration to administrators only.
        """
        return list(self._with_active(lambda endpoint: _configuration(endpoint, {})).get("properties", []))

    @property
    def addresses(self) -> list[str]:
        """The addresses of all ResourceManagers, the one that was active last first. Asks nobody."""
        every = (address.rstrip("/") for address in self.config.addresses)
        return sorted(every, key=lambda address: address != self._active)

    def active_host(self) -> str:
        """The host that the active ResourceManager was reached at."""
        return urlsplit(self._with_active(lambda endpoint: endpoint.address)).hostname or ""

    def close(self) -> None:
        """Close all connections; they are opened again where they are needed. Idempotent."""
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
        """All of them, the one that was active last first."""
        endpoints: list[_Endpoint] | None = getattr(self._connections, "endpoints", None)
        if endpoints is None:
            endpoints = [_Endpoint(address, self.config) for address in self.config.addresses]
            self._connections.endpoints = endpoints
            self._open += endpoints
        return sorted(endpoints, key=lambda endpoint: endpoint.address != self._active)


def _configuration(endpoint: _Endpoint, which: dict[str, str]) -> Any:
    try:
        return endpoint.request("/conf", params={**which, "format": "json"}).data
    except ClusterAuthError as error:  # though it answers other calls
        raise ConfigurationHidden(f"the ResourceManager does not show its configuration: {error}") from error


def _check(endpoint: _Endpoint, response: requests.Response) -> None:
    """Raise for anything but a success of the active ResourceManager."""
    if response.status_code < requests.codes.multiple_choices:
        return
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
        raise ClusterAuthError(f"{endpoint.address} does not let {_who(endpoint.config)} do this: {message}")
    raise RestError(response.status_code, exception, message)


def _refuse_identity(endpoint: _Endpoint, message: str) -> NoReturn:
    if endpoint.config.auth is None:
        raise ClusterAuthError(
            f"{endpoint.address} asks for Kerberos; set `kerberos` to true in the tony connection ({message})"
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
    """An id as it stands in an address: they come from people and from Airflow's stores, and name no other address."""
    return quote(application_id, safe="")


def said_exception(response: requests.Response) -> tuple[str, str]:
    """Hadoop's ``RemoteException`` object, or what else the body says; the class name and the message."""
    try:
        answer = json_object(response) or {}
        remote = answer.get("RemoteException", answer)  # or that of its web server
        return str(remote.get("exception", "")), str(remote["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        text = " ".join(page_title(response.content).split())
        return "", text[:1000] or response.reason


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "it did not answer in time"
    # requests wraps urllib3's error, whose text names the host twice; the innermost says what happened.
    inner: BaseException = error
    while inner.__context__ is not None:
        inner = inner.__context__
    return str(inner) or type(error).__name__


APPLICATION_TYPE = "TONY"


def submission_context(submission: Submission) -> dict[str, Any]:
    """The body of ``POST /ws/v1/cluster/apps``."""
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
        "max-app-attempts": job.am.attempts,  # YARN takes its own limit where that is lower
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
    """None where nobody is named: YARN's default is the same, and Hadoop 2.10's JSON reader fails at empty lists."""
    who = {VIEW_APP: job.acls.viewers, MODIFY_APP: job.acls.modify}
    lists = {each: AccessList.of(names.users, names.groups) for each, names in who.items()}
    texts = {name: found.text for name, found in lists.items() if found != AccessList()}
    return {"application-acls": _entries(texts)} if texts else {}


def masked(context: dict[str, Any]) -> dict[str, Any]:
    """The submission context for people to read: of its credentials only the names, and Java's maps as plain ones."""
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
        "type": "FILE",  # also for an archive: only a file that is not unpacked can be verified
        "visibility": "PRIVATE" if resource.is_verified else "APPLICATION",
        "size": resource.size,
        "timestamp": resource.modified_ms,
    }


def _credentials(credentials: Credentials) -> dict[str, Any]:
    tokens = {alias: token.to_url_string() for alias, token in credentials.tokens.items()}
    secrets = {name: base64.b64encode(secret).decode() for name, secret in credentials.secrets.items()}
    # No empty ones: Hadoop 2.10's JSON reader fails at an empty list.
    return {key: _entries(values) for key, values in (("tokens", tokens), ("secrets", secrets)) if values}


def _entries(mapping: dict[str, Any]) -> dict[str, Any]:
    """A Java map, as JAXB writes it."""
    return {"entry": [{"key": key, "value": value} for key, value in mapping.items()]}
