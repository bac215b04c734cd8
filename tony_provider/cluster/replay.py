"""Plan the replay of one start of a task of an earlier job on this machine.

The history of the job names the job's files, the checkpoint, the members of the cluster and the shards. They are copied
into a folder, from which ``tony_provider.runtime.executor.replay_runner`` runs the task.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.records.history import KeptResource, SpecificationRecord, built_hashes, read_specification
from tony_provider.cluster.training.identity import Layout
from tony_provider.cluster.training.results import job_status
from tony_provider.runtime.application import (
    REPLAY_FILE,
    ApplicationDescription,
    LocalizedResource,
    Replay,
    ResourceKind,
)
from tony_provider.runtime.application_history import read_events
from tony_provider.runtime.checkpoint.catalog import fetch_warm_start, foreign_catalog
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    MANIFEST_FILE,
    DamagedCheckpoint,
    chain_of,
    objects_directory,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import read_json
from tony_provider.runtime.common.codec import dump_json, from_plain
from tony_provider.runtime.common.concurrency import in_parallel
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.common.text import MASK
from tony_provider.runtime.frameworks.base import TaskAddress, get_framework
from tony_provider.runtime.inputs.shards import BalancedAssignment, Listing, commits_uri, listing_uri, read_log
from tony_provider.runtime.jobspec.container_content import EnvironmentKind, image_of, python_env_kind
from tony_provider.runtime.jobspec.model import InputDeal, JobSpec, ranks
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, download
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.stores import JobStores

_COPIES = 4  # concurrent transfers
_WARM_START = "warm-start"


class CannotReplay(ClusterError):  # noqa: N818 - says what is wrong
    """A task cannot be replayed: a record, a file or a secret is missing, or there is no such task or start."""

    permanent = True


@attrs.frozen
class TaskStart:
    """One start of the user process of a task, as the event log describes it."""

    number: int
    generation: int
    resume: ResumePoint | None  # None if it started at step 0
    left_out: Sequence[str]  # tasks that did not take part in the generation
    kept: bool = False  # whether it resumed from its own directory; ``resume`` is then the newest stored checkpoint


@attrs.frozen
class _Copy:
    uri: str
    path: Path
    size: int


@attrs.frozen(kw_only=True)
class ReplayPlan:
    """The copies for a replay, and its differences from the original process."""

    replay: Replay
    folder: Path
    differences: Sequence[str]  # one line each
    copies: Mapping[str, Sequence[_Copy]]  # by the word for them in `describe`
    lists: Mapping[Path, bytes]  # lists of shards
    warm_start: str | None  # URI of the model to copy

    def describe(self) -> Iterator[str]:
        """Yield lines for people: what is replayed, copied, and different."""
        replay = self.replay
        since = f"from {replay.resume.label}" if replay.resume else "from the beginning"
        yield f"{replay.task}, start {replay.start} in generation {replay.generation}, {since}"
        for kind, copies in self.copies.items():
            if copies:
                yield f"copies the {kind}: {count(len(copies), 'file')}, {size(sum(each.size for each in copies))}"
        if self.warm_start:
            yield f"copies the warm start: {self.warm_start}"
        yield from self.differences

    def fetch(self, stores: JobStores) -> None:
        """Create the folder, and copy everything to it. Raises StorageError, CannotReplay, OSError."""
        self.folder.mkdir(mode=0o700)
        try:
            self._fetch(stores)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _fetch(self, stores: JobStores) -> None:

        def copy(each: _Copy) -> None:
            each.path.parent.mkdir(parents=True, exist_ok=True)
            download(stores.of(each.uri), each.uri, each.path)

        every = {each.path: each for copies in self.copies.values() for each in copies}
        for _ in in_parallel(copy, every.values(), _COPIES, "replay"):
            pass
        if self.warm_start:
            storage = stores.of(self.warm_start)
            try:
                fetch_warm_start(storage, self.warm_start, self.folder / _WARM_START, threading.Event())
            except (StorageNotFound, DamagedCheckpoint) as error:
                raise CannotReplay(f"the warm start cannot be copied: {error}") from error
        for path, data in self.lists.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (self.folder / REPLAY_FILE).write_bytes(dump_json(self.replay))


@attrs.define(slots=False)  # for the cached property
class ReplayPlanner:
    """Plans replays of one application. Methods raise CannotReplay, StorageError, OSError.

    ``secrets``: values of secrets, and of variables whose values the job's record does not contain.
    """

    storage: Storage
    layout: Layout
    application_dir: str
    folder: Path
    secrets: Mapping[str, str] = attrs.field(repr=False)

    def plan(self, task: str | None, start: int | None, *, with_peers: bool = False) -> ReplayPlan:
        """Plan the replay of a start: by default of the task that failed, and of its last start.

        ``with_peers``: keep the original rank and world size even if the framework needs all processes to begin.
        """
        record, status = self._records()
        job = self._job(record)
        task = task or _failed_task(status)
        task_type = task.rpartition(":")[0]
        known = [each.name for each in status.tasks]
        if task not in known:
            raise CannotReplay(f"the job has no task {task}; its tasks are {', '.join(known)}")
        begun = self._start(task, start)
        members = _members(job, status, begun)
        needs_peers = not get_framework(job.framework).starts_alone
        alone = needs_peers and task in members and len(members) > 1 and not with_peers
        attempt = next(each.attempt for each in status.tasks if each.name == task)
        resources, code = self._resources(record, task_type)
        checkpoint, resume, manifest = self._checkpoint(begun, members.index(task) if task in members else None)
        shards, lists, parts = self._inputs(job, task, begun, members)
        warm_start = self._events[0].get("warm_start")
        description = ApplicationDescription(
            application_id=uris.name(self.application_dir),
            user="",
            job=_local(job),
            application_dir=f"file://{self.folder}/application",
            webhdfs=None,
            resources=resources,
            runtime=LocalizedResource(contract.RUNTIME_FILE, "", 0, 0),
            chain_dir=f"file://{self.folder}/chain" if checkpoint else "",
            warm_start=f"file://{self.folder}/{_WARM_START}" if warm_start else None,
            training=uris.name(uris.parent(uris.parent(self.application_dir))),
        )
        replay = Replay(
            description=description,
            task=task,
            attempt=attempt,
            start=begun.number,
            generation=begun.generation,
            members=members if task in members else [*members, task],
            alone=alone,
            resume=resume,
            kept=begun.kept,
            parts=parts,
        )
        return ReplayPlan(
            replay=replay,
            folder=self.folder,
            differences=list(self._differences(job, task_type, begun, len(members) if alone else 0)),
            copies={"job": code, "checkpoint": checkpoint, "shards": shards},
            warm_start=warm_start,
            lists={**lists, **manifest},
        )

    # -- the records of the job ----------------------------------------------------------------------------------------

    def _records(self) -> tuple[SpecificationRecord, JobStatus]:
        missing: list[str] = []
        record = read_specification(self.storage, self.application_dir, missing)
        status = job_status(self.storage, self.application_dir)
        if record is None or status is None:
            raise CannotReplay(f"the job cannot be replayed: {'; '.join(missing) or 'it has no status yet'}")
        return record, status

    def _job(self, record: SpecificationRecord) -> JobSpec:
        job = from_plain(record.job, JobSpec, ignore_unknown=True)
        lacking = [name for name in job.secrets if name not in self.secrets]
        environs = [job.env, *(each.env for each in job.tasks.values())]
        for env in environs:
            for name, value in env.items():
                if MASK in value:
                    env[name] = self.secrets.get(name, value)
                    lacking += [] if name in self.secrets else [name]
        if lacking:
            names = " ".join(f"--secret {name}" for name in dict.fromkeys(lacking))
            raise CannotReplay(f"the job's record has no values of secrets; set these variables, and give {names}")
        return job

    def _start(self, task: str, number: int | None) -> TaskStart:
        found = {each.number: each for each in self._starts(task)}
        if not found:
            raise CannotReplay(f"the event log has no start of {task}, which perhaps never started")
        wanted = max(found) if number is None else number
        if wanted not in found:
            raise CannotReplay(f"the event log has no start {wanted} of {task}; it has {', '.join(map(str, found))}")
        return found[wanted]

    @cached_property
    def _events(self) -> list[dict[str, Any]]:
        return list(read_events(self.storage, self.application_dir, []))

    def _starts(self, task: str) -> Iterator[TaskStart]:
        generation, left_out, committed = 1, [], None
        for event in self._events:
            data = event.get("data") or {}
            if event.get("event") == "rendezvous":
                generation, left_out = data["generation"], data["left_out"]
                if task not in left_out:
                    number = data["tasks"].get(task, {}).get("start", data["start"])
                    yield TaskStart(number, generation, _point(data["resume"]), left_out)
            elif event.get("event") == "started_again" and event.get("task") == task:
                kept = data["resumed"] == "kept"
                resume = _point(committed if kept else data["resumed"])
                yield TaskStart(data["process"], generation, resume, left_out, kept)
            committed = data.get("checkpoint", committed)

    # -- what is copied ------------------------------------------------------------------------------------------------

    def _resources(self, record: SpecificationRecord, task_type: str) -> tuple[list[LocalizedResource], list[_Copy]]:
        if record.resources is None:
            raise CannotReplay("the job's record does not list its files, because there were too many")
        built = built_hashes(record.environments)
        others = [f"tasks.{each}." for each in record.job["tasks"] if each != task_type]
        found, copies = [], []
        for number, each in enumerate(each for each in record.resources if not each.key.startswith(tuple(others))):
            path = self.folder / "files" / str(number) / uris.name(each.uri)
            try:
                status = self.storage.status(each.uri)
            except StorageNotFound as error:
                raise CannotReplay(f"{each.key}: {each.uri} was removed from the store") from error
            copies.append(_Copy(each.uri, path, status.size))
            cached = uris.name(uris.parent(each.uri)) if self.layout.is_cached(each.uri) else None
            sha256 = built.get(each.key, cached)
            found.append(LocalizedResource(each.name, f"file://{path}", status.size, 0, _kind(each), sha256))
        return found, copies

    def _checkpoint(
        self, begun: TaskStart, rank: int | None
    ) -> tuple[list[_Copy], ResumePoint | None, dict[Path, bytes]]:
        """Return the files that the task of this rank restores, the copied checkpoint, and its manifest."""
        resume = begun.resume
        if resume is None or not resume.uri:
            return [], None, {}
        stored = foreign_catalog(self.storage, chain_of(resume.uri)).list()
        # Newer checkpoints also have the directory of a task that failed and did not save again.
        usable = [each for each in stored if each.uri == resume.uri or (begun.kept and each.save > resume.save)]
        if not usable:
            raise CannotReplay(f"{resume.label} was removed, because newer ones were committed: {resume.uri}")
        resume, manifest = usable[0].point, usable[0].manifest
        own = [each for each in manifest.trees if each.rank == rank]
        if begun.kept and own:  # the directory that the process kept had no files of other tasks
            manifest = attrs.evolve(manifest, trees=own)
        chain, objects = self.folder / "chain", objects_directory(chain_of(resume.uri))
        directory = chain / contract.CHECKPOINTS_DIR / uris.name(resume.uri)
        copies = [
            _Copy(uris.join(objects, name), chain / contract.OBJECTS_DIR / name, bytes_of)
            for name, bytes_of in manifest.tree_of(rank).objects.items()
        ]
        copied = attrs.evolve(resume, uri=f"file://{directory}", checksum="")
        return copies, copied, {directory / MANIFEST_FILE: dump_json(manifest)}

    def _inputs(
        self, job: JobSpec, task: str, begun: TaskStart, members: Sequence[str]
    ) -> tuple[list[_Copy], dict[Path, bytes], dict[str, str]]:
        """Return the shards to copy, the lists of shards, and the paths of the lists by input."""
        copies: dict[Path, _Copy] = {}
        lists, parts = {}, {}
        for name, spec in job.inputs.items():
            readers = job.readers(name)
            if task.rpartition(":")[0] not in readers:
                continue
            listing = Listing.load(self.storage, listing_uri(self.application_dir, name))
            try:
                if spec.deal is InputDeal.QUEUE:
                    numbers: Sequence[int] = self._taken(name, task, begun.number)
                else:
                    reading = [each for each in members if each.rpartition(":")[0] in readers]
                    numbers = BalancedAssignment.of(listing.sizes, len(reading)).part(reading.index(task))
                shards = [read_json(line) for line in listing.lines(numbers)]
            finally:
                listing.close()
            for number, shard in zip(numbers, shards, strict=True):
                path = self.folder / "shards" / name / str(number) / (uris.name(shard["uri"]) or "shard")
                copies[path] = _Copy(shard["uri"], path, shard["size"])
                shard |= {"path": str(path), **({"shard": number} if spec.deal is InputDeal.QUEUE else {})}
            file = self.folder / "inputs" / f"{name}.jsonl"
            lists[file] = b"".join(json.dumps(each).encode() + b"\n" for each in shards)
            parts[name] = str(file)
        return list(copies.values()), lists, parts

    def _taken(self, name: str, task: str, start: int) -> list[int]:
        """Return the shards that a process took from a queue: the committed ones in this order, then the others."""
        commits = commits_uri(self.application_dir, name)
        settled = [
            each.shard
            for each in read_log(self.storage, commits)
            if (each.reader.task, each.reader.start) == (task, start)
        ]
        left: list[int] = []
        for event in self._events:
            data = event.get("data") or {}
            is_of_task = event.get("event") == "uncommitted" and event.get("task") == task
            if is_of_task and (data["input"], data["process"]) == (name, start):
                left = data["shards"]
        return [*settled, *left]

    # -- what differs --------------------------------------------------------------------------------------------------

    def _differences(self, job: JobSpec, task_type: str, begun: TaskStart, missing_peers: int) -> Iterator[str]:
        if missing_peers:
            yield (
                f"differs: {job.framework} needs all {missing_peers} processes to begin, so this one runs alone, with "
                "rank 0 of 1. Its shards and its checkpoint are those of the original rank"
            )
        if begun.kept:
            yield "may differ: the process continued from its own directory; this is its last stored checkpoint"
        python_env = job.python_env_of(task_type)
        if python_env is None:
            yield "differs: the job names no python_env, so the Python of this machine and its packages are used"
        elif python_env_kind(python_env) is EnvironmentKind.DIRECTORY:
            yield f"may differ: {python_env} is a directory of this machine; the job used the directory of its node"
        if image_of(job, task_type) is not None:
            yield "differs: the job ran in an image; the replay uses the programs of this machine"
        if job.hadoop:
            yield "differs: the process gets no Hadoop tokens of the job, and uses the access of this user"
        yield (
            "may differ: the process gets the variables of this shell without AIRFLOW_*, PYTHON* and TONY_*, and no "
            "variables of the connection and of MLflow"
        )


def _members(job: JobSpec, status: JobStatus, begun: TaskStart) -> list[str]:
    """Return the tasks of the cluster at this start, in the order of ranks."""
    present = [each for each in status.tasks if each.name not in begun.left_out]
    tasks = [TaskAddress(each.type, each.index, job.role(each.type), "", {}) for each in present]
    return [f"{task_type}:{index}" for task_type, index in ranks(tasks)]


def _failed_task(status: JobStatus) -> str:
    if status.failure is not None and status.failure.task is not None:
        return status.failure.task
    raise CannotReplay("the job has no failed task; name a task with --task")


def _point(plain: Any) -> ResumePoint | None:
    return None if plain is None else from_plain(plain, ResumePoint, ignore_unknown=True)


def _kind(resource: KeptResource) -> ResourceKind:
    is_archive = resource.key.rpartition(".")[0].endswith("archives") or resource.name == contract.PYTHON_ENV_DIR
    return ResourceKind.ARCHIVE if is_archive else ResourceKind.FILE


def _local(job: JobSpec) -> JobSpec:
    """Return the job without images, Hadoop access, shared checkpoint directories and the preflight."""
    tasks = {name: attrs.evolve(each, docker=None) for name, each in job.tasks.items()}
    checkpoint = attrs.evolve(job.checkpoint, shared=False)
    return attrs.evolve(job, tasks=tasks, checkpoint=checkpoint, docker=None, hadoop=None, preflight=False)
