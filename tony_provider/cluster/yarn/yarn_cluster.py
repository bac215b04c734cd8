"""Cluster interface for YARN, over the ResourceManager's REST interface."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import requests

from tony_provider.cluster import lifetime
from tony_provider.cluster.errors import (
    ClusterAuthError,
    ClusterError,
    ClusterUnreachable,
    ConfigurationHidden,
    ConnectionProblem,
    JobTooLarge,
    SubmissionRefused,
    UnexpectedAnswer,
)
from tony_provider.cluster.findings import Finding, JobProblem, Severity, ok, warning
from tony_provider.cluster.http import bounded_request, json_object
from tony_provider.cluster.interface import (
    Application,
    ApplicationFilter,
    ApplicationState,
    Cluster,
    Pages,
    Submission,
)
from tony_provider.cluster.yarn import configuration
from tony_provider.cluster.yarn.cluster_view import (
    ClusterView,
    Node,
    Queue,
    as_list,
    node_labels,
    nodes,
    queue_administrators,
    queue_problem,
    queues,
    resources,
    shared_labels,
    units,
)
from tony_provider.cluster.yarn.configuration import client_properties, rpc_protection
from tony_provider.cluster.yarn.job_checks import (
    HANDLER,
    HIDDEN,
    NodeSettings,
    capacity_shortages,
    handler_problems,
    image_problems,
    job_problems,
    names_nodes,
    nodes_for_images,
    placement_problems,
    present_shortages,
    racks_of,
)
from tony_provider.cluster.yarn.rest import (
    APPLICATION_TYPE,
    MasterProxy,
    RestError,
    RestNotFoundError,
    YarnRest,
    masked,
    path_segment,
    submission_context,
)
from tony_provider.runtime.application import YarnAccess
from tony_provider.runtime.common.bounds import NODE_ANSWER_LIMIT
from tony_provider.runtime.common.text import one_line, printable
from tony_provider.runtime.hadoop.gss import explained
from tony_provider.runtime.hadoop.yarn_records import ApplicationId, ContainerId
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.status import FinalStatus

log = logging.getLogger(__name__)

_LONGEST_DIAGNOSTICS = 64 << 10  # characters; jobs choose the text of their own diagnostics
_STATES = {
    live: [state.value for state in ApplicationState if live in (None, not state.is_final)]
    for live in (None, True, False)
}
_DEFAULT_SCHEDULER_PORT = 8030  # yarn-default.xml
_BEING_STORED = (ApplicationState.NEW, ApplicationState.NEW_SAVING)
_FIRST_STORED_POLL = 0.01  # seconds until YARN is polled for a submitted application; doubles up to _STORED_POLL
_STORED_POLL = 0.1
_SHORTEST_LIFETIME = 1.0  # seconds: YARN rejects an end in the past
_NODES_SECONDS = 10.0  # how long the check of a job that is too large waits for further nodes to register
_NOT_RENEWED = "Failed to renew token"  # start of the diagnostics if HDFS refuses the ResourceManager's renewal
_NODES_POLL = 2.0
_ROOM = "Room"
_NODE_SECONDS = 10.0  # time limit for a request to a NodeManager (for a log or its settings)
_NODES_ASKED = 3  # number of nodes checked for image support; nodes are usually configured alike


class YarnCluster(Cluster):
    """The YARN backend: submits and watches applications over the ResourceManager's REST interface.

    :param scheduler: the ResourceManagers' scheduler addresses (host:port). If empty, query the ResourceManager.
    :param autoscaling: True if the cluster adds nodes when jobs wait for them.
    """

    def __init__(self, rest: YarnRest, *, user: str, scheduler: list[str], autoscaling: bool = False) -> None:
        self.rest = rest
        self._autoscaling = autoscaling
        self._user = user
        self._scheduler = scheduler
        self._masters = MasterProxy(rest, self._tracking_url)
        # ``check`` requests the size of the largest container. YARN's answer also has a new application id, which the
        # next submission uses.
        self._spare_id: str | None = None
        self._spare_id_lock = threading.Lock()  # two submissions must not share an id

    @property
    def user(self) -> str:
        return self._user

    def check(self, job: JobSpec) -> Iterator[Finding | str]:
        offer = self._offer()
        with self._spare_id_lock:
            self._spare_id = str(offer["application-id"])
        view = self._view(offer)
        handler = self._placement_handler() if any(map(job.placed_by_rules, job.tasks)) else None
        found = [*lifetime.problems(job, time.time()), *job_problems(job, view)]
        found += [*handler_problems(job, handler), *placement_problems(job, view)]
        # The images and the capacity of the nodes are checked only if the job has none of these problems.
        yield from found or self._image_problems(job, view) or self._check_room(job, offer, view)

    def _placement_handler(self) -> str | None:
        """Return YARN's setting HANDLER. Return None if it is unset, and HIDDEN if the cluster hides it."""
        try:
            return self.rest.setting(HANDLER)
        except ConfigurationHidden as error:
            log.info("Cannot read whether YARN supports placement rules (%s)", error)
            return HIDDEN

    def _view(self, offer: Mapping[str, Any]) -> ClusterView:
        labels = self.rest.request("/ws/v1/cluster/get-node-labels")
        largest = offer.get("maximum-resource-capability") or {}
        known = self._nodes()
        return ClusterView(
            queues=self.queues(),
            labels=frozenset(node_labels(labels)),
            nodes=[node for node in known if node.works],
            largest=resources(largest),
            units=units(largest),
            shared_labels=frozenset(shared_labels(labels)),
            missing=sum(not node.works for node in known),
        )

    def _nodes(self) -> list[Node]:
        """Return every node that the ResourceManager knows, in any state."""
        return nodes(self.rest.call(lambda rm: rm.cluster_nodes()))

    def _image_problems(self, job: JobSpec, view: ClusterView) -> list[str]:
        """Return the first node's problems if none of _NODES_ASKED suitable nodes would start the job's containers."""
        found: list[str] = []
        for node in nodes_for_images(job, view.nodes)[:_NODES_ASKED]:
            settings = self._node_settings(node)
            if settings is None:  # the other NodeManagers are usually also unreachable or refuse
                break
            of_node = image_problems(job, self._user, settings)
            if not of_node:
                return []
            found = found or of_node
        return found

    def _node_settings(self, node: Node) -> NodeSettings | None:
        """Return a NodeManager's configuration, or None if it is unreachable or refuses."""
        try:
            response = self._ask_node(node.web, "/conf", {"format": "json"}, accept="application/json")
            listed = (json_object(response) or {}).get("properties") if response.ok else None
            properties = {str(each["key"]): str(each.get("value", "")) for each in listed or ()}
        except (requests.RequestException, ClusterAuthError, AttributeError, KeyError, TypeError) as error:
            log.info("Cannot read the settings of the NodeManager on %s: %s", node.host, error)
            return None
        return NodeSettings(node.host, node.version, properties) if properties else None

    def _check_room(self, job: JobSpec, offer: Mapping[str, Any], view: ClusterView) -> Iterator[Finding]:
        """Yield JobTooLarge problems, or a warning if nodes may be added, or an OK finding if the job has to wait."""
        deadline = time.monotonic() + _NODES_SECONDS
        while found := capacity_shortages(job, view):
            if self._autoscaling or view.missing:
                why = "its nodes change" if self._autoscaling else f"{view.missing} of its nodes are down"
                yield warning(_ROOM, f"This job needs more than the cluster has now ({why}): {'; '.join(found)}", "")
                return
            if time.monotonic() >= deadline:
                yield from (JobProblem(_ROOM, Severity.PROBLEM, each, error=JobTooLarge) for each in found)
                return
            time.sleep(_NODES_POLL)  # the nodes of a restarted ResourceManager register one by one
            view = self._view(offer)
        if found := present_shortages(job, view):
            yield ok(_ROOM, f"This job has to wait for free resources: {'; '.join(found)}")

    def queue_problem(self, queue: str) -> str | None:
        """Return why this queue accepts no applications, with a list of valid queues, or None if it accepts them."""
        known = self.queues()
        return None if known is None else queue_problem(queue, known)

    def queues(self) -> list[Queue] | None:
        """Return all queues of the cluster, or None if the scheduler has no fixed set of queues."""
        return queues(self.rest.call(lambda rm: rm.cluster_scheduler()))

    @property
    def clock_ahead(self) -> float:
        return self.rest.clock_ahead

    def new_application(self) -> str:
        with self._spare_id_lock:
            spare, self._spare_id = self._spare_id, None
        return spare or str(self._offer()["application-id"])

    def _offer(self) -> dict[str, Any]:
        # yarn-api-client sends no body, but some versions of Jersey require one.
        answer = self.rest.request("/ws/v1/cluster/apps/new-application", "POST", json={})
        try:
            ApplicationId.parse(str(answer.get("application-id")))
        except ValueError as error:
            raise UnexpectedAnswer(
                "the ResourceManager returned no application id; check that the address is a ResourceManager's"
            ) from error
        return dict(answer)

    def submit(self, submission: Submission) -> None:
        application_id = submission.description.application_id
        context = submission_context(submission)
        self._post(context)
        deadline, pause = time.monotonic() + self.rest.config.timeout, _FIRST_STORED_POLL
        while (application := self.application(application_id)) is None or application.state in _BEING_STORED:
            if time.monotonic() >= deadline:
                raise ClusterUnreachable(f"YARN accepted {application_id}, but has not stored it yet")
            if application is None:  # the ResourceManager failed before it had stored the application
                self._post(context)
            time.sleep(pause)
            pause = min(2 * pause, _STORED_POLL)
        left = lifetime.seconds_left(submission.description.job.timeouts, time.time())
        if left is not None and not application.is_final:
            self._limit_lifetime(application_id, max(left, _SHORTEST_LIFETIME))

    def request(self, submission: Submission) -> dict[str, Any]:
        return masked(submission_context(submission))

    def _post(self, context: dict[str, Any]) -> None:
        try:
            # Retries after a lost answer do not start a second application, because the ResourceManager knows the id.
            self.rest.call(lambda rm: rm.cluster_submit_application(context))
        except (RestError, ClusterAuthError) as error:
            raise SubmissionRefused(f"YARN rejected the job: {error}") from error

    def _limit_lifetime(self, application_id: str, seconds: float) -> None:
        """Set the lifetime in a separate request, because a REST submission has no field for it."""
        now = datetime.fromtimestamp(time.time() + self.rest.clock_ahead, UTC)  # by YARN's clock
        expiry = (now + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
        body = {"timeout": {"type": "LIFETIME", "expiryTime": expiry}}
        try:
            self.rest.request(f"/ws/v1/cluster/apps/{path_segment(application_id)}/timeout", "PUT", json=body)
        except ClusterError:
            if (application := self.application(application_id)) is not None and application.is_final:
                return  # the application ended before the request
            raise

    def applications(self, which: ApplicationFilter) -> list[Application]:
        asked = {
            "applicationTypes": APPLICATION_TYPE,
            "states": ",".join(_STATES[which.live]),
            "user": which.user,
            "applicationTags": which.tag,
            "deSelects": "resourceRequests",  # omits a long list that is not used
        }
        params = {name: value for name, value in asked.items() if value}
        answer = self.rest.request("/ws/v1/cluster/apps", params=params)
        with _understanding():
            found = [
                _application(info, self.rest.clock_ahead) for info in as_list((answer.get("apps") or {}).get("app"))
            ]
        # Filter again, because YARN compares tags case-insensitively, and some versions match any of several tags.
        mine = [application for application in found if which.holds(application)]
        return sorted(mine, key=lambda application: application.started_ms, reverse=True)

    def application(self, application_id: str) -> Application | None:
        try:
            answer = self.rest.call(lambda rm: rm.cluster_application(path_segment(application_id)))
        except RestNotFoundError:
            return None
        with _understanding():
            return _application(answer["app"], self.rest.clock_ahead)

    def _tracking_url(self, application_id: str) -> str | None:
        application = self.application(application_id)
        return None if application is None else application.tracking_url

    def kill(self, application_id: str, diagnostics: str) -> None:
        body = {"state": ApplicationState.KILLED.value, "diagnostics": diagnostics}
        with suppress(RestNotFoundError):
            self.rest.request(f"/ws/v1/cluster/apps/{path_segment(application_id)}/state", "PUT", json=body)

    def ask_master(
        self,
        application_id: str,
        path: str,
        seconds: float,
        *,
        body: Mapping[str, Any] | None = None,
        is_text: bool = False,
    ) -> Any:
        return self._masters.ask(application_id, path, seconds, body=body, is_text=is_text)

    def limit(self, application_id: str, seconds: float, diagnostics: str, *, prolong: bool = False) -> None:
        """Set YARN's application lifetime. YARN reports its own reason, so ``diagnostics`` is not used."""
        with suppress(RestNotFoundError):
            answer = self.rest.request(f"/ws/v1/cluster/apps/{path_segment(application_id)}/timeouts/LIFETIME")
            left = int((answer.get("timeout") or {}).get("remainingTimeInSeconds", -1))  # negative: unlimited
            if prolong or not 0 <= left <= seconds:
                self._limit_lifetime(application_id, max(seconds, _SHORTEST_LIFETIME))

    def pages(self, application_id: str) -> Pages:
        return Pages(
            application=f"{self.rest.addresses[0]}/cluster/app/{application_id}",
            job=f"{configuration.web_proxy_address(self.rest)}/proxy/{application_id}/",
        )

    def am_log(self, application_id: str, max_bytes: int) -> str:
        try:
            answer = self.rest.call(lambda rm: rm.cluster_application_attempts(path_segment(application_id)))
        except RestNotFoundError:
            return ""
        attempts = as_list((answer.get("appAttempts") or {}).get("appAttempt"))
        started = [attempt for attempt in attempts if attempt.get("containerId") and attempt.get("nodeHttpAddress")]
        if not started:
            return ""
        last = max(started, key=lambda attempt: int(attempt.get("id", 0)))
        return self._container_log(last["nodeHttpAddress"], last["containerId"], max_bytes)

    def _container_log(self, node: str, container_id: str, max_bytes: int) -> str:
        """Return the end of a container's log from its NodeManager, or "" if it was aggregated or deleted."""
        for path in (f"containerlogs/{container_id}/stderr", f"containers/{container_id}/logs/stderr"):
            try:  # a negative size reads from the end
                response = self._ask_node(node, f"/ws/v1/node/{path}", {"size": f"-{max_bytes}"})
            except (requests.RequestException, ClusterAuthError) as error:
                log.info("Cannot read the log of %s from %s: %s", container_id, node, error)
                return ""
            if response.ok:
                return _log_contents(response.text)[-max_bytes:]
        return ""

    def _ask_node(self, node: str, path: str, params: dict[str, str], *, accept: str = "*/*") -> requests.Response:
        """Return a NodeManager's answer, even if it is an error. Raises requests.RequestException, ClusterAuthError."""
        config = self.rest.config
        if config.gateway:
            raise requests.ConnectionError("nodes cannot be reached through a gateway")
        scheme = urlsplit(config.addresses[0]).scheme
        user: dict[str, str] = {} if config.auth is not None or not config.user else {"user.name": config.user}
        with requests.Session() as session:
            session.trust_env = config.trust_env
            session.auth, session.verify = config.auth, config.verify
            answer: requests.Response = bounded_request(
                session,
                "GET",
                f"{scheme}://{node}{path}",
                NODE_ANSWER_LIMIT,
                _NODE_SECONDS,
                params={**user, **params},
                headers={"Accept": accept},
                timeout=_NODE_SECONDS,
            )
            return answer

    def forget(self, application_id: str) -> None:
        """Do nothing, because YARN applications have no files on this machine."""

    def access(self, application_id: str, job: JobSpec | None = None) -> YarnAccess:
        administrators = configuration.administrators_acl(self.rest)
        schedulers = self.schedulers()
        return YarnAccess(
            schedulers,
            configuration.web_proxy_hosts(self.rest, schedulers),
            administrators,
            []
            if administrators is None
            else queue_administrators(job.queue if job is not None else None, self.queues() or ()),
            racks_of(job, self._nodes()) if job is not None and names_nodes(job) else {},
            rpc_protection(self.rest),
        )

    def client_configuration(self) -> dict[str, str]:
        try:
            return client_properties(self.rest.settings)
        except ConfigurationHidden as error:
            log.warning(
                "The cluster hides its Hadoop configuration, so the job can use only the configuration files "
                "on its nodes: %s",
                error,
            )
            return {}

    def master_lost_after(self) -> float:
        return configuration.master_lost_after(self.rest)

    def schedulers(self) -> list[str]:
        """Return the schedulers' addresses (host:port of each ResourceManager) for application masters.

        Raises ConnectionProblem if the addresses are hidden and have to be set in the connection.
        """
        return self._scheduler or self._configured_schedulers()

    def _configured_schedulers(self) -> list[str]:
        name = "yarn.resourcemanager.scheduler.address"
        try:
            by_id = configuration.ha_addresses(self.rest, name, _DEFAULT_SCHEDULER_PORT)
            address = None if by_id else self.rest.setting(name)
        except ConfigurationHidden as error:
            raise ConnectionProblem(
                f"{error}; set `scheduler_address` in the tony connection to its scheduler's host:port"
            ) from error
        if missing := [rm_id for rm_id, each in by_id.items() if not each]:
            raise UnexpectedAnswer(
                f"the ResourceManager's configuration has no scheduler address for {missing[0]}; set "
                "`scheduler_address` in the tony connection"
            )
        if by_id:
            return list(by_id.values())
        return [self._reachable(address or f"{self.rest.active_host()}:{_DEFAULT_SCHEDULER_PORT}")]

    def _reachable(self, address: str) -> str:
        """Replace the wildcard address 0.0.0.0 with the host at which the ResourceManager was reached."""
        host, _, port = address.rpartition(":")
        if host != "0.0.0.0":  # noqa: S104
            return address
        if self.rest.config.gateway:
            raise ConnectionProblem(
                f"the ResourceManager's configuration names its scheduler {address}; set `scheduler_address` in the "
                "tony connection to its scheduler's host:port"
            )
        return f"{self.rest.active_host()}:{port}"

    def close(self) -> None:
        self.rest.close()


def _log_contents(page: str) -> str:
    """Strip the lines that a NodeManager adds around a log."""
    _, _, after = page.partition("\nLogContents:\n")
    return (after or page).rpartition("\nEnd of LogType:")[0] or after or page


@contextmanager
def _understanding() -> Iterator[None]:
    """Raise UnexpectedAnswer if the JSON of an answer lacks expected fields, as answers of other servers do."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnexpectedAnswer(
            f"the ResourceManager's report on an application is not valid ({type(error).__name__}: "
            f"{error}); check that the address is a ResourceManager's"
        ) from error


def _diagnostics(said: str) -> str:
    """Return the diagnostics, with a remedy for the errors that YARN reports only after it accepted the application."""
    return explained(said) if said.startswith(_NOT_RENEWED) else said


def _application(info: dict[str, Any], clock_ahead: float = 0.0) -> Application:
    final = str(info.get("finalStatus", "UNDEFINED"))
    state = ApplicationState(info["state"])
    progress = float(info.get("progress", 0.0)) / 100
    return Application(
        id=str(info["id"]),
        state=state,
        final_status=FinalStatus(final) if final in FinalStatus.__members__ else None,
        name=one_line(str(info.get("name", ""))),  # applications of other users may have any name
        user=str(info.get("user", "")),
        queue=str(info.get("queue", "")),
        tracking_url=str(info.get("trackingUrl") or ""),
        diagnostics=_diagnostics(printable(str(info.get("diagnostics", ""))[:_LONGEST_DIAGNOSTICS]).strip()),
        progress=min(1.0, max(0.0, progress)),
        started_ms=int(info.get("startedTime", 0)),
        finished_ms=int(info["finishedTime"]) if info.get("finishedTime") else None,
        tags=[tag for tag in str(info.get("applicationTags", "")).split(",") if tag],
        attempt=_attempt(info),
        clock_ahead=clock_ahead,
    )


def _attempt(info: dict[str, Any]) -> str | None:
    """Return the id of the current attempt. If YARN does not report it, parse the container id in the log's URL."""
    if info.get("currentAppAttemptId"):
        return str(info["currentAppAttemptId"])
    for part in str(info.get("amContainerLogs") or "").split("/"):
        try:
            return str(ContainerId.parse(part).attempt)
        except ValueError:
            continue
    return None
