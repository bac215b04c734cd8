"""The files, archives and environment that a job names, each one found and hashed, or reported as missing.

Local paths that are relative resolve against the search path (the DAG's folder, then the template search path), never
against the working directory. URIs of the job's own store are used where they are, all else is copied to the store.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from tony_provider.cluster.errors import SourceMissing
from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.sha256 import sha256_of
from tony_provider.runtime.spec.model import JobSpec, Resource
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import walk
from tony_provider.runtime.text import is_writable

ARCHIVE_ENDINGS = (".zip", ".tar.gz", ".tgz", ".tar")
_IGNORED_DIRECTORIES = {"__pycache__"}


@attrs.frozen
class LocalSource:
    """A file on this machine that is to be staged, with its hash."""

    name: str  # in the container's working directory
    path: Path
    sha256: str
    size: int  # bytes
    modified_ns: int
    kind: ResourceKind = ResourceKind.FILE


@attrs.frozen
class Sources:
    """All files that a job names, found."""

    local: list[LocalSource]  # to be staged
    stored: list[LocalizedResource]  # on the store already


class SourceFinder:
    """Finds the files, archives and environment that a job names.

    Raises SourceMissing naming everything that is not there and where it was looked for.
    """

    def __init__(self, storage: Storage, store_uri: str, search_path: Sequence[Path]) -> None:
        self._storage = storage
        self._store_uri = store_uri
        self._search_path = [path.absolute() for path in search_path]
        self._problems: list[str] = []
        self._local: list[LocalSource] = []
        self._stored: list[LocalizedResource] = []

    def find(self, job: JobSpec) -> Sources:
        self._problems, self._local, self._stored = [], [], []
        for index, resource in enumerate(job.files):
            self._add_file(f"files[{index}]", resource)
        for index, resource in enumerate(job.archives):
            self._add_archive(f"archives[{index}]", resource.source, resource.target)
        if job.python_env is not None:
            self._add_environment(job.python_env)
        self._check_names()
        if self._problems:
            raise SourceMissing("; ".join(self._problems))
        return Sources(self._local, self._stored)

    def _add_file(self, key: str, resource: Resource) -> None:
        found = self._find(key, resource.source)
        if isinstance(found, FileStatus):
            self._stored += self._expand_stored(found, resource.target)
        elif found is not None:
            for file, name in _expand(found, resource.target):
                self._add_local(key, file, name, ResourceKind.FILE)

    def _add_local(self, key: str, path: Path, name: str, kind: ResourceKind) -> None:
        if problem := _file_problem(path):
            self._problems.append(f"{key}: {problem}")
        else:
            self._local.append(local_source(path, name, kind))

    def _expand_stored(self, status: FileStatus, name: str) -> Iterator[LocalizedResource]:
        if not status.is_directory:
            yield stored_resource(status, name)
            return
        prefix = f"{status.path}/"
        for below in walk(self._storage, status.path):
            if not below.is_directory and not _IGNORED_DIRECTORIES & set(below.path.split("/")):
                yield stored_resource(below, f"{name}/{below.path.removeprefix(prefix)}")

    def _add_archive(self, key: str, source: str, name: str) -> None:
        if not is_archived(source):
            self._problems.append(f"{key}: {source!r} is no archive; its name must end in {', '.join(ARCHIVE_ENDINGS)}")
            return
        found = self._find(key, source)
        if found is None:
            return
        if found.is_directory if isinstance(found, FileStatus) else found.is_dir():
            self._problems.append(f"{key}: {source!r} is a directory, not an archive")
        elif isinstance(found, FileStatus):
            self._stored.append(stored_resource(found, name, ResourceKind.ARCHIVE))
        else:
            self._add_local(key, found, name, ResourceKind.ARCHIVE)

    def _add_environment(self, source: str) -> None:
        if is_archived(source):
            self._add_archive("python_env", source, contract.PYTHON_ENV_DIR)
        elif not source.removeprefix("file://").startswith("/"):
            self._problems.append(
                f"python_env: {source!r} is neither a directory on the nodes (an absolute path) nor an archive (whose "
                f"name ends in {', '.join(ARCHIVE_ENDINGS)})"
            )

    def _find(self, key: str, source: str) -> FileStatus | Path | None:
        """What is there, in the job's store or else on this machine; None when nothing is, which is reported."""
        if in_store(source, self._store_uri):
            return self._status(key, source)
        if "://" not in source or source.startswith("file://"):
            return self._locate(key, source)
        self._problems.append(
            f"{key}: {source!r} is in another store than the staging directory "
            f"({uris.scheme(self._store_uri)}://…); copy it there or name a local file"
        )
        return None

    def _status(self, key: str, uri: str) -> FileStatus | None:
        try:
            return self._storage.status(uri)
        except StorageNotFound:
            self._problems.append(f"{key}: there is no {uri}")
            return None

    def _locate(self, key: str, source: str) -> Path | None:
        path = Path(source.removeprefix("file://"))
        candidates = [path] if path.is_absolute() else [directory / path for directory in self._search_path]
        for candidate in candidates:
            if candidate.exists():
                if os.access(candidate, os.R_OK):
                    return candidate
                self._problems.append(f"{key}: {candidate} cannot be read by this user")
                return None
        if candidates:
            self._problems.append(f"{key}: {source!r} is not there; looked for {', '.join(map(str, candidates))}")
        else:
            self._problems.append(f"{key}: {source!r} is relative, and there is no DAG folder; write an absolute path")
        return None

    def _check_names(self) -> None:
        """Two things cannot have one place in the working directory; nor, on YARN, one thing two places."""
        uses = Counter(stored.uri for stored in self._stored)
        for uri in (uri for uri, count in uses.items() if count > 1):
            self._problems.append(f"{uri} is named more than once, and YARN gives a file one name only; copy it")
        reserved = {contract.RUNTIME_DIR, contract.APPLICATION_FILE}
        names: set[str] = set()
        for name in [source.name for source in self._local] + [stored.name for stored in self._stored]:
            if name.split("/", 1)[0] in reserved:
                self._problems.append(f"{name!r} is a name that the runtime needs itself; give the file another one")
            if name in names:
                self._problems.append(f"two files or archives would both be {name!r} in the working directory")
            names.add(name)


def is_archived(source: str) -> bool:
    """Whether a source is an archive to be unpacked, by the ending of its name."""
    return source.lower().endswith(ARCHIVE_ENDINGS)


def in_store(source: str, store_uri: str) -> bool:
    """Whether ``source`` is a URI of the store that the staging directory ``store_uri`` is in.

    Every URI of its scheme is; but of this machine's disk, where users keep their own files too, only what lies below
    the staging directory.
    """
    scheme = source.partition("://")[0].lower() if "://" in source else None
    if scheme == "file":
        return source.startswith(f"{store_uri.rstrip('/')}/")
    return scheme == uris.scheme(store_uri)


def stored_resource(
    status: FileStatus, name: str, kind: ResourceKind = ResourceKind.FILE, sha256: str | None = None
) -> LocalizedResource:
    """A file that is on the store already, as containers get it; ``sha256`` where its content is ours to know."""
    return LocalizedResource(name, status.path, status.size, status.modified_ms, kind, sha256)


def local_source(path: Path, name: str, kind: ResourceKind = ResourceKind.FILE) -> LocalSource:
    """The source for a file on this machine, hashed: reads all of it. Raises OSError."""
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        return LocalSource(name, path, sha256_of(file), stat.st_size, stat.st_mtime_ns, kind)


def _expand(path: Path, name: str) -> Iterable[tuple[Path, str]]:
    """The file itself, or every file below the directory, with its name in the working directory."""
    if not path.is_dir():
        return [(path, name)]
    return ((file, f"{name}/{file.relative_to(path).as_posix()}") for file in _below(path))


def _below(directory: Path) -> Iterator[Path]:
    """Every file, and what cannot be entered: directories that may not be read, links to where they lie in."""
    for entry in sorted(directory.iterdir()):
        if not entry.is_dir() or not _is_enterable(entry):
            yield entry
        elif entry.name not in _IGNORED_DIRECTORIES:
            yield from _below(entry)


def _is_enterable(directory: Path) -> bool:
    parent = directory.parent.resolve()
    return os.access(directory, os.R_OK | os.X_OK) and directory.resolve() not in (parent, *parent.parents)


def _file_problem(path: Path) -> str:
    """Why the file cannot be taken; empty when it can."""
    if not is_writable(str(path)):
        return f"{str(path)!a} has a name that is not in UTF-8"
    if path.is_dir():
        return f"{path} is a directory that this user may not read, or a link to one that it lies in"
    if not path.is_file():  # a FIFO would be read for ever
        return f"{path} is neither a file nor a directory, nor a link to one"
    return "" if os.access(path, os.R_OK) else f"{path} cannot be read by this user"
