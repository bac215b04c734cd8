"""The identity of a training: the same for every try of one task of one run, different for all others."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import TypeVar

import attrs

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import RECORD_LIMIT, BoundedJsonError, printable_json, read_json
from tony_provider.runtime.common.codec import CodecError, from_plain
from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, read_whole
from tony_provider.runtime.storage.errors import StorageInvalidPath, StorageNotFound, StorageTooLarge

_SLUG_LENGTH = 60
_HASH_LENGTH = 20  # hexadecimal digits: 80 bits, plenty against chance collisions
_NAME = re.compile(rf"(.+)-([0-9a-f]{{{_HASH_LENGTH}}})")


@attrs.frozen
class Identity:
    """Names a training: ``name`` its directory, ``tag`` its YARN applications.

    Legal wherever they are used: HDFS path parts (no colon, no slash, short), YARN tags (lower-case ASCII, at most 100
    characters), and unlike raw Airflow ids never longer than 81 characters.
    """

    slug: str  # for people
    digest: str  # for machines: over everything that tells trainings apart

    @classmethod
    def parse(cls, name: str) -> Identity | None:
        """The identity with this ``name``; None when it is no training's."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(match[1], match[2])

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
    """The identity of one task of one run.

    ``namespace`` keeps two Airflow installations on one cluster apart. ``checkpoint_key`` is the author's own name for
    this training among the mapped instances of a task; it takes the place of ``map_index`` (-1: not mapped), which
    changes meaning when the mapped list does.
    """
    instance: object = map_index if checkpoint_key is None else ["key", checkpoint_key]
    # JSON keeps the parts apart: ("a", "bc") and ("ab", "c") must differ.
    digest = hashlib.sha256(json.dumps([namespace, dag_id, run_id, task_id, instance]).encode()).hexdigest()
    which = checkpoint_key if checkpoint_key is not None else (str(map_index) if map_index >= 0 else "")
    return Identity(_slug(dag_id, task_id, which, run_id), digest[:_HASH_LENGTH])


def _slug(*parts: str) -> str:
    words = []
    for part in parts:
        ascii_part = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode().lower()
        word = re.sub(r"[^a-z0-9]+", "-", ascii_part).strip("-")
        if word:
            words.append(word)
    return "-".join(words)[:_SLUG_LENGTH].strip("-") or "training"


APPLICATIONS = "applications"  # in a training's directory: those of its applications
_JSON = ".json"
_CACHED = re.compile(r"(?:environments/)?[0-9a-f]{64}/[^/]+")
_CHAIN = re.compile(r"chain-(\d{4,})")


@attrs.frozen
class Layout:
    """The paths below one staging directory.

    They are ``cache/<sha256>/<name>`` for what jobs share, ``jobs/<identity>/`` for what is one training's: an
    ``applications/<id>`` for each application, a chain (``chain-0001``) for each fresh start, ``notes`` of its
    tries; ``advice/<task>.json`` for what all runs of a task of a DAG have used.
    """

    root: str  # URI of the staging directory

    @property
    def cache_dir(self) -> str:
        return uris.join(self.root, "cache")

    def cached(self, sha256: str, name: str) -> str:
        """Return the URI of a file with this content. The name is for people; no shell interprets its characters."""
        return uris.join(self.cache_dir, sha256, re.sub(r"[^A-Za-z0-9._-]", "_", name)[-100:])

    def is_cached(self, uri: str) -> bool:
        """Return whether a URI names a file that submissions store by its content: ``cache/<sha256>/<name>``.

        An environment of `airflow tony env build` is at ``cache/environments/<key>/<name>``.
        """
        try:
            found, cache = uris.parse(uri), uris.parse(self.cache_dir)
        except StorageInvalidPath:
            return False
        is_here = (found.scheme, found.authority) == (cache.scheme, cache.authority)
        return is_here and _CACHED.fullmatch(found.path.removeprefix(f"{cache.path}/")) is not None

    @property
    def environments_dir(self) -> str:
        """The directory that holds the Python environments that were built, a directory for each."""
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
        """The directory for what the application needs only while it lives."""
        return uris.join(self.application_dir(identity, application_id), contract.LAUNCH_DIR)

    def notes_dir(self, identity: Identity) -> str:
        """The directory of what the training's tries tell each other."""
        return uris.join(self.job_dir(identity), "notes")

    @property
    def advice_dir(self) -> str:
        """The directory that holds what is known of former runs, a file for each task of a DAG."""
        return uris.join(self.root, "advice")

    def former_runs(self, task: Identity) -> str:
        """The URI of the file with the last applications of a task of a DAG, whatever their runs."""
        return uris.join(self.advice_dir, f"{task.name}{_JSON}")

    def task_of(self, file: str) -> Identity | None:
        """The task whose former runs are in the file of this name; None when it is none of ours."""
        return Identity.parse(file.removesuffix(_JSON)) if file.endswith(_JSON) else None

    def chain_dir(self, identity: Identity, number: int) -> str:
        """The directory of a checkpoint chain; numbers count from 1."""
        return uris.join(self.job_dir(identity), f"chain-{number:04}")


def chain_number(name: str) -> int | None:
    """The number of the chain whose directory in ``job_dir`` has this name; None for other names."""
    match = _CHAIN.fullmatch(name)
    return int(match[1]) if match else None


T = TypeVar("T")


def read_record(storage: Storage, uri: str, cls: type[T], *, without: str, most_bytes: int = RECORD_LIMIT) -> T | None:
    """What a small file on the store says, as ``cls``; None when there is no such file.

    Keys that this version does not know are left out, and so is what a terminal obeys.

    :param without: what happens once the file is removed, for people who have to choose.
    :param most_bytes: what is larger is no record of ours.

    Raises StorageError, and RecordUnreadable for what somebody has changed, or a newer version has written.
    """
    try:
        data = read_whole(storage, uri, most_bytes)
    except StorageNotFound:
        return None
    except StorageTooLarge as error:
        raise RecordUnreadable(uri, f"it is larger than {size(most_bytes)}, which none of ours is", without) from error
    try:
        return from_plain(printable_json(read_json(data)), cls, ignore_unknown=True)
    except CodecError as error:
        raise RecordUnreadable(uri, str(error), without) from error
    except BoundedJsonError as error:
        raise RecordUnreadable(uri, f"not JSON: {error}", without) from error
