"""Find the files, archives and environments that a job names, and compute their hashes.

The module also finds the user's cache directory, which holds hashes and runtime archives, and applies ignore files.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs
from pathspec import GitIgnoreSpec

from tony_provider.cluster.errors import JobNotAllowed, SourceMissing, StagingFailed
from tony_provider.cluster.settings import FileRoots
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.files import (
    UnsafeDirectoryError,
    keep_newest,
    make_own_directory,
    sha256_of,
    write_private_file,
)
from tony_provider.runtime.common.quantities import count, some
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.jobspec.container_content import (
    ARCHIVE_ENDINGS,
    FILES,
    PYTHON_ENV_FORMS,
    PYTHON_ENV_KEY,
    WHEEL_ENDING,
    EnvironmentKind,
    is_archived,
    named_environments,
    named_resources,
    python_env_kind,
    python_env_parts,
)
from tony_provider.runtime.jobspec.model import JobSpec, PythonEnv, unmarked
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, walk
from tony_provider.runtime.storage.errors import StorageNotFound

log = logging.getLogger(__name__)


def user_cache(wanted: Path | None = None) -> Path:
    """Return ``wanted``, or by default the directory ``tony-provider`` in the user's general cache directory.

    The directory holds runtime archives and the hashes of large files. Raises OSError, or StagingFailed if another user
    could write there.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = wanted or base / "tony-provider"
    try:
        make_own_directory(directory)
    except UnsafeDirectoryError as error:
        raise StagingFailed(f"the cache of runtime archives (XDG_CACHE_HOME) cannot be used: {error}") from error
    return directory


_SMALL = 4 << 20  # bytes: up to this size, reading a file is as fast as requesting its version
_MOST_NOTES = 1000
_SHA256 = re.compile(r"[0-9a-f]{64}")


def sha256_of_stored(storage: Storage, status: FileStatus) -> str:
    """Return the SHA-256 of a file on the storage. Read a large file only if it has changed. Raises StorageError."""

    def read() -> str:
        with storage.open_read(status.path) as stream:
            return sha256_of(stream)

    version = storage.version(status.path) if status.size > _SMALL else None
    return _remembered(f"{status.path} {status.size} {version}", read) if version is not None else read()


def sha256_of_local(path: Path) -> str:
    """Return the SHA-256 of a file on this machine. Read a large file only if it has changed. Raises OSError."""

    def read() -> str:
        with path.open("rb") as file:
            return sha256_of(file)

    stat = path.stat()
    if stat.st_size <= _SMALL:
        return read()
    # Include the change time (ctime), because users cannot set it, unlike the modification time (mtime).
    return _remembered(f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}", read)


def _remembered(version: str, read: Callable[[], str]) -> str:
    note = user_cache() / "contents" / hashlib.sha256(version.encode()).hexdigest()
    try:
        if _SHA256.fullmatch(known := note.read_text()):
            os.utime(note)
            return known
    except FileNotFoundError:
        pass
    sha256 = read()
    try:
        note.parent.mkdir(mode=0o700, exist_ok=True)
        write_private_file(note, sha256.encode())
        keep_newest(note.parent.iterdir(), _MOST_NOTES)
    except OSError as error:
        log.warning("Cannot write %s, so the next submission reads a large file again: %s", note, error)
    return sha256


IGNORED_DIRECTORIES = frozenset({"__pycache__", ".git"})
IGNORE_FILES = (".gitignore", ".tonyignore")  # the last file's rules take precedence
_SLASH_AT_END = re.compile(r"(?<=[^/!\\])/ *$")


class IgnoreFileError(ValueError):
    """An ignore file cannot be read, or has a line that is not a valid rule."""


@attrs.frozen
class _Rules:
    """The ignore rules of one directory."""

    directory: Path
    of_files: GitIgnoreSpec
    of_directories: GitIgnoreSpec  # the rules without trailing slashes, to match paths of directories

    @classmethod
    def of_lines(cls, directory: Path, lines: Sequence[str]) -> _Rules:
        """Parse the rules. Raises ValueError for a line that is not a rule."""
        without_slashes = [_SLASH_AT_END.sub("", line) for line in lines]
        return cls(directory, GitIgnoreSpec.from_lines(lines), GitIgnoreSpec.from_lines(without_slashes))

    def ignores(self, path: Path, *, is_directory: bool) -> bool | None:
        """Return whether the rules ignore the path, or None if no rule applies.

        A directory is ignored only if a rule matches the directory itself. So ``data/**`` ignores only the files in
        ``data``, and ``!*/`` after ``*`` makes the search enter directories.
        """
        spec = self.of_directories if is_directory else self.of_files
        return spec.check_file(path.relative_to(self.directory).as_posix()).include


def files_below(
    directory: Path, left_behind: list[Path], above: Sequence[_Rules] = (), way: Sequence[Path] = ()
) -> Iterator[Path]:
    """Yield every file that no ignore file excludes. Append the excluded paths to ``left_behind``.

    Also yield directories that cannot be entered, because they are unreadable or link to a directory above. ``way`` are
    the directories above, with links resolved, and ``above`` are their rules. Raises IgnoreFileError.
    """
    rules = [*above, *_rules_of(directory)]
    way = [*way, directory.resolve()]
    for entry in sorted(directory.iterdir()):
        enters = entry.is_dir() and _is_enterable(entry, way)
        if enters and entry.name in IGNORED_DIRECTORIES:
            continue
        if _ignored(entry, rules, is_directory=entry.is_dir()):
            left_behind.append(entry)
        elif enters:
            yield from files_below(entry, left_behind, rules, way)
        else:
            yield entry


def _ignored(path: Path, rules: Sequence[_Rules], *, is_directory: bool) -> bool:
    said = (each.ignores(path, is_directory=is_directory) for each in reversed(rules))
    return next((word for word in said if word is not None), False)


def _rules_of(directory: Path) -> Iterator[_Rules]:
    lines: list[str] = []
    for file in (directory / name for name in IGNORE_FILES):
        if not file.is_file():
            continue
        try:
            own = file.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
            _Rules.of_lines(directory, own)  # so that an error names the invalid file
        except (OSError, ValueError) as error:
            raise IgnoreFileError(f"{file} cannot be used: {error}") from error
        lines += own
    if lines:
        yield _Rules.of_lines(directory, lines)


def _is_enterable(directory: Path, way: Sequence[Path]) -> bool:
    target = directory.resolve()
    leads_back = any(passed.is_relative_to(target) for passed in way)
    return os.access(directory, os.R_OK | os.X_OK) and not leads_back


_MOST_NAMED = 5  # ignored paths that a log line lists
_MOST_OUTSIDE = 10  # files outside of the roots that an error message lists


@attrs.frozen
class LocalSource:
    """A file on this machine that is to be staged, with its hash."""

    name: str  # path in the container's working directory
    path: Path
    sha256: str
    size: int  # bytes
    modified_ns: int
    kind: ResourceKind = ResourceKind.FILE
    key: str = ""  # the job's entry that names the file, such as files.train.py; empty for a runtime archive
    task_type: str | None = None  # type of the tasks that get the file; None for all types


@attrs.frozen
class StoredSource:
    """A source that is already on the store."""

    resource: LocalizedResource  # the resource that containers get
    key: str  # see LocalSource
    task_type: str | None = None

    @property
    def name(self) -> str:
        return self.resource.name


Source = LocalSource | StoredSource


@attrs.frozen
class Sources:
    """All files that a job names, as found on this machine and on the store."""

    local: list[LocalSource]  # to be staged
    stored: list[StoredSource]
    client_config: LocalSource | LocalizedResource | None = None  # ``docker.client_config``, which only Airflow reads

    @property
    def all(self) -> list[Source]:
        """All sources that containers get."""
        return [*self.local, *self.stored]


@attrs.frozen
class _Use:
    """The entry of a job that names a source."""

    path: str  # path of the entry, for messages
    key: str
    task_type: str | None


class SourceFinder:
    """Finds the files, archives and environments that a job names.

    ``find`` does not read files of this machine outside of ``roots``, and raises JobNotAllowed for them. It raises one
    SourceMissing that lists all missing sources.
    """

    def __init__(self, storage: Storage, store_uri: str, search_path: Sequence[Path], roots: FileRoots) -> None:
        self._storage = storage
        self._store_uri = store_uri
        self._search_path = [path.absolute() for path in search_path]
        self._roots = roots
        self._problems: list[str] = []
        self._outside: list[str] = []
        self._local: list[LocalSource] = []
        self._stored: list[StoredSource] = []
        self._hashed: dict[Path, LocalSource] = {}  # an environment of many task types is hashed only once

    def find(self, job: JobSpec) -> Sources:
        self._problems, self._outside, self._local, self._stored, self._hashed = [], [], [], [], {}
        for named in named_resources(job):
            use, resource = _Use(named.path, named.key, named.task_type), named.resource
            if named.kind == FILES:
                self._add_file(use, resource.source, resource.target, stored=resource.stored)
            else:
                self._add_archive(use, resource.source, resource.target, stored=resource.stored)
        for use, environment in _environments(job):
            self._add_environment(use, environment)
        for task_type in job.tasks:
            self._check_names(task_type)
        client_config = self._client_config(job)
        if self._outside:
            more = len(self._outside) - _MOST_OUTSIDE
            raise JobNotAllowed(
                [*self._outside[:_MOST_OUTSIDE], *([f"and {count(more, 'more file')}"] if more > 0 else [])]
            )
        if self._problems:
            raise SourceMissing("; ".join(dict.fromkeys(self._problems)))
        return Sources(self._local, self._stored, client_config)

    def _add_file(self, use: _Use, source: str, name: str, *, stored: bool) -> None:
        found = self._find(use.path, source, stored=stored)
        if isinstance(found, FileStatus):
            for resource in self._expand_stored(found, name):
                self._stored.append(StoredSource(resource, use.key, use.task_type))
        elif found is not None:
            left_behind: list[Path] = []
            try:
                files = list(_expand(found, name, left_behind))
            except IgnoreFileError as error:
                self._problems.append(f"{use.path}: {error}")
                return
            for file, below in files:
                self._add_local(use, file, below, ResourceKind.FILE)
            if left_behind:
                # Users would otherwise search for these files on a node.
                named = some([path.relative_to(found).as_posix() for path in left_behind], _MOST_NAMED)
                log.info("%s: not staged from %s because of its ignore files: %s", use.path, source, named)

    def _add_local(self, use: _Use, path: Path, name: str, kind: ResourceKind) -> None:
        if problem := _file_problem(path):
            self._problems.append(f"{use.path}: {problem}")
            return
        if problem := self._roots.problem(path):  # a directory may hold links that lead out of it
            self._outside.append(f"{use.path}: {name}: {problem}")
            return
        if path not in self._hashed:
            self._hashed[path] = local_source(path, name, kind)
        found = self._hashed[path]
        self._local.append(attrs.evolve(found, name=name, kind=kind, key=use.key, task_type=use.task_type))

    def _expand_stored(self, status: FileStatus, name: str) -> Iterator[LocalizedResource]:
        if not status.is_directory:
            yield stored_resource(status, name)
            return
        prefix = f"{status.path}/"
        for below in walk(self._storage, status.path):
            if not below.is_directory and not IGNORED_DIRECTORIES & set(below.path.split("/")):
                yield stored_resource(below, f"{name}/{below.path.removeprefix(prefix)}")

    def _add_archive(self, use: _Use, source: str, name: str, *, stored: bool) -> None:
        if is_archived(source):
            self._add_one(use, source, name, ResourceKind.ARCHIVE, stored=stored)
        else:
            endings = ", ".join(ARCHIVE_ENDINGS)
            self._problems.append(f"{use.path}: {source!r} is not an archive; its name must end in {endings}")

    def _add_one(self, use: _Use, source: str, name: str, kind: ResourceKind, *, stored: bool) -> None:
        """Add a source that must not be a directory."""
        found = self._find(use.path, source, stored=stored)
        if found is None:
            return
        if found.is_directory if isinstance(found, FileStatus) else found.is_dir():
            what = "an archive" if kind is ResourceKind.ARCHIVE else "a file"
            self._problems.append(f"{use.path}: {source!r} is a directory, not {what}")
        elif isinstance(found, FileStatus):
            self._stored.append(StoredSource(stored_resource(found, name, kind), use.key, use.task_type))
        else:
            self._add_local(use, found, name, kind)

    def _add_environment(self, use: _Use, environment: PythonEnv) -> None:
        kind = python_env_kind(environment)
        for given in python_env_parts(environment):
            source, stored = unmarked(given)
            if kind is EnvironmentKind.ARCHIVE:
                self._add_archive(use, source, contract.PYTHON_ENV_DIR, stored=stored)
            elif kind is EnvironmentKind.PEX:
                self._add_one(use, source, _below_environment(source), ResourceKind.FILE, stored=stored)
            elif kind is EnvironmentKind.WHEELS:
                self._add_wheels(use, source, stored=stored)

    def _add_wheels(self, use: _Use, source: str, *, stored: bool) -> None:
        """Add a wheel, or all wheels of a directory."""
        if source.lower().endswith(WHEEL_ENDING):
            self._add_one(use, source, _below_environment(source), ResourceKind.FILE, stored=stored)
            return
        before = len(self._problems)
        found = self._find(use.path, source, stored=stored)
        if found is None:
            if len(self._problems) > before:
                self._problems[-1] += f"; a python_env is {PYTHON_ENV_FORMS}"
            return
        wheels = self._wheels_in(found)
        if not wheels:
            self._problems.append(f"{use.path}: {source!r} contains no wheel; a python_env is {PYTHON_ENV_FORMS}")
        for wheel in wheels:
            if isinstance(wheel, FileStatus):
                resource = stored_resource(wheel, _below_environment(wheel.name))
                self._stored.append(StoredSource(resource, use.key, use.task_type))
            else:
                self._add_local(use, wheel, _below_environment(wheel.name), ResourceKind.FILE)

    def _wheels_in(self, found: FileStatus | Path) -> list[FileStatus] | list[Path]:
        if isinstance(found, FileStatus):
            listed = self._storage.list(found.path) if found.is_directory else []
            return [each for each in listed if each.name.lower().endswith(WHEEL_ENDING)]
        files = found.iterdir() if found.is_dir() else ()
        return sorted(file for file in files if file.name.lower().endswith(WHEEL_ENDING))

    def _client_config(self, job: JobSpec) -> LocalSource | LocalizedResource | None:
        key = "docker.client_config"
        if job.docker is None or job.docker.client_config is None:
            return None
        source, stored = unmarked(job.docker.client_config)
        found = self._find(key, source, stored=stored)
        if isinstance(found, FileStatus):
            return stored_resource(found, key)
        if found is None:
            return None
        if problem := _file_problem(found):
            self._problems.append(f"{key}: {problem}")
            return None
        return local_source(found, key)

    def _find(self, key: str, source: str, *, stored: bool) -> FileStatus | Path | None:
        """Find a source on the job's store or on this machine. A source marked as ``stored`` must be on the store.

        If the source is missing or not allowed, record the problem and return None.
        """
        if in_store(source, self._store_uri):
            return self._status(key, source)
        if stored:
            scheme = uris.scheme(self._store_uri)
            where = f"a URI below {self._store_uri}" if scheme == "file" else f"{scheme}://…"
            self._problems.append(f"{key}: {source!r} is marked as stored, so it must be in the job's store: {where}")
            return None
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
            self._problems.append(f"{key}: {uri} does not exist")
            return None

    def _locate(self, key: str, source: str) -> Path | None:
        path = Path(source.removeprefix("file://"))
        candidates = [path] if path.is_absolute() else [directory / path for directory in self._search_path]
        for candidate in candidates:
            if candidate.exists():
                if problem := self._roots.problem(candidate):
                    self._outside.append(f"{key}: {problem}")
                    return None
                if os.access(candidate, os.R_OK):
                    return candidate
                self._problems.append(f"{key}: {candidate} cannot be read by this user")
                return None
        if candidates:
            self._problems.append(f"{key}: {source!r} does not exist; searched {', '.join(map(str, candidates))}")
        else:
            self._problems.append(f"{key}: {source!r} is relative, but there is no DAG folder; use an absolute path")
        return None

    def _check_names(self, task_type: str) -> None:
        """Record a problem for each name that two files of a container share, or that the runtime needs."""
        got = [each for each in Sources(self._local, self._stored).all if each.task_type in (None, task_type)]
        reserved = {contract.RUNTIME_DIR, contract.RUNTIME_FILE, contract.APPLICATION_FILE, contract.FILES_DIR}
        names: set[str] = set()
        for name in [source.name for source in got]:
            if name.split("/", 1)[0] in reserved:
                self._problems.append(f"the name {name!r} is reserved for the runtime; rename the file")
            if name in names:
                self._problems.append(f"two files or archives would both be {name!r} in the working directory")
            names.add(name)


def _environments(job: JobSpec) -> Iterator[tuple[_Use, PythonEnv]]:
    """Yield the environment of each task type, or the job's environment once if no task type has its own."""
    own = {task_type: (path, each) for path, task_type, each in named_environments(job) if task_type is not None}
    if not own:
        if job.python_env is not None:
            yield _Use(PYTHON_ENV_KEY, PYTHON_ENV_KEY, None), job.python_env
        return
    for task_type in job.tasks:
        path, environment = own.get(task_type, (PYTHON_ENV_KEY, job.python_env))
        if environment is not None:
            yield _Use(path, path, task_type), environment


def _below_environment(source: str) -> str:
    """Return the path in a container for a PEX or a wheel, which belongs to the container's environment."""
    return f"{contract.PYTHON_ENV_DIR}/{source.rstrip('/').rpartition('/')[2]}"


def in_store(source: str, store_uri: str) -> bool:
    """Return whether ``source`` is a URI of the store that holds the staging directory ``store_uri``.

    Every URI with the store's scheme qualifies. If the store is this machine's disk, only URIs below the staging
    directory do, because users also keep their own files there.
    """
    scheme = source.partition("://")[0].lower() if "://" in source else None
    if scheme == "file":
        return source.startswith(f"{store_uri.rstrip('/')}/")
    return scheme == uris.scheme(store_uri)


def stored_resource(
    status: FileStatus, name: str, kind: ResourceKind = ResourceKind.FILE, sha256: str | None = None
) -> LocalizedResource:
    """Return a file on the store as the resource that containers get.

    ``sha256`` is the hash of the content, which containers verify; None if it is unknown.
    """
    return LocalizedResource(name, status.path, status.size, status.modified_ms, kind, sha256)


def local_source(path: Path, name: str, kind: ResourceKind = ResourceKind.FILE) -> LocalSource:
    """Return the source for a file on this machine, with its hash. Raises OSError."""
    stat = path.stat()
    return LocalSource(name, path, sha256_of_local(path), stat.st_size, stat.st_mtime_ns, kind)


def _expand(path: Path, name: str, left_behind: list[Path]) -> Iterable[tuple[Path, str]]:
    """Return a file, or every file below a directory, each with its name in the container's working directory."""
    if not path.is_dir():
        return [(path, name)]
    return ((file, f"{name}/{file.relative_to(path).as_posix()}") for file in files_below(path, left_behind))


def _file_problem(path: Path) -> str:
    """Return why the file cannot be staged, or an empty string if it can."""
    if not is_writable(str(path)):
        return f"{str(path)!a} has a name that is not in UTF-8"
    if path.is_dir():
        return f"{path} is a directory that this user cannot read, or a link to a parent directory of itself"
    if not path.is_file():  # such as a FIFO, whose read would never end
        return f"{path} is neither a file nor a directory, nor a link to one"
    return "" if os.access(path, os.R_OK) else f"{path} cannot be read by this user"
