"""A chain on this machine's disk, and checkpoints as executors leave them there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.am.owner import Ownership
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.artifacts.checksum import Checksum
from tony_provider.runtime.checkpoint.catalog import read_stored
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointFile, Manifest, directory_name
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint_chain import Owner
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.spec.model import CheckpointSpec, JobSpec, TaskSpec
from tony_provider.runtime.storage import LocalStorage, Storage
from tony_provider.runtime.storage.helpers import write_atomically

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
    )
    return attrs.evolve(description, **changes)


def keeping(description: ApplicationDescription, spec: CheckpointSpec) -> ApplicationDescription:
    return attrs.evolve(description, job=attrs.evolve(description.job, checkpoint=spec))


def ownership(
    description: ApplicationDescription, *, attempt: int = 1, storage: Storage | None = None, key: bytes = KEY
) -> Ownership:
    return Ownership(storage or LocalStorage(), description, attempt, key)


def own(directory: Path, application_id: str, chain: str = "chain-0001") -> Path:
    """As the Airflow side does before the submission."""
    path = directory / chain / contract.OWNER_FILE
    path.parent.mkdir(exist_ok=True)
    write_atomically(LocalStorage(), path.as_uri(), dump_json(Owner(application_id)))
    return path


@attrs.frozen
class Uploaded:
    """What an executor has put on the store."""

    directory: Path
    step: int
    files: tuple[CheckpointFile, ...]
    rank: int

    @property
    def uri(self) -> str:
        """Of the whole checkpoint."""
        return self.directory.as_uri()

    def message(self, *, generation: int = 1, start: int = 1, request: int = 1) -> tony_pb2.CheckpointUploaded:
        return tony_pb2.CheckpointUploaded(
            generation=generation,
            start=start,
            request=request,
            step=self.step,
            save=self.step,
            uri=f"{self.uri}/rank-{self.rank}",
            format="tensorflow",
            entry=f"ckpt-{self.step}",
            files=[
                tony_pb2.CheckpointFile(path=each.path, size=each.size, checksum=each.checksum) for each in self.files
            ],
        )

    @property
    def point(self) -> ResumePoint:
        """Once it is committed."""
        return read_stored(LocalStorage(), self.uri).point

    @property
    def committed(self) -> bool:
        return (self.directory / "manifest.json").exists()


def upload(chain: Path, step: int, *, rank: int = 0, name: str | None = None) -> Uploaded:
    directory = chain / contract.CHECKPOINTS_DIR / (name or directory_name(step, step))
    content = f"weights of rank {rank} after step {step}".encode()
    file = directory / f"rank-{rank}" / f"ckpt-{step}.index"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    checksum = Checksum()
    checksum.update(content)
    return Uploaded(directory, step, (CheckpointFile(file.name, len(content), checksum.text, rank),), rank)


def commit(chain: Path, step: int) -> Uploaded:
    """A whole one, committed by somebody else."""
    uploaded = upload(chain, step)
    manifest = Manifest(step, step, "tensorflow", f"ckpt-{step}", list(uploaded.files))
    (uploaded.directory / "manifest.json").write_bytes(dump_json(manifest))
    return uploaded
