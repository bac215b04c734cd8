"""The identity of a training, the layout of the staging directory, and a reader of small records.

All tries of one task in one run of a DAG have the same identity. Other tasks and runs have other identities.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import TypeVar

import attrs

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import RECORD_LIMIT, BoundedJsonError, printable_json, read_json
from tony_provider.runtime.common.codec import CodecError, from_plain
from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageInvalidPath, StorageNotFound

_SLUG_LENGTH = 60
_HASH_LENGTH = 20  # hexadecimal digits: 80 bits make chance collisions negligible
_NAME = re.compile(rf"(.+)-([0-9a-f]{{{_HASH_LENGTH}}})")


@attrs.frozen
class Identity:
    """Identifies a training: ``name`` is the name of its directory, ``tag`` the tag of its YARN applications.

    Both are valid in HDFS paths (no colon, no slash) and as YARN tags (lower-case ASCII, at most 100 characters).
    Unlike Airflow's ids, they never exceed 81 characters.
    """

    slug: str  # readable part, from Airflow's ids; not unique
    digest: str  # hash of all values that distinguish trainings

    @classmethod
    def parse(cls, name: str) -> Identity | None:
        """Return the identity with this ``name``, or None if it is not the name of an identity."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(match[1], match[2])

    def may_be_of(self, dag_id: str, task_id: str) -> bool:
        """Return False if the training certainly belongs to another task."""
        return self.slug.startswith(_words(dag_id, task_id))

    @property
    def name(self) -> str:
        return f"{self.slug}-{self.digest}"

    @property
    def tag(self) -> str:
        return contract.TAG_PREFIX + self.digest


def identity_of(
    *,
    namespace: str,
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: int = -1,
    checkpoint_key: str | None = None,
) -> Identity:
    """Return the identity of one task of one run.

    ``namespace`` separates Airflow installations on one cluster. ``map_index`` is -1 if the task is not mapped.
    ``checkpoint_key`` is a name by the DAG's author that replaces the index, because the index of an instance depends
    on the mapped list.
    """
    instance: object = map_index if checkpoint_key is None else ["key", checkpoint_key]
    # JSON separates the parts, because ("a", "bc") and ("ab", "c") must differ.
    digest = hashlib.sha256(json.dumps([namespace, dag_id, run_id, task_id, instance]).encode()).hexdigest()
    which = checkpoint_key if checkpoint_key is not None else (str(map_index) if map_index >= 0 else "")
    return Identity(_slug(dag_id, task_id, which, run_id), digest[:_HASH_LENGTH])


def labelled_identity(namespace: str, labels: Mapping[str, str]) -> Identity | None:
    """Return the identity of the training whose application has these labels, or None if no task submitted it."""
    if not {"dag_id", "run_id", "task_id"} <= labels.keys():
        return None
    index = labels.get("map_index", "-1")
    return identity_of(
        namespace=namespace,
        dag_id=labels["dag_id"],
        run_id=labels["run_id"],
        task_id=labels["task_id"],
        map_index=int(index) if index.lstrip("-").isdecimal() else -1,
        checkpoint_key=labels.get("checkpoint_key"),
    )


def _slug(*parts: str) -> str:
    return _words(*parts) or "training"


def _words(*parts: str) -> str:
    words = []
    for part in parts:
        ascii_part = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode().lower()
        if word := re.sub(r"[^a-z0-9]+", "-", ascii_part).strip("-"):
            words.append(word)
    return "-".join(words)[:_SLUG_LENGTH].strip("-")


APPLICATIONS = "applications"  # subdirectory of a training's directory, with a directory for each application
_JSON = ".json"
_CACHED = re.compile(r"(?:environments/)?[0-9a-f]{64}/[^/]+")
_CHAIN = re.compile(r"chain-(\d{4,})")


@attrs.frozen
class Layout:
    """The paths below one staging directory.

    - ``cache/<sha256>/<name>``: files that jobs share.
    - ``jobs/<identity>/``: a training, with ``applications/<id>`` for each application, a checkpoint chain
      (``chain-0001``) for each start without earlier checkpoints, and ``notes`` of its tries.
    - ``nodes/<day>/``: nodes that lost containers, in a file for each application.
    - ``advice/<task>.json``: summaries of the latest runs of a DAG's task.
    - ``lineage/<identity>.json``: what the training with the latest success read.
    """

    root: str  # URI of the staging directory

    @property
    def cache_dir(self) -> str:
        return uris.join(self.root, "cache")

    def cached(self, sha256: str, name: str) -> str:
        """Return the URI of the cached file with this content. The name in the URI is safe in shells."""
        return uris.join(self.cache_dir, sha256, re.sub(r"[^A-Za-z0-9._-]", "_", name)[-100:])

    def is_cached(self, uri: str) -> bool:
        """Return whether the URI names a file that a submission has cached: ``cache/<sha256>/<name>``.

        Also return True for environments of `airflow tony env build`: ``cache/environments/<key>/<name>``.
        """
        try:
            found, cache = uris.parse(uri), uris.parse(self.cache_dir)
        except StorageInvalidPath:
            return False
        is_here = (found.scheme, found.authority) == (cache.scheme, cache.authority)
        return is_here and _CACHED.fullmatch(found.path.removeprefix(f"{cache.path}/")) is not None

    @property
    def environments_dir(self) -> str:
        """The directory of built Python environments, with a subdirectory for each environment."""
        return uris.join(self.cache_dir, "environments")

    @property
    def jobs_dir(self) -> str:
        """The directory that holds all trainings' directories."""
        return uris.join(self.root, "jobs")

    def job_dir(self, identity: Identity) -> str:
        return uris.join(self.jobs_dir, identity.name)

    def applications_dir(self, identity: Identity) -> str:
        return uris.join(self.job_dir(identity), APPLICATIONS)

    def application_dir(self, identity: Identity, application_id: str) -> str:
        return uris.join(self.applications_dir(identity), application_id)

    def launch_dir(self, identity: Identity, application_id: str) -> str:
        """Return the directory of files that the application needs only while it lives."""
        return uris.join(self.application_dir(identity, application_id), contract.LAUNCH_DIR)

    def notes_dir(self, identity: Identity) -> str:
        """Return the directory of notes that the training's tries leave for each other."""
        return uris.join(self.job_dir(identity), "notes")

    @property
    def lost_nodes_dir(self) -> str:
        """The directory in which applications record nodes that lost containers."""
        return uris.join(self.root, contract.LOST_NODES_DIR)

    @property
    def advice_dir(self) -> str:
        """The directory of records of previous runs, which has a file for each task of a DAG."""
        return uris.join(self.root, "advice")

    def former_runs(self, task: Identity) -> str:
        """Return the URI of the file with the latest applications of a task in all runs of its DAG."""
        return uris.join(self.advice_dir, f"{task.name}{_JSON}")

    def task_of(self, file: str) -> Identity | None:
        """Return the task whose previous runs are in the file with this name, or None for any other file."""
        return Identity.parse(file.removesuffix(_JSON)) if file.endswith(_JSON) else None

    @property
    def lineage_dir(self) -> str:
        """The directory of lineage records, which has a file for each training that has succeeded."""
        return uris.join(self.root, "lineage")

    def lineage_file(self, identity: Identity) -> str:
        return uris.join(self.lineage_dir, f"{identity.name}{_JSON}")

    def chain_dir(self, identity: Identity, number: int) -> str:
        """Return the directory of a checkpoint chain; numbers start at 1."""
        return uris.join(self.job_dir(identity), f"chain-{number:04}")


def chain_number(name: str) -> int | None:
    """Return the number in the name of a chain's directory, or None for any other name."""
    match = _CHAIN.fullmatch(name)
    return int(match[1]) if match else None


T = TypeVar("T")


def read_record(
    storage: Storage,
    uri: str,
    cls: type[T],
    *,
    without: str,
    most_bytes: int = RECORD_LIMIT,
    listed: FileStatus | None = None,
) -> T | None:
    """Return the content of a small file on the store as ``cls``, or None if there is no such file.

    Unknown keys are ignored, and characters that control a terminal are removed.

    :param without: the effect of removing the file, for the error message.
    :param most_bytes: size limit of the file.
    :param listed: status of the file, if it was just listed.

    Raises StorageError, and RecordUnreadable if the file was changed or a newer version wrote it.
    """
    try:
        with storage.open_record(listed) if listed else storage.open_read(uri) as stream:
            data = stream.read(most_bytes + 1)
    except StorageNotFound:
        return None
    if len(data) > most_bytes:
        raise RecordUnreadable(uri, f"it exceeds the size limit of {size(most_bytes)}", without)
    try:
        return from_plain(printable_json(read_json(data)), cls, ignore_unknown=True)
    except CodecError as error:
        raise RecordUnreadable(uri, str(error), without) from error
    except BoundedJsonError as error:
        raise RecordUnreadable(uri, f"not JSON: {error}", without) from error
