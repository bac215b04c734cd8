"""Build Python environments with uv or pip, and keep them as archives on the store.

A build may target another Python version and platform than this machine's. The environment is kept in
``cache/environments/<key>/`` below the staging directory. The key is a hash of the build's inputs, such as
requirements, Python and machine.

This directory contains the archive, its record, and a file with the time of the last use by a job. The record is
written last, so an archive without a record is incomplete.

The module also checks the cache of environments that all users share.
"""

from __future__ import annotations

import gzip
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from io import BytesIO
from pathlib import Path

import attrs

from tony_provider.cluster.environments.requirements import (
    PackageIndexes,
    Requirements,
    pip_command,
    pip_indexes,
    uv_indexes,
)
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.sources import local_source, sha256_of_stored
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import RECORD_LIMIT
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.helper_processes import absolute_entries, child_environment
from tony_provider.runtime.common.python_packages import EnvironmentRecord, Version, version_text
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import (
    PRIVATE_FILE,
    FileStatus,
    Storage,
    read_text,
    read_whole,
    upload,
    write_atomically,
)
from tony_provider.runtime.storage.errors import StorageError, StorageExists, StorageNotFound, StorageTooLarge

log = logging.getLogger(__name__)

ARCHIVE_PREFIX = "tony-env-"  # start of a built archive's name; a submission expects a record for it
_DIGITS = 32  # number of hash digits in an archive's name
USED_FILE = "used"  # rewritten at each submission of a job with this environment
_ARCHIVE = 0o500  # mode of archives, as of other files in the cache
_SHARED_ARCHIVE, _SHARED_FILE, _SHARED_DIRECTORY = 0o555, 0o644, 0o755


class RecordMissing(Exception):  # noqa: N818 - named for what is wrong
    """A built environment has no readable record."""


@attrs.frozen
class BuiltEnvironments:
    """The built environments of one staging directory. All methods block, and raise StorageError."""

    storage: Storage
    layout: Layout
    shared: bool = False  # readable by all users

    def directory(self, key: str) -> str:
        return uris.join(self.layout.environments_dir, key)

    def find(self, key: str) -> str | None:
        """Return the URI of the archive with this key, or None if it was not built or no longer exists."""
        directory = self.directory(key)
        try:
            record = read_environment_record(self.storage, uris.join(directory, contract.ENVIRONMENT_FILE))
            uri = uris.join(directory, record.archive)
            return uri if self.storage.status(uri).size == record.size else None
        except (StorageNotFound, RecordMissing):
            return None

    def keep(self, key: str, archive: Path, record: EnvironmentRecord) -> str:
        """Put a built archive on the store and return its URI.

        If another build with the same key has finished first, return the URI of its archive.
        """
        uri = uris.join(self.directory(key), record.archive)
        permission, readable = (_SHARED_ARCHIVE, _SHARED_FILE) if self.shared else (_ARCHIVE, PRIVATE_FILE)
        if self.shared:
            self.storage.make_directories(self.directory(key), permission=_SHARED_DIRECTORY)
        upload(self.storage, archive, uri, overwrite=True, permission=permission)
        beside = uris.join(self.directory(key), contract.ENVIRONMENT_FILE)
        try:
            self.storage.write(beside, dump_json(record), permission=readable)
        except StorageExists:
            if (found := self.find(key)) is not None:
                if found != uri:
                    self.storage.remove(uri)  # no job uses an archive without a record
                return found
            write_atomically(self.storage, beside, dump_json(record), permission=readable)
        if not self.shared:
            self._touch(self.directory(key))
        return uri

    def note_use(self, archive: str) -> None:
        """Record that a job uses the archive now, if it is in this cache. `airflow tony gc` reads this time.

        Do nothing for a shared cache, because only its administrators may write there.
        """
        if self.shared:
            return
        ours, theirs = uris.parse(self.layout.environments_dir).path, uris.parse(archive).path
        if theirs.startswith(f"{ours}/"):
            self._touch(uris.parent(archive))

    def _touch(self, directory: str) -> None:
        write_atomically(self.storage, uris.join(directory, USED_FILE), str(epoch_ms()).encode())


def is_built(archive: str) -> bool:
    """Return whether `airflow tony env build` made an archive, according to its name."""
    return uris.name(archive).startswith(ARCHIVE_PREFIX)


def hash_digits(sha256: str) -> str:
    """Return the part of the content's hash that is in an archive's name.

    A program with write access to the store could replace both archive and record. Because a job names the archive with
    these digits, a submission detects the replaced content.
    """
    return sha256[:_DIGITS]


def read_environment_record(storage: Storage, uri: str) -> EnvironmentRecord:
    """Return the record of a built environment. Raises RecordMissing, StorageError."""
    try:
        return load_json(read_whole(storage, uri, RECORD_LIMIT), EnvironmentRecord)
    except StorageNotFound as error:
        raise RecordMissing(f"the environment has no record {uri}; build it again") from error
    except (CodecError, StorageTooLarge) as error:
        raise RecordMissing(f"{uri} is not the record of an environment ({error}); build it again") from error


def environment_record(storage: Storage, archive: FileStatus, *, read: bool = True) -> EnvironmentRecord:
    """Return the record next to an archive, after a check that the archive fits the record.

    With ``read``, check the content; otherwise check only name and size. Raises RecordMissing, StorageError.
    """
    record = read_environment_record(storage, uris.join(uris.parent(archive.path), contract.ENVIRONMENT_FILE))
    is_it = archive.size == record.size and archive.name == record.archive
    is_it = is_it and archive.name.endswith(f"-{hash_digits(record.sha256)}.tar.gz")
    if is_it and read:
        is_it = sha256_of_stored(storage, archive) == record.sha256
    if not is_it:
        raise RecordMissing(f"{archive.path} has changed since it was built; build it again")
    return record


def note_uses(built: BuiltEnvironments, archives: list[str]) -> None:
    """Record that a job uses these archives. Write errors are only logged, because another user may own an archive."""
    for archive in archives:
        try:
            built.note_use(archive)
        except StorageError as error:
            log.warning("Cannot record the use of %s, so `airflow tony gc` may remove it: %s", archive, error)


_OTHERS_WRITE = 0o022
_STICKY = 0o1000  # mode of a directory in which only the owner of a file may rename the file
_LONGEST = 4096  # maximum bytes of the note that an archive was verified


@attrs.frozen
class SharedCache:
    """The cache of environments that all users share, as a job's user accesses it.

    All methods block, and raise StorageError.

    :param root: URI of the directory.
    :param own: the staging directory, which records the archives that this user has verified.
    """

    storage: Storage
    root: str
    user: str
    own: Layout

    def holds(self, uri: str) -> bool:
        """Return whether a file is in the cache. Compare only paths, because a file system may have several names."""
        return uris.parse(uri).path.startswith(f"{uris.parse(self.root).path}/")

    def problems(self, uri: str) -> Iterator[str]:
        """Yield a problem for each path by which a user other than the administrator could have changed this file."""
        root = self.storage.status(self.root)
        if root.owner == self.user:
            yield f"the shared cache {self.root} must be an administrator's, but belongs to the job's user, {self.user}"
        for status in self._on_the_way(uri):
            is_above = len(status.path) < len(root.path)
            if not is_above and status.owner != root.owner:
                yield f"{status.path} in the shared cache belongs to {status.owner}, the cache to {root.owner}"
            elif self._others_write(status) and not (is_above and (status.permission or 0) & _STICKY):
                yield f"users other than {status.owner} can write to {status.path}, so the shared cache is not trusted"

    def _others_write(self, status: FileStatus) -> bool:
        return status.permission is None or bool(status.permission & _OTHERS_WRITE)

    def is_checked(self, archive: FileStatus) -> bool:
        """Return whether this user has verified the content and the archive has not changed since."""
        try:
            return read_text(self.storage, self._note(archive), length=_LONGEST) == _version(archive)
        except StorageNotFound:
            return False

    def note_checked(self, archive: FileStatus) -> None:
        """Record that this user has verified the archive's content."""
        write_atomically(self.storage, self._note(archive), _version(archive).encode())

    def _note(self, archive: FileStatus) -> str:
        """Return the note's URI. It is in the directory of this user's environments, where gc removes unused notes."""
        return uris.join(self.own.environments_dir, uris.name(uris.parent(archive.path)), "checked")

    def _on_the_way(self, uri: str) -> Iterator[FileStatus]:
        """Yield the status of each path from the store's root down to the file."""
        at = str(attrs.evolve(uris.parse(self.root), path="/"))
        yield self.storage.status(at)
        for part in uris.parse(uri).path.strip("/").split("/"):
            at = uris.join(at, part)
            yield self.storage.status(at)


def _version(archive: FileStatus) -> str:
    return f"{archive.path} {archive.size} {archive.modified_ms}"


_SECONDS = 3600.0  # time limit of an installation, which may download some GB over a slow connection
_MOST_SAID = 4000  # characters of the installer's error output
_PLATFORM = re.compile(r"manylinux_2_(?P<glibc>\d{1,2})_(?P<machine>\w+)")
_OLDEST_GLIBC = 5  # minor version: glibc 2.5 is manylinux1
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}  # legacy platform names by glibc minor version
UV = "uv"
PIP = "pip"


class BuildFailed(ClusterError):  # noqa: N818 - named for what is wrong, as the others
    """The build of an environment failed."""


@attrs.frozen
class BuildTarget:
    """Python version and machine of the nodes for which an environment is built."""

    version: Version
    machine: str  # as printed by ``uname -m``
    glibc: int | None = None  # minimum minor version of glibc 2 on the nodes; None for this machine's version

    @classmethod
    def of(cls, version: Version | None, platform: str | None) -> BuildTarget:
        """Return the target for a wheel platform. The defaults are this Python and this machine. Raises BuildFailed."""
        own = cls(sys.version_info[:2], os.uname().machine)
        if platform is None:
            # This Python cannot compile for another version, so the build needs wheels. glibc 2.28 is from 2018.
            return own if version in (None, own.version) else cls(version, own.machine, 28)
        match = _PLATFORM.fullmatch(platform)
        if match is None:
            raise BuildFailed(f"--platform: {platform!r} is not supported; use one such as manylinux_2_28_x86_64")
        return cls(version or own.version, match["machine"], int(match["glibc"]))

    @property
    def platform(self) -> str:
        """Return the platform's name for the environment's key and for messages."""
        return f"linux_{self.machine}" if self.glibc is None else f"manylinux_2_{self.glibc}_{self.machine}"

    @property
    def pip_platforms(self) -> Iterator[str]:
        """Yield all wheel platforms that nodes with this glibc can use, the newest first."""
        for minor in range(self.glibc or 0, _OLDEST_GLIBC - 1, -1):
            yield f"manylinux_2_{minor}_{self.machine}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{self.machine}"


def find_installer(wanted: str | None, requirements: Requirements) -> str:
    """Return the ``wanted`` installer, by default ``uv`` if it is installed, otherwise ``pip``. Raises BuildFailed."""
    if wanted == UV or (wanted is None and _uv()):
        if not _uv():
            raise BuildFailed("cannot find uv, neither next to this Python nor on PATH")
        return UV
    if requirements.is_lock:
        raise BuildFailed(f"{requirements.file.name} requires uv, which is neither next to this Python nor on PATH")
    if importlib.util.find_spec("pip") is None:
        raise BuildFailed(f"cannot find uv, and {sys.executable} has no pip: install one of them there")
    return PIP


def indexes_of(installer: str) -> PackageIndexes:
    """Return the package indexes that the caller has configured for the installer. Raises IndexProblem."""
    if installer == UV:
        return uv_indexes()
    with tempfile.TemporaryDirectory(prefix="tony-env-") as empty:
        return pip_indexes(Path(empty))


def install(
    installer: str, indexes: PackageIndexes, requirements: Requirements, target: BuildTarget, directory: Path
) -> None:
    """Install into ``directory``. The installer sees no files of the current directory and no secrets of this process.

    Raises BuildFailed with the installer's message.
    """
    empty = directory.with_name("empty")
    empty.mkdir()
    configuration = directory.with_name("uv.toml")
    configuration.touch(0o600)
    configuration.write_text(indexes.configuration, encoding="utf-8")
    command = [*_uv_command(target), "--config-file", str(configuration)] if installer == UV else _pip_command(target)
    command += ["--target", str(directory), "--requirement", str(requirements.file.absolute())]
    command += ["--require-hashes"] if requirements.has_hashes else []
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            cwd=empty,
            env=indexes.variables,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{installer} did not finish within {_SECONDS:g} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-_MOST_SAID:]
        what = f"Python {version_text(target.version)} on {target.platform}"
        raise BuildFailed(f"{installer} could not install {requirements.file} for {what}:\n{said}")


def version_of(installer: str) -> str:
    """Return name and version of the installer, such as ``uv 0.8.3``."""
    command = [str(_uv()), "--version"] if installer == UV else [*pip_command(), "--version"]
    env = child_environment()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd="/", env=env)
    return " ".join(done.stdout.split()[:2]) or installer


def _uv() -> str | None:
    path = absolute_entries(os.environ.get("PATH", os.defpath))
    return shutil.which(UV, path=os.pathsep.join([str(Path(sys.executable).parent), path]))


def _uv_command(target: BuildTarget) -> list[str]:
    command = [str(_uv()), "pip", "install", "--quiet", "--link-mode", "copy", "--python", sys.executable]
    if target.glibc is None:
        return command
    platform = f"{target.machine}-manylinux_2_{target.glibc}"
    other = ["--python-version", version_text(target.version), "--python-platform", platform]
    return [*command, *other, "--only-binary", ":all:"]


def _pip_command(target: BuildTarget) -> list[str]:
    command = [*pip_command(), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    if target.glibc is None:
        return command
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", version_text(target.version)]
    return command + [argument for each in target.pip_platforms for argument in ("--platform", each)]


_LEFT_OUT = frozenset({"__pycache__", ".lock"})  # files that installers leave behind
_COMPRESSION = 6


@attrs.frozen
class BuiltEnvironment:
    """The result of a build: an environment on the store that jobs can name."""

    uri: str  # value for the job's key ``python_env``
    was_there: bool  # True if it already existed, so nothing was built


def build_environment(
    kept: BuiltEnvironments,
    requirements: Requirements,
    target: BuildTarget,
    installer: str | None = None,
    others: Sequence[BuiltEnvironments] = (),
) -> BuiltEnvironment:
    """Build an environment, unless one with the same requirements and target exists.

    Raises BuildFailed, IndexProblem, OSError, StorageError.

    :param installer: ``uv`` or ``pip``. The default is uv if it is installed.
    :param others: further caches to search for an existing environment.
    """
    python = version_text(target.version)
    installer = find_installer(installer, requirements)
    indexes = indexes_of(installer)
    key = requirements.key(python, target.platform, indexes.chosen_by)
    for each in (kept, *others):
        if (found := each.find(key)) is not None:
            each.note_use(found)  # otherwise gc might remove it before the job starts
            return BuiltEnvironment(found, was_there=True)
    with tempfile.TemporaryDirectory(prefix="tony-env-") as folder:
        packages = Path(folder) / "packages"
        install(installer, indexes, requirements, target, packages)
        record = EnvironmentRecord(
            python=python,
            machine=target.machine,
            packages=_installed(packages),
            built_by=version_of(installer),
            built_ms=epoch_ms(),
        )
        abi = f"cp{python.replace('.', '')}"
        archive = Path(folder) / "packed.tar.gz"
        _pack(packages, record, archive)
        packed = local_source(archive, archive.name)
        name = f"{ARCHIVE_PREFIX}{abi}-{target.machine}-{hash_digits(packed.sha256)}.tar.gz"
        archive = archive.rename(archive.with_name(name))
        record = attrs.evolve(record, archive=name, sha256=packed.sha256, size=packed.size)
        uri = kept.keep(key, archive, record)
        log.info("Built %s (%d bytes) from %s", uris.name(uri), packed.size, requirements.file)
        return BuiltEnvironment(uri, was_there=False)


def _installed(packages: Path) -> dict[str, str]:
    found = {each.name: each.version for each in metadata.distributions(path=[str(packages)])}
    if not found:
        raise BuildFailed("the installer installed no package")
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _pack(packages: Path, record: EnvironmentRecord, archive: Path) -> None:
    """Pack files sorted by name, without times and owners, so that equal packages give equal bytes.

    Only the bytes of the record may differ.
    """
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_COMPRESSION, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        data = dump_json(record)
        info = tarfile.TarInfo(contract.ENVIRONMENT_FILE)
        info.size = len(data)
        tar.addfile(info, BytesIO(data))
        for path in _files(packages):
            tar.add(path, path.relative_to(packages).as_posix(), recursive=False, filter=_plain)


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name in _LEFT_OUT:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and time from a tar entry, so that equal files give equal bytes."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info
