"""A look at the environments of a job before anything is started: what they hold, and whether they suit the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import attrs

from tony_provider.cluster.environments import archive_glance
from tony_provider.cluster.environments.built_environments import RecordMissing, is_built, record_of
from tony_provider.cluster.environments.node_pythons import NodePythons
from tony_provider.cluster.environments.pex_info import PexError, wheels_of
from tony_provider.cluster.environments.shared_cache import SharedCache
from tony_provider.cluster.environments.stored_file import StoredFile
from tony_provider.cluster.history.environment_content import EnvironmentContent
from tony_provider.cluster.sources import LocalSource, Source, Sources, StoredSource
from tony_provider.runtime.environment_record import EnvironmentRecord
from tony_provider.runtime.spec.model import JobSpec, PythonEnv
from tony_provider.runtime.spec.python_env import EnvironmentKind, kind_of, named_environments, without_marks
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.wheel_name import Version, WheelName


@attrs.frozen
class LookedAt:
    """The environments of a job, by their keys, and what is wrong with them."""

    contents: Mapping[str, EnvironmentContent]
    problems: Sequence[str]


def needs_nodes(job: JobSpec) -> bool:
    """Whether something is to be known of the nodes for a look at the job's environments."""
    return any(kind_of(each) is not EnvironmentKind.DIRECTORY for _, _, each in named_environments(job))


def look_at(
    job: JobSpec, sources: Sources, storage: Storage, nodes: NodePythons, shared: SharedCache | None = None
) -> LookedAt:
    """Raises StorageError, OSError. ``shared``: the cache that users share, where there is one."""
    contents, problems = {}, []
    for key, _, environment in named_environments(job):
        used = [each for each in sources.all if each.key == key]
        if not used:
            continue  # a directory of the nodes, or the job's own where every task type has another
        looking = _Looking(environment, used, storage, nodes, shared)
        contents[key] = looking.content()
        problems += [f"{key}: {problem}" for problem in looking.problems]
    return LookedAt(contents, problems)


@attrs.define
class _Looking:
    """At one environment. What is wrong is known once its content is."""

    environment: PythonEnv
    sources: Sequence[Source]
    storage: Storage
    nodes: NodePythons
    shared: SharedCache | None = None
    problems: list[str] = attrs.field(factory=list)

    def content(self) -> EnvironmentContent:
        kind = kind_of(self.environment)
        if kind is EnvironmentKind.WHEELS:
            return self._wheels()
        if kind is EnvironmentKind.PEX:
            return self._pex(self.sources[0])
        source = self.sources[0]
        if isinstance(source, StoredSource):
            return self._stored_archive(source)
        machines = sorted(archive_glance.machines_in(source.path))
        if machines:
            self._check_machines(machines)
        return self._of(EnvironmentKind.ARCHIVE, machines=machines or None, sha256=source.sha256)

    @property
    def _file(self) -> str:
        """The name of the one file that it is."""
        return self.environment.rpartition("/")[2]

    def _of(self, kind: EnvironmentKind, **known: object) -> EnvironmentContent:
        return EnvironmentContent(python_env=without_marks(self.environment), kind=kind, **known)  # type: ignore[arg-type]

    def _wheels(self) -> EnvironmentContent:
        names = [(each.name.rpartition("/")[2], WheelName.parse(each.name.rpartition("/")[2])) for each in self._once()]
        self.problems += [f"{file} is not named as a wheel is" for file, wheel in names if wheel is None]
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
        """Each, though several task types have it."""
        return {each.name: each for each in self.sources}.values()

    def _check_wheel(self, file: str, wheel: WheelName) -> None:
        """A Python of the nodes must be able to take it: the one that its packages are laid over."""
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
        """A PEX may hold one for several machines and Pythons, and finds a Python by itself."""
        machines = self.nodes.machines
        if machines and not any(wheel.suits_machine(machine) for wheel in wheels for machine in machines):
            platforms = sorted({platform for wheel in wheels for platform in wheel.platforms})
            self.problems.append(
                f"{self._file} has {project} for {', '.join(platforms)}, and the nodes have {self.nodes}"
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
                f"{uris.name(uri)} was built for Python {record.python}, and the nodes have {self.nodes}; build it for "
                "theirs with --python, or name a runtime_archive in the tony connection that is for both"
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
        """And whether it is of the shared cache. Raises RecordMissing."""
        if self.shared is None or not self.shared.holds(archive.path):
            return record_of(self.storage, archive), False
        self.problems += self.shared.problems(archive.path)
        return record_of(self.storage, archive, read=not self.shared.is_checked(archive)), True

    def _check_machines(self, machines: Sequence[str]) -> None:
        if self.nodes.machines and not self.nodes.machines & set(machines):
            self.problems.append(f"{self._file} is for {' and '.join(machines)}, and the nodes have {self.nodes}")


def _suit(wheels: Sequence[WheelName], version: Version) -> bool:
    return all(wheel.suits_python(version) for wheel in wheels)


def _twice(wheels: Sequence[WheelName]) -> Iterator[str]:
    for project in sorted({each.normalized for each in wheels}):
        versions = [each.version for each in wheels if each.normalized == project]
        if len(versions) > 1:
            yield f"there are {len(versions)} wheels of {project} ({', '.join(versions)}); leave one"


def _machines(wheels: Sequence[WheelName]) -> list[str]:
    """Those that all of these are for; none where it does not matter."""
    return sorted({machine for wheel in wheels for machine in wheel.machines})
