"""Settings of a tony connection: the cluster and store, the policy of allowed values, file roots and presets."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster import defaults
from tony_provider.runtime.application import GpuDealing, OtherHdfs
from tony_provider.runtime.common.quantities import MEMORY, amount
from tony_provider.runtime.jobspec.container_content import docker_keys
from tony_provider.runtime.jobspec.model import Duration, JobSpec, Memory, Network, TaskSpec
from tony_provider.runtime.jobspec.problems import Problem, SpecError, child, shown, suggestion
from tony_provider.runtime.jobspec.units import USER, USER_RULE
from tony_provider.runtime.parsing.parse import Layer, Patterns, dotted_key, leaf_keys, partial_problems
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

CA_FILE_ADVICE = "name the PEM file of the servers' authority in `verify`"


def ca_file_problem(verify: bool | str, addresses: Iterable[str]) -> str:
    """Return why the CA file cannot verify the https addresses, or an empty string if it can.

    Also return an empty string if ``verify`` names no file or no address is https.
    """
    if not isinstance(verify, str) or not any(address.startswith("https:") for address in addresses):
        return ""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=verify)
    except ssl.SSLError:
        return f"`verify` ({verify}) holds no certificate"
    except OSError as error:
        return f"`verify` ({verify}) cannot be read on this host: {error.strerror}"
    return ""


@attrs.frozen
class FileRoots:
    """The directories of this machine below which a job's files must lie.

    The connection's ``file_roots`` names them. Without ``file_roots`` they are the directories of the DAG or of the
    command line. A directory may be a link, and a root may be a single file.
    """

    conn_id: str
    directories: Sequence[Path]
    of_connection: bool = False
    made: Sequence[Path] = ()  # files that were generated for the submission, so exempt

    def problem(self, path: Path) -> str:
        """Return why a job may not take this file or directory, or an empty string if it may.

        Links are followed on both sides before the comparison, so that a link does not lead out of a root.
        """
        if path in self.made:
            return ""
        place = path.resolve()
        if any(place.is_relative_to(root.resolve()) for root in self.directories):
            return ""
        roots = ", ".join(map(str, self.directories)) or "none"
        # The path may come from a trigger form, and may hold control characters.
        shown = str(place) if str(place).isprintable() else ascii(str(place))
        if self.of_connection:
            return (
                f"{shown} is not what the connection {self.conn_id!r} allows (file_roots: {roots}), which its "
                "administrator may change"
            )
        return (
            f"{shown} lies outside the directories that this job may take files from ({roots}); move it there, or "
            f"have the administrator of the connection {self.conn_id!r} name its directory in `file_roots`"
        )


@attrs.frozen
class Policy:
    """The limits of one connection. None is no limit (``file_roots``: the default), an empty list allows no value."""

    conn_id: str = ""
    proxy_users: Sequence[str] | None = None  # patterns, like queues and images
    queues: Sequence[str] | None = None
    images: Sequence[str] | None = None
    file_roots: Sequence[Path] | None = None  # directories of the worker
    allowed_overrides: Sequence[str] | None = None
    max_tasks: int | None = None  # of a job
    max_memory: Memory | None = None  # MiB, total of all containers of a job
    max_vcores: int | None = None  # total of all containers of a job
    max_gpus: int | None = None  # total of all containers of a job
    max_container_memory: Memory | None = None  # MiB
    max_container_vcores: int | None = None
    max_container_gpus: int | None = None
    max_lifetime: Duration | None = None  # seconds
    max_priority: int | None = None

    def user_problem(self, proxy_user: str | None) -> str:
        """Return why the connection may not submit as this user, or an empty string if it may."""
        if proxy_user is None:
            return ""
        if not USER.fullmatch(proxy_user):
            return f"proxy_user: {USER_RULE} (got {shown(proxy_user)})"
        if self.proxy_users is None or _matches(proxy_user, self.proxy_users):
            return ""
        return self._not_among("proxy_user", proxy_user, "proxy_users", self.proxy_users)

    def problems(self, job: JobSpec, overrides: Mapping[str, Any] | None, *, has_queues: bool) -> list[str]:
        """Return which values of a job (with the connection's defaults) the connection does not allow."""
        return [
            *self._overrides(overrides or {}),
            *self._names(job, has_queues=has_queues),
            *self._sizes(job),
            *self._limits(job),
        ]

    def roots(self, default: Sequence[Path], made: Sequence[Path] = ()) -> FileRoots:
        """Return the directories for a job's files: the connection's ``file_roots``, otherwise ``default``.

        ``made``: files that were generated for the submission, so exempt.
        """
        if self.file_roots is None:
            return FileRoots(self.conn_id, default, made=made)
        return FileRoots(self.conn_id, self.file_roots, of_connection=True, made=made)

    def _overrides(self, overrides: Mapping[str, Any]) -> Iterator[str]:
        if self.allowed_overrides is None:
            return
        patterns = Patterns(self.allowed_overrides)
        for path, value in leaf_keys(overrides):
            if not patterns.allow(path):
                given = f"what overrides lay there ({shown(value)})"
                yield f"{dotted_key(path)}: {given} {self._allows('allowed_overrides', self.allowed_overrides)}"

    def _names(self, job: JobSpec, *, has_queues: bool) -> Iterator[str]:
        if self.queues is not None and (has_queues or job.queue is not None):
            queue = job.queue or ""
            if not _matches(queue, self.queues):
                yield self._not_among("queue", queue or "that of YARN's own placement", "queues", self.queues)
        for path, docker in docker_keys(job).items():
            if self.images is not None and docker.image is not None and not _matches(docker.image, self.images):
                yield self._not_among(child(path, "image"), docker.image, "images", self.images)

    def _sizes(self, job: JobSpec) -> Iterator[str]:
        containers = _containers(job)
        for path, _, each in containers:
            yield from self._more(child(path, "memory"), each.memory, "max_container_memory", _mebibytes)
            yield from self._more(child(path, "vcores"), each.vcores, "max_container_vcores")
            yield from self._more(child(path, "gpus"), each.gpus, "max_container_gpus")
        yield from self._more("tasks", job.size, "max_tasks")
        for name, show in (("memory", _mebibytes), ("vcores", str), ("gpus", str)):
            total = sum(number * getattr(each, name) for _, number, each in containers)
            yield from self._more(f"{name} of all containers together", total, f"max_{name}", show)

    def _limits(self, job: JobSpec) -> Iterator[str]:
        yield from self._more("timeouts.lifetime", job.timeouts.lifetime, "max_lifetime", _seconds)
        yield from self._more("priority", job.priority, "max_priority")

    def _more(self, path: str, value: Any, limit: str, show: Any = str) -> Iterator[str]:
        most = getattr(self, limit)
        if most is not None and value is not None and value > most:
            yield f"{path}: {show(value)} is more than the connection {self.conn_id!r} allows ({limit}: {show(most)})"

    def _not_among(self, path: str, value: str, limit: str, allowed: Sequence[str]) -> str:
        said = f"{path}: {value}"  # a trigger form accepts any characters
        return f"{said if said.isprintable() else ascii(said)} {self._allows(limit, allowed)}"

    def _allows(self, limit: str, allowed: Sequence[str]) -> str:
        named = ", ".join(allowed) or "none"
        return (
            f"is not what the connection {self.conn_id!r} allows ({limit}: {named}), which its administrator may change"
        )


def _matches(value: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


def _containers(job: JobSpec) -> list[tuple[str, int, TaskSpec]]:
    """Return path, number and largest size of each kind of container, including the application master's."""
    master = TaskSpec(memory=job.am_memory, vcores=job.am.vcores)
    tasks = [(child("tasks", name), task.most_instances, _grown(job, task)) for name, task in job.tasks.items()]
    return [("am", 1, master), *tasks]


def _grown(job: JobSpec, task: TaskSpec) -> TaskSpec:
    """Return the task with the largest memory of its containers after out-of-memory kills (``restart.memory_step``)."""
    if job.restart.memory_step is None:
        return task
    largest = job.restart.memory_limit or 2 * task.memory
    return attrs.evolve(task, memory=Memory(max(task.memory, largest)))


def _mebibytes(memory: int) -> str:
    return amount(MEMORY, memory)


def _seconds(time_span: float) -> str:
    return f"{time_span:g} s"


_KEY = "preset"  # key of a job specification


@attrs.frozen
class Presets:
    """The presets of one connection."""

    conn_id: str = ""
    by_name: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def layer(self, name: object) -> Layer:
        """Return the preset as a layer below the job that names it. Raises SpecError if there is no such preset."""
        if isinstance(name, str) and name in self.by_name:
            return Layer(f"preset {name}", self.by_name[name])
        known = ", ".join(sorted(self.by_name))
        has = f"its presets are {known}" if known else "it has none"
        hint = suggestion(name, list(self.by_name)) if isinstance(name, str) else ""
        raise SpecError([Problem(_KEY, name, f"the connection {self.conn_id!r} has no such preset; {has}{hint}")])


def preset_problems(presets: Mapping[Any, Any]) -> list[str]:
    """Return the problems of the presets in a connection."""
    found = []
    for name, part in presets.items():
        if not isinstance(part, Mapping):
            found.append(f"{child('', name)}: must be a mapping, a part of a job (got {part!r})")
        elif _KEY in part:
            found.append(f"{child('', name)}.{_KEY}: a preset names no other one")
        else:
            found += [f"{child('', name)}.{problem}" for problem in partial_problems(part)]
    return found


NO_KEY_SERVER = "none"


class Backend(StrEnum):
    """The kinds of clusters that a connection can name."""

    YARN = "yarn"
    LOCAL = "local"


@attrs.frozen
class MasterKeytab:
    """A keytab for application masters, so that no user needs to bring newer tokens to their jobs."""

    path: Path  # on the worker
    principal: str

    @property
    def user(self) -> str:
        """The principal's short name by Hadoop's default rule: the part before ``/`` or ``@``."""
        return self.principal.split("@")[0].split("/")[0]


@attrs.frozen
class YarnSettings:
    """Access to a YARN cluster and its HDFS."""

    resource_managers: list[str]  # http(s)://host:port of each
    webhdfs: WebHdfsConfig
    kerberos: bool = False
    scheduler: list[str] = attrs.field(factory=list)  # host:port of each; if empty, the ResourceManager reports them
    rm_principal: str | None = None  # if None, the ResourceManager reports it
    verify: bool | str = True  # whether to verify https ResourceManagers, or the PEM file for that
    trust_env: bool = False  # use the environment's proxy variables for REST
    timeout: float = defaults.CALL_SECONDS  # seconds for one call, including all retries and failovers
    autoscaling: bool = False  # the cluster adds nodes when jobs wait for them
    insecure_http: bool = False  # allow sending keys and tokens over plain http
    nodes_ca_file: str | None = None  # PEM file on the nodes that verifies https NameNodes
    master_keytab: MasterKeytab | None = None
    tokens_renewed: bool = False  # `airflow tony renew` runs regularly, for jobs that no task waits for

    other_hdfs: list[OtherHdfs] = attrs.field(factory=list)  # HDFS other than the staging directory's
    key_server: str | None = None  # its URI, or NO_KEY_SERVER; if None, HDFS reports it

    @property
    def plain_addresses(self) -> list[str]:
        """The http addresses of a cluster with Kerberos, where keys and tokens of jobs could be read in transit.

        See ``refuse_plain_http`` in ``checks/job_checks.py``.
        """
        others = (address for each in self.other_hdfs for address in each.webhdfs.addresses)
        every = [*self.resource_managers, *self.webhdfs.addresses, *others] if self.kerberos else []
        return [address for address in every if address.startswith("http://")]

    @property
    def renews_tokens(self) -> bool:
        """Whether jobs that no task waits for also get newer tokens of the store."""
        return self.tokens_renewed or self.master_keytab is not None


@attrs.frozen
class LocalSettings:
    """The local backend's directory and its resource limits for one application."""

    root: Path  # where the local cluster keeps its state
    memory: int  # MiB
    vcores: int
    gpus: int = 0


@attrs.frozen
class Settings:
    """All settings of a tony connection, with defaults filled in."""

    user: str | None  # user of the jobs; if None, the owner of the Kerberos ticket
    proxy_user: str | None = None  # impersonate this user
    namespace: str = defaults.NAMESPACE  # keeps several Airflow installations on one cluster apart
    queue: str | None = None
    log_size: Memory | None = None  # default size limit of a task's output on its node
    network: Network | None = None  # default answer to who can reach a job's ports; None if it is unknown
    staging_dir: str | None = None  # URI, or path on the default file system; default: /user/<user>/.tony
    runtime_archive: str | None = None  # file of the worker or URI of the store; if None, pack the worker's packages
    shared_dir: Path | None = None  # mounted on all nodes; None if there is none
    shared_cache: str | None = None  # directory of the store with environments for all users; None if there is none
    python: list[str] = attrs.field(factory=list)  # interpreters on the nodes to try first
    gpu_dealing: GpuDealing | None = None  # None if the nodes isolate GPUs, or if no assignment is wanted
    policy: Policy = attrs.field(factory=Policy)  # limits of what jobs may request
    presets: Presets = attrs.field(factory=Presets)
    yarn: YarnSettings | None = None  # exactly one of yarn and local
    local: LocalSettings | None = None

    @property
    def backend(self) -> Backend:
        return Backend.YARN if self.yarn is not None else Backend.LOCAL
