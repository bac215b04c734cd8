"""Inspect the Python environments of a job, and check them against the Pythons and machines of the nodes.

Archives, PEX files and wheels are examined without running them. A node needs a Python for which the runtime
archive was built, so environments must suit these Pythons.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import attrs

from tony_provider.cluster.environments.built_environments import (
    RecordMissing,
    SharedCache,
    environment_record,
    is_built,
)
from tony_provider.cluster.records.history import EnvironmentContent
from tony_provider.cluster.sources import LocalSource, Source, Sources, StoredSource
from tony_provider.runtime.common.archives import READ_ERRORS
from tony_provider.runtime.common.bounds import RECORD_LIMIT, BoundedJsonError, read_json
from tony_provider.runtime.common.python_packages import EnvironmentRecord, Version, WheelName, version_text
from tony_provider.runtime.jobspec.container_content import (
    EnvironmentKind,
    named_environments,
    python_env_kind,
    without_marks,
)
from tony_provider.runtime.jobspec.model import JobSpec, PythonEnv
from tony_provider.runtime.storage import object_store, uris
from tony_provider.runtime.storage.base import FileStatus, SeekableReader, Storage, read_bytes

_RUNTIME = re.compile(r"cp3(\d{1,3})/runtime\.zip")
_MACHINE = re.compile(r"\.cpython-3\d+-(\w+)-linux-(?:gnu|musl)\.so$")


@attrs.frozen
class NodePythons:
    """Python versions and machine types (``uname -m``) that the nodes may have. Both are empty if unknown."""

    versions: frozenset[Version] = frozenset()
    machines: frozenset[str] = frozenset()
    # Whether the runtime includes the library for object stores, or whether this host can include it.
    object_stores: bool = attrs.field(default=False, eq=False)

    def __str__(self) -> str:
        versions = " or ".join(version_text(each) for each in sorted(self.versions))
        return f"Python {versions} on {' or '.join(sorted(self.machines)) or 'any machine'}"


def pythons_of_this_host() -> NodePythons:
    """Return this host's Python version and CPU architecture.

    Nodes need the same ones if the runtime consists of this host's packages.
    """
    has_library = importlib.util.find_spec(object_store.PACKAGE) is not None
    return NodePythons(frozenset({sys.version_info[:2]}), frozenset({os.uname().machine}), has_library)


def pythons_of_runtime(archive: BinaryIO) -> NodePythons:
    """Return the Pythons that a runtime archive was built for. Raises OSError, zipfile.BadZipFile."""
    versions: set[Version] = set()
    machines: set[str] = set()
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
        for name in names:
            if match := _RUNTIME.fullmatch(name):
                versions.add((3, int(match[1])))
            elif found := _MACHINE.search(name):
                machines.add(found[1])
    object_stores = any(f"/{object_store.PACKAGE}/" in name for name in names)
    return NodePythons(frozenset(versions), frozenset(machines), object_stores)


_LIBRARY = re.compile(  # names of compiled libraries; the groups are machines with Linux, or systems that no node has
    rb"\.cpython-3\d{1,2}-(?:(\w{3,20})-linux-(?:gnu|musl)|(darwin))\.so|\.cp3\d{1,2}-(win\w{2,10})\.pyd"
)
_MOST_BYTES = 32 << 20  # maximum bytes to examine, at the beginning of an unpacked tar or at the end of a zip
_PIECE = 1 << 20
_OVERLAP = 100  # bytes of the previous piece, because a name may span two pieces
_GZIP = b"\x1f\x8b"
_ZIP = b"PK"


def machines_in(archive: Path) -> set[str]:
    """Return the machines of the compiled libraries in an archive, judged from part of its bytes. Raises OSError."""
    found: set[str] = set()
    before = b""
    for piece in _pieces(archive):
        found.update(name.decode() for names in _LIBRARY.findall(before + piece) for name in names if name)
        before = piece[-_OVERLAP:]
    return found


def _pieces(archive: Path) -> Iterator[bytes]:
    """Yield, piece by piece, the unpacked beginning of a tar or the end of a zip."""
    with archive.open("rb") as file:
        start = file.read(len(_GZIP))
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES) if start == _ZIP else 0)
        gzip = zlib.decompressobj(wbits=31) if start == _GZIP else None
        left = _MOST_BYTES
        while left > 0 and (piece := file.read(_PIECE)):
            try:
                piece = gzip.decompress(piece, left) if gzip else piece
            except zlib.error:  # the container that unpacks the archive reports this
                return
            left -= len(piece)
            yield piece
            if gzip and gzip.eof:
                return


_INFO = "PEX-INFO"


class PexError(ValueError):
    """A file is not a PEX."""


def wheels_of(pex: BinaryIO) -> list[WheelName]:
    """Return the wheels in a PEX. Raises PexError, and StorageError for a file on the store."""
    try:
        with zipfile.ZipFile(pex) as opened, opened.open(_INFO) as info:
            data = info.read(RECORD_LIMIT + 1)
    except READ_ERRORS as error:
        raise PexError(f"it is not a PEX file ({error})") from error
    if len(data) > RECORD_LIMIT:
        raise PexError(f"its {_INFO} has more than {RECORD_LIMIT} bytes")
    try:
        named = read_json(data)["distributions"]
        return [wheel for name in named if (wheel := WheelName.parse(str(name))) is not None]
    except (BoundedJsonError, LookupError, TypeError) as error:
        raise PexError(f"its {_INFO} cannot be read ({error!r})") from error


_PACKAGE = re.compile(r"(?:.*/)?site-packages/([^/]+?)-[^/-]+(?:-py3\.\d+)?\.(?:dist-info|egg-info)(?:/.*)?")
_CONFIG = "pyvenv.cfg"
_SHARES = re.compile(rb"^include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)
_MOST_CONFIG_BYTES = 1 << 16  # size limit of pyvenv.cfg


def packages_of_archive(archive: Path) -> set[str] | None:
    """Return the packages in an archive. Raises OSError.

    Return None if they are unknown, because the environment uses system packages or the file is not an archive. A
    compressed tar is read as a whole: some seconds per GiB.
    """
    try:
        return _packages(_in_zip(archive) if zipfile.is_zipfile(archive) else _in_tar(archive))
    except OSError:
        raise
    except (*READ_ERRORS, TypeError):  # TypeError: tarfile's error for a gzip file that ends within its header
        return None  # the container that unpacks the archive reports this


def packages_of_directory(directory: Path) -> set[str] | None:
    """Return the packages in a directory of this machine, or None if they are unknown."""
    if not (directory / "bin" / "python").exists():
        return None
    found = [(f"{path.relative_to(directory)}", b"") for path in directory.glob("lib*/python3*/site-packages/*")]
    config = directory / _CONFIG
    if config.is_file():
        found.append((_CONFIG, config.read_bytes()[:_MOST_CONFIG_BYTES]))
    return _packages(iter(found))


def _packages(files: Iterator[tuple[str, bytes]]) -> set[str] | None:
    packages = set()
    for name, content in files:
        if _SHARES.search(content):
            return None
        if match := _PACKAGE.fullmatch(name):
            packages.add(match[1])
    return packages or None


def _in_tar(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive, mode="r|*") as tar:
        for member in tar:
            file = tar.extractfile(member) if _is_config(member.name) and member.isreg() else None
            yield member.name, file.read(_MOST_CONFIG_BYTES) if file else b""


def _in_zip(archive: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if _is_config(name):
                with opened.open(name) as file:
                    yield name, file.read(_MOST_CONFIG_BYTES)
            else:
                yield name, b""


def _is_config(name: str) -> bool:
    return name.rpartition("/")[2] == _CONFIG


class StoredFile(SeekableReader):
    """A file on the store for reading small parts of a large file.

    Each read sends one request, so wrap the object in a buffer.
    """

    def __init__(self, storage: Storage, status: FileStatus) -> None:
        super().__init__(status.size)
        self._storage, self._uri = storage, status.path

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = read_bytes(self._storage, self._uri, offset=self._at, length=min(len(buffer), self._size - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@attrs.frozen
class InspectedEnvironments:
    """The contents of a job's environments by key, and their problems."""

    contents: Mapping[str, EnvironmentContent]
    problems: Sequence[str]


def has_staged_environments(job: JobSpec) -> bool:
    """Return whether the job has Python environments that are not directories on the nodes."""
    return any(python_env_kind(each) is not EnvironmentKind.DIRECTORY for _, _, each in named_environments(job))


def inspect_environments(
    job: JobSpec, sources: Sources, storage: Storage, nodes: NodePythons, shared: SharedCache | None = None
) -> InspectedEnvironments:
    """Inspect all environments of the job. Raises StorageError, OSError.

    ``shared`` is the cache that all users share, if there is one.
    """
    contents, problems = {}, []
    for key, _, environment in named_environments(job):
        used = [each for each in sources.all if each.key == key]
        if not used:
            continue  # skip a directory on the nodes, and an environment that no task type uses
        looking = _EnvironmentInspection(environment, used, storage, nodes, shared)
        contents[key] = looking.content()
        problems += [f"{key}: {problem}" for problem in looking.problems]
    return InspectedEnvironments(contents, problems)


@attrs.define
class _EnvironmentInspection:
    """Inspection of one environment. ``problems`` is complete after ``content`` has returned."""

    environment: PythonEnv
    sources: Sequence[Source]
    storage: Storage
    nodes: NodePythons
    shared: SharedCache | None = None
    problems: list[str] = attrs.field(factory=list)

    def content(self) -> EnvironmentContent:
        kind = python_env_kind(self.environment)
        if kind is EnvironmentKind.WHEELS:
            return self._wheels()
        if kind is EnvironmentKind.PEX:
            return self._pex(self.sources[0])
        source = self.sources[0]
        if isinstance(source, StoredSource):
            return self._stored_archive(source)
        if machines := sorted(machines_in(source.path)):
            self._check_machines(machines)
        return self._of(EnvironmentKind.ARCHIVE, machines=machines or None, sha256=source.sha256)

    @property
    def _file(self) -> str:
        """Return the file name of an environment that is a single file."""
        return self.environment.rpartition("/")[2]

    def _of(self, kind: EnvironmentKind, **known: object) -> EnvironmentContent:
        return EnvironmentContent(python_env=without_marks(self.environment), kind=kind, **known)  # type: ignore[arg-type]

    def _wheels(self) -> EnvironmentContent:
        names = [(each.name.rpartition("/")[2], WheelName.parse(each.name.rpartition("/")[2])) for each in self._once()]
        self.problems += [f"{file} is not a valid name of a wheel" for file, wheel in names if wheel is None]
        wheels = [wheel for _, wheel in names if wheel is not None]
        self.problems += _twice(wheels)
        for file, wheel in names:
            if wheel is not None:
                self._check_wheel(file, wheel)
        if not self.problems and self.nodes.versions and not any(map(partial(_suit, wheels), self.nodes.versions)):
            self.problems.append(f"no Python suits all of these wheels; the nodes have {self.nodes}")
        return self._of(
            EnvironmentKind.WHEELS, machines=_machines(wheels), packages={each.project: each.version for each in wheels}
        )

    def _once(self) -> Iterable[Source]:
        """Return each source once, even if several task types use it."""
        return {each.name: each for each in self.sources}.values()

    def _check_wheel(self, file: str, wheel: WheelName) -> None:
        """Check that the wheel suits a machine and a Python of the nodes."""
        machines, versions = self.nodes.machines, self.nodes.versions
        suits_machine = not machines or any(wheel.suits_machine(each) for each in machines)
        suits_python = not versions or any(wheel.suits_python(each) for each in versions)
        if not (suits_machine and suits_python):
            self.problems.append(f"{file} is not for the nodes, which have {self.nodes}")

    def _pex(self, source: Source) -> EnvironmentContent:
        sha256 = source.sha256 if isinstance(source, LocalSource) else None
        try:
            with self._opened(source) as file:
                wheels = wheels_of(file)
        except PexError as error:
            self.problems.append(f"{self.environment}: {error}")
            return self._of(EnvironmentKind.PEX, sha256=sha256)
        for project in sorted({each.normalized for each in wheels}):
            self._check_project(project, [each for each in wheels if each.normalized == project])
        packages = {each.project: each.version for each in wheels}
        return self._of(EnvironmentKind.PEX, machines=_machines(wheels), packages=packages, sha256=sha256)

    def _check_project(self, project: str, wheels: Sequence[WheelName]) -> None:
        """Check that one of a PEX's wheels of the project suits the nodes' machine.

        The Python is not checked, because a PEX finds a suitable Python itself.
        """
        machines = self.nodes.machines
        if machines and not any(wheel.suits_machine(machine) for wheel in wheels for machine in machines):
            platforms = sorted({platform for wheel in wheels for platform in wheel.platforms})
            self.problems.append(
                f"{self._file} has {project} for {', '.join(platforms)}, but the nodes have {self.nodes}"
            )

    def _opened(self, source: Source) -> BinaryIO:
        if isinstance(source, LocalSource):
            return Path(source.path).open("rb")
        return BufferedReader(StoredFile(self.storage, self.storage.status(source.resource.uri)), 1 << 16)

    def _stored_archive(self, source: StoredSource) -> EnvironmentContent:
        uri = source.resource.uri
        if not is_built(uri):
            return self._of(EnvironmentKind.ARCHIVE)
        try:
            record, of_all = self._record(self.storage.status(uri))
        except RecordMissing as error:
            self.problems.append(str(error))
            return self._of(EnvironmentKind.ARCHIVE, built=True)
        self._check_machines([record.machine])
        if self.nodes.versions and record.python_version not in self.nodes.versions:
            self.problems.append(
                f"{uris.name(uri)} was built for Python {record.python}, but the nodes have {self.nodes}; build it for "
                "their Python with --python, or set a runtime_archive in the tony connection that supports both"
            )
        return self._of(
            EnvironmentKind.ARCHIVE,
            python=record.python,
            machines=[record.machine],
            packages=record.packages,
            built=True,
            shared=of_all,
            sha256=record.sha256,
        )

    def _record(self, archive: FileStatus) -> tuple[EnvironmentRecord, bool]:
        """Return the record of an archive, and whether the archive is in the shared cache. Raises RecordMissing."""
        if self.shared is None or not self.shared.holds(archive.path):
            return environment_record(self.storage, archive), False
        self.problems += self.shared.problems(archive.path)
        return environment_record(self.storage, archive, read=not self.shared.is_checked(archive)), True

    def _check_machines(self, machines: Sequence[str]) -> None:
        if self.nodes.machines and not self.nodes.machines & set(machines):
            self.problems.append(f"{self._file} is for {' and '.join(machines)}, but the nodes have {self.nodes}")


def _suit(wheels: Sequence[WheelName], version: Version) -> bool:
    return all(wheel.suits_python(version) for wheel in wheels)


def _twice(wheels: Sequence[WheelName]) -> Iterator[str]:
    for project in sorted({each.normalized for each in wheels}):
        versions = [each.version for each in wheels if each.normalized == project]
        if len(versions) > 1:
            yield f"there are {len(versions)} wheels of {project} ({', '.join(versions)}); keep only one"


def _machines(wheels: Sequence[WheelName]) -> list[str]:
    """Return the machines of platform-specific wheels, or [] if all wheels are portable."""
    return sorted({machine for wheel in wheels for machine in wheel.machines})
