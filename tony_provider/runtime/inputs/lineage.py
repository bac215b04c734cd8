"""The lineage record of a training: the files that it read, and the model or checkpoint that it started from.

The application master of a successful job writes the record. ``airflow tony stale`` compares the record with the store.
The record has only a digest of each input's files. The list of the files stays in the application's directory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import ClassVar, Optional

import attrs

from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputSpec
from tony_provider.runtime.storage.object_store import SCHEMES as OBJECT_STORES

CHECKSUMS_FILE = "checksums.json"  # in INPUTS_DIR: checksums by URI


@attrs.frozen
class FileSet:
    """Number, size and digest of files.

    Equal digests mean equal names, sizes, modification times and, in object stores, ETags.
    """

    files: int
    size: int  # bytes
    digest: str

    @classmethod
    def of(cls, shards: Iterable[InputShard]) -> FileSet:
        """Summarize the files of shards. The shards of one file must follow each other."""
        digest, files, size, last = hashlib.blake2b(digest_size=16), 0, 0, ""
        for each in shards:
            if each.uri != last:
                etag = each.checksum if each.uri.partition(":")[0] in OBJECT_STORES else ""
                facts = f"{each.uri}\0{each.size} {each.modified_ms} {etag}\0"
                digest.update(facts.encode("utf-8", "surrogateescape"))
                files, size, last = files + 1, size + each.size, each.uri
        return cls(files, size, digest.hexdigest())


@attrs.frozen
class InputLineage:
    """An input of a training, and the files that it had."""

    spec: InputSpec
    files: FileSet
    files_after: Optional[FileSet] = None  # at the end of a training whose program read the files by itself


@attrs.frozen(kw_only=True)
class Lineage:
    """The data that a successful training read, and the model or checkpoint that it started from."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    application_id: str
    training: str  # name of the training's identity
    labels: dict[str, str]  # dag_id, run_id, task_id, …
    finished_ms: int  # epoch milliseconds
    submitted_ms: Optional[int] = None  # epoch milliseconds
    chain_dir: str  # URI of the checkpoint chain
    model_dir: Optional[str] = None  # URI; None if the training left no model
    warm_start: Optional[str] = None  # URI of the model that the training started from
    continues: Optional[str] = None  # URI of the chain or checkpoint of another training that it resumed from
    fingerprint: dict[str, str] = attrs.field(factory=dict)  # hashes of code, environment and data, by key of the job
    inputs: dict[str, InputLineage] = attrs.field(factory=dict)
    version: int = 1
