"""Read the history of an application from its directory on the store.

The history consists of the specification with masked secrets, the status, the events, and the samples of the tasks. A
damaged or missing record becomes a line in ``missing``; only an unreachable store raises an error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.training.results import job_status, labels, returned
from tony_provider.runtime.application_history import (
    ContainerLoss,
    LostNodes,
    SampleSegmentHeader,
    TaskSample,
    contents,
    listed,
    lost_nodes_days,
    read_events,
    read_limit,
    read_segment,
    segment_order,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import RECORD_LIMIT
from tony_provider.runtime.common.codec import CodecError, load_json, to_plain
from tony_provider.runtime.common.concurrency import in_parallel_ordered
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.jobspec.container_content import EnvironmentKind
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, is_temporary, list_existing, read_bytes
from tony_provider.runtime.storage.errors import (
    STORE_ERRORS,
    StorageError,
    StorageIsADirectory,
    StorageNotFound,
    StoragePermissionDenied,
)

log = logging.getLogger(__name__)


@attrs.frozen
class SuspectNode:
    """A node that lost containers of applications in the last days."""

    node: str  # host:port at the latest loss
    applications: list[str]  # IDs of the applications, the latest loss first
    latest: ContainerLoss

    def is_avoided(self, least: int | None) -> bool:
        """Return whether new jobs avoid the node. ``least``: the connection's ``avoid_nodes_after``."""
        return least is not None and len(self.applications) >= least


def suspect_nodes(storage: Storage, directory: str, now_ms: int) -> list[SuspectNode]:
    """Return nodes that lost containers in the last days, sorted by the number of applications. Raises StorageError.

    ``directory``: URI of the directory in which application masters record the losses. Reads a limited number of
    records. ``now_ms``: epoch milliseconds.
    """
    since_ms = now_ms - contract.LOST_NODES_DAYS * _DAY_MS
    days = in_parallel_ordered(partial(list_existing, storage), lost_nodes_days(directory, now_ms), _AT_ONCE)
    files = [file.path for day in days for file in day if not is_temporary(file.name)][:_MOST_RECORDS]
    losses: dict[str, list[tuple[ContainerLoss, str, str]]] = {}  # loss, application and node, by host
    for file, nodes in zip(files, in_parallel_ordered(partial(_lost_nodes, storage), files, _AT_ONCE), strict=True):
        for node, loss in nodes.items():
            if loss.time_ms >= since_ms:
                application_id = uris.name(file).partition(".")[0]
                losses.setdefault(node.rpartition(":")[0], []).append((loss, application_id, node))
    suspects = [_suspect(sorted(each, key=lambda one: -one[0].time_ms)) for each in losses.values()]
    return sorted(suspects, key=lambda each: (-len(each.applications), -each.latest.time_ms))


_AT_ONCE = 8  # files read concurrently
_MOST_RECORDS = 500  # from the newest day on
_DAY_MS = 86_400_000


def _lost_nodes(storage: Storage, file: str) -> Mapping[str, ContainerLoss]:
    try:
        return load_json(read_bytes(storage, file, length=RECORD_LIMIT), LostNodes).nodes
    except (StorageNotFound, StorageIsADirectory, StoragePermissionDenied, CodecError) as error:
        log.info("skipping an unreadable record of lost nodes: %s", error)
        return {}


def _suspect(losses: Sequence[tuple[ContainerLoss, str, str]]) -> SuspectNode:
    latest, _, node = losses[0]
    return SuspectNode(node, list(dict.fromkeys(application_id for _, application_id, _ in losses)), latest)


@attrs.frozen(kw_only=True)
class EnvironmentContent:
    """Facts about a Python environment of a job. A field is None if its value is unknown."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    python_env: str  # path or URI, as written in the job
    kind: EnvironmentKind
    python: str | None = None  # Python version that the environment was built for, such as 3.12
    machines: list[str] | None = None  # supported machine types, as in ``uname -m``; an empty list means any
    packages: dict[str, str] | None = None  # versions by package name
    built: bool = False  # whether `airflow tony env build` built it
    shared: bool = False  # whether it is in the connection's shared cache
    sha256: str | None = None  # hash of the archive or PEX

    @property
    def brings_python(self) -> bool:
        """Return whether the containers receive the environment's own interpreter."""
        return self.kind is EnvironmentKind.ARCHIVE and not self.built


def built_hashes(environments: Mapping[str, EnvironmentContent]) -> dict[str, str | None]:
    """Return the SHA-256 of the archive of each built environment, by the job's key that names it."""
    return {key: each.sha256 for key, each in environments.items() if each.built}


@attrs.frozen(kw_only=True)
class KeptResource:
    """A file or archive of a job that stays on the store after the application has ended."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    name: str  # file name in the container's working directory
    uri: str
    key: str  # key of the job that names the resource, such as files.train.py or python_env


@attrs.frozen(kw_only=True)
class SpecificationRecord:
    """The recorded specification of an application. The values of secrets are masked, but not their names."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    job: dict[str, Any]  # parsed specification, with overrides and all defaults
    given: dict[str, Any] | None = None  # specification as the user wrote it, without overrides; None if unknown
    overrides: dict[str, Any] | None = None  # changes that were applied to ``given``; None if there were none
    environments: dict[str, EnvironmentContent] = attrs.field(factory=dict)  # by the job's keys that name them
    resources: list[KeptResource] | None = None  # None if there were too many, or in records of older releases
    version: int = 1  # format version of this record


Mask = Callable[[str, str], str]
"""Gives a text, or a variable's value with that variable's name, as people may see it."""

_ENV = "env"
_MOST_RESOURCES = 2000


def specification_record(
    job: JobSpec,
    given: Mapping[str, Any] | None,
    overrides: Mapping[str, Any] | None,
    mask: Mask,
    environments: Mapping[str, EnvironmentContent] | None = None,
    resources: Sequence[KeptResource] = (),
) -> SpecificationRecord:
    """Return the record of a job as submitted and, if known, of its original specification and overrides."""
    return SpecificationRecord(
        job=mask_values(to_plain(job), mask),
        given=None if given is None else mask_values(_plain(given), mask),
        overrides=mask_values(_plain(overrides), mask) if overrides else None,
        environments={
            key: attrs.evolve(each, python_env=mask(each.python_env, "")) for key, each in (environments or {}).items()
        },
        resources=list(resources) if len(resources) <= _MOST_RESOURCES else None,
    )


def mask_values(plain: Any, mask: Mask) -> Any:
    """Return a copy of a specification, or of a part of it, in which secret values are masked."""
    if isinstance(plain, str):
        return mask(plain, "")
    if isinstance(plain, list):
        return [mask_values(each, mask) for each in plain]
    if not isinstance(plain, dict):
        return plain
    return {key: _value_as_shown(key, value, mask) for key, value in plain.items()}


def _plain(written: Mapping[str, Any]) -> Any:
    """Convert a specification to JSON types, with YAML dates as text. The record's ``job`` has parsed values."""
    return json.loads(json.dumps(written, default=str, skipkeys=True))


def _value_as_shown(key: str, value: Any, mask: Mask) -> Any:
    if key == _ENV and isinstance(value, dict):
        return {name: mask("" if each is None else str(each), name) for name, each in value.items()}
    return mask_values(value, mask)


@attrs.frozen(kw_only=True)
class JobHistory:
    """All kept records of an application. ``missing`` lists the records that could not be read."""

    application_id: str
    specification: SpecificationRecord | None = None
    status: JobStatus | None = None  # the result if the application has ended, otherwise its newest status
    events: list[dict[str, Any]] = attrs.field(factory=list)  # oldest first; the page "History of a job" lists the keys
    samples: list[TaskSample] = attrs.field(factory=list)  # samples of all tasks; see ``read_samples`` for their order
    returned: Any = None  # value that the successful job returned
    labels: dict[str, str] = attrs.field(factory=dict)  # origin of the application: dag_id, run_id, task_id, …
    missing: list[str] = attrs.field(factory=list)  # one line for each missing or unreadable record, with the reason


# Limits on the segment files of an application. An application master writes much less.
_MOST_BYTES = 32 << 20  # total size of the files
_MOST_FILES = 5000
_MOST_TEXT = 128 << 20  # total bytes after decompression
_MOST_OF_ONE = 64 << 20  # bytes of one segment after decompression
_NAMED, _LONGEST_NAME = 10, 100  # limits of a line in ``missing``: dropped metrics, characters of each name
_MOST_SAMPLES = 300_000  # limit for all segments; the files of an application master cannot hold more


def read_samples(storage: Storage, application_dir: str, missing: list[str]) -> list[TaskSample]:
    """Return the samples of all tasks in the order in which they were taken.

    Append a line for each missing segment to ``missing``. Samples are sorted by time only within each attempt of the
    application master, because the clocks of nodes differ. So times may decrease from one attempt to the next.

    Blocks. Raises StorageError if the store is unreachable.
    """
    files = _files(storage, uris.join(application_dir, contract.HISTORY_DIR), missing)
    samples: dict[int, list[TaskSample]] = {}  # by attempt of the application master
    taken = 0
    text = 0
    newest: dict[int, SampleSegmentHeader] = {}  # last header by attempt, with the total of dropped samples
    for file, data in zip(files, contents(storage, [each.status for each in files]), strict=True):
        if isinstance(data, StorageError):
            why = "it was removed meanwhile" if isinstance(data, StorageNotFound) else data
            missing.append(f"series: {file.status.name}: {why}")
            continue
        if text >= _MOST_TEXT or taken >= _MOST_SAMPLES:
            missing.append(f"series: the segments from {file.status.name} on exceed the limits, and are not read")
            break
        most_bytes = min(_MOST_OF_ONE, _MOST_TEXT - text)
        segment = read_segment(data, most_bytes=most_bytes, most_samples=_MOST_SAMPLES - taken)
        missing += [f"series: {file.status.name}: {problem}" for problem in segment.problems]
        newest[file.am_attempt] = segment.header
        samples.setdefault(file.am_attempt, []).extend(segment.samples)
        taken, text = taken + len(segment.samples), text + segment.size
    missing += _left_out(newest.values())
    return [each for of_master in samples.values() for each in sorted(of_master, key=lambda sample: sample.time_ms)]


@attrs.frozen(order=True)
class _SegmentFile:
    am_attempt: int
    number: int
    status: FileStatus = attrs.field(order=False)


def _files(storage: Storage, directory: str, missing: list[str]) -> list[_SegmentFile]:
    """Return the segments to read, oldest first, within the limits on size and number."""
    found = listed(storage, directory)
    files = sorted(_SegmentFile(*order, each) for each in found if (order := segment_order(each.name)))
    if not files:
        missing.append("series: there is no segment (yet)")
    missing += _gaps(files)
    total = 0
    for at, file in enumerate(files):
        total += read_limit(file.status)
        if total > _MOST_BYTES or at == _MOST_FILES:
            left = count(len(files) - at, "segment")
            most = f"{size(_MOST_BYTES)} of at most {_MOST_FILES} segments"
            missing.append(f"series: {left} from {file.status.name} on: only {most} are read")
            return files[:at]
    return files


def _gaps(files: Iterable[_SegmentFile]) -> list[str]:
    """Return a line for each attempt of the application master whose segment numbers have gaps."""
    numbers: dict[int, list[int]] = {}
    for file in files:
        numbers.setdefault(file.am_attempt, []).append(file.number)
    return [
        f"series: {count(lost, 'segment')} of attempt {am_attempt} of the application master are missing"
        for am_attempt, found in numbers.items()
        if (lost := max(found) - len(found)) > 0
    ]


def _left_out(headers: Iterable[SampleSegmentHeader]) -> list[str]:
    said = []
    for header in headers:
        if header.samples_left_out:
            said.append(f"series: {count(header.samples_left_out, 'sample')} were left out when they were written")
        if header.metrics_left_out:
            names = ", ".join(replaced(name[:_LONGEST_NAME]) for name in header.such_as[:_NAMED])
            said.append(
                f"series: {count(header.metrics_left_out, 'metric')} above the limit were left out, such as {names}"
            )
    return said


_MOST_SPECIFICATION_BYTES = 4 << 20  # larger than any specification that this provider writes
_MOST_MISSING = 100  # lines in ``missing``


def read_history(storage: Storage, application_dir: str) -> JobHistory:
    """Return all kept records of the application with this directory, and a list of the missing records.

    Blocks, some seconds for large jobs. Raises StorageError if the store is unreachable.
    """
    missing: list[str] = []
    specification = read_specification(storage, application_dir, missing)
    status = _status(storage, application_dir, missing)
    events = list(read_events(storage, application_dir, missing))
    samples = read_samples(storage, application_dir, missing)
    value = None
    try:
        if status and status.state.is_final:
            value = returned(storage, application_dir)
    except RecordUnreadable as error:
        missing.append(f"returned value: {error}")
    if (more := len(missing) - _MOST_MISSING) > 0:
        missing[_MOST_MISSING:] = [f"and {more} more"]
    return JobHistory(
        application_id=uris.name(application_dir),
        specification=specification,
        status=status,
        events=events,
        samples=samples,
        returned=value,
        labels=labels(storage, application_dir),
        missing=missing,
    )


def read_specification(storage: Storage, application_dir: str, missing: list[str]) -> SpecificationRecord | None:
    """Return only the specification, which is one small file. If there is none, append the reason to ``missing``.

    Blocks. Raises StorageError if the store is unreachable.
    """
    uri = uris.join(application_dir, contract.HISTORY_DIR, contract.SPECIFICATION_FILE)
    data = _specification_bytes(storage, uri, missing)
    if data is None:
        return None
    try:
        found = load_json(data, SpecificationRecord)
    except CodecError as error:
        missing.append(f"specification: {uri} cannot be read: {error}")
        return None
    _check_version("specification", found.version, SpecificationRecord, missing)
    return found


def _status(storage: Storage, application_dir: str, missing: list[str]) -> JobStatus | None:
    """Return the result, or the newest status if there is no readable result. Return None if neither is readable."""
    for may_have_ended in (True, False):
        try:
            status = job_status(storage, application_dir, may_have_ended=may_have_ended)
        except STORE_ERRORS:
            raise
        except (RecordUnreadable, StorageError) as error:
            if (said := f"status: {error}") not in missing:
                missing.append(said)
            continue
        if status is None:
            missing.append("status: the application master has not written a status (yet)")
        else:
            _check_version("status", status.version, JobStatus, missing)
        return status
    return None


def _check_version(what: str, found: int, cls: type[Any], missing: list[str]) -> None:
    known = attrs.fields(cls).version.default
    if found > known:
        missing.append(f"{what}: its format version {found} is newer than {known}: unknown keys are ignored")


def _specification_bytes(storage: Storage, uri: str, missing: list[str]) -> bytes | None:
    """Return the file's content up to the size limit. If there is none, append the reason to ``missing``."""
    try:
        data = read_bytes(storage, uri, length=_MOST_SPECIFICATION_BYTES + 1)
    except StorageNotFound:
        missing.append("specification: the file does not exist")
        return None
    except STORE_ERRORS:
        raise
    except StorageError as error:
        missing.append(f"{uris.name(uri)}: {error}")
        return None
    if len(data) > _MOST_SPECIFICATION_BYTES:
        missing.append(f"{uris.name(uri)}: it is larger than {size(_MOST_SPECIFICATION_BYTES)}: the rest is not read")
    return data[:_MOST_SPECIFICATION_BYTES]
