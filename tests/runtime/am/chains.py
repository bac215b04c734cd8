"""A chain on this machine's disk, and checkpoints as executors leave them there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from tests import checkpoints
from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.checkpoint.stored_checkpoint import OWNERS_DIR, Owner, Stop, StoredCheckpoint, owner_file
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.jobspec.model import CheckpointSpec, JobSpec, TaskSpec
from tony_provider.runtime.protocol import messages, tony_pb2
from tony_provider.runtime.storage import LocalStorage, Storage

APPLICATION_ID = "application_1700000000000_0001"
OTHER = "application_1700000000000_0002"
KEY = b"k" * 32


def describe(directory: Path, **changes: Any) -> ApplicationDescription:
    description = ApplicationDescription(
        application_id=APPLICATION_ID,
        user="alice",
        job=JobSpec("standalone", {"worker": TaskSpec("true", instances=2)}),
        application_dir=(directory / "applications" / APPLICATION_ID).as_uri(),
        webhdfs=None,
        resources=[],
        runtime=LocalizedResource("tony", "file:///tony", 0, 0),
        chain_dir=(directory / "chain-0001").as_uri(),
        epoch=1,
    )
    return attrs.evolve(description, **changes)


def keeping(description: ApplicationDescription, spec: CheckpointSpec) -> ApplicationDescription:
    return attrs.evolve(description, job=attrs.evolve(description.job, checkpoint=spec))


def ownership(
    description: ApplicationDescription, *, attempt: int = 1, storage: Storage | None = None, key: bytes = KEY
) -> Ownership:
    return Ownership(storage or LocalStorage(), description, attempt, key)


def own(directory: Path, application_id: str, *, stop: Stop | None = None) -> Path:
    """Make the application the owner of the training after APPLICATION_ID, as Airflow's side does."""
    number = max([1, *(int(file.stem) for file in (directory / OWNERS_DIR).glob("*.json"))]) + 1
    uri = owner_file(directory.as_uri(), number)
    LocalStorage().write(uri, dump_json(Owner(application_id, "chain-0001", stop=stop)))
    return directory / OWNERS_DIR / f"{number:08}.json"


def files_of(step: int, rank: int = 0) -> dict[str, bytes]:
    """What a rank saves at a step."""
    return {f"ckpt-{step}/part-{rank}": f"weights of rank {rank} after step {step}".encode()}


def upload(
    chain: Path, wanted: tony_pb2.TakeSnapshot, step: int, *, rank: int = 0, request: int = 1
) -> tony_pb2.CheckpointUploaded:
    """What an executor uploads and says when it is ordered to take a snapshot."""
    tree = checkpoints.upload(LocalStorage(), chain.as_uri(), files_of(step, rank), wanted.save)
    return tony_pb2.CheckpointUploaded(
        generation=wanted.generation,
        start=wanted.start,
        request=request,
        step=step,
        uri=wanted.uri,
        format="pytorch",
        entry=f"ckpt-{step}",
        entries=messages.tree_entries(tree),
        save=wanted.save,
        objects=tree.objects,
    )


def commit(chain: Path, step: int) -> StoredCheckpoint:
    """A whole checkpoint that another application has committed."""
    return checkpoints.commit(LocalStorage(), chain.as_uri(), step, ranks={0: files_of(step)}, entry=f"ckpt-{step}")
