"""The jars of one Hadoop version, resolved once with Maven and kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

# The ResourceManager does not start without timelineservice, whether it is enabled or not.
ARTEFACTS = (
    "hadoop-common",
    "hadoop-hdfs",
    "hadoop-hdfs-client",
    "hadoop-yarn-client",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-nodemanager",
    "hadoop-yarn-server-web-proxy",
    "hadoop-yarn-server-timelineservice",
)
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
# The jars carry no pages for HDFS, and its daemons exit without these folders.
EMPTY_WEBAPPS = ("hdfs", "datanode", "secondary")
WEB_XML = '<web-app xmlns="http://java.sun.com/xml/ns/javaee" version="2.5"/>\n'
RESOLVE_SECONDS = 600

# Hadoop 2's Jersey reads classes with ASM 3; a JWT library brings ASM 5, whose classes have the same names. With the
# newer ones first on the class path every REST call answers 500.
_NO_ASM_5 = "<exclusions><exclusion><groupId>org.ow2.asm</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId><artifactId>{artefact}</artifactId><version>{version}</version>{exclusions}
    </dependency>
"""
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tony.test</groupId><artifactId>hadoop</artifactId><version>1</version>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


class ResolveError(Exception):
    """Maven could not bring the jars; the message ends with what Maven said."""


def pom(version: str, extra: Sequence[str] = ()) -> str:
    """The project file whose runtime dependencies are one Hadoop version's daemons, and some extra ones."""
    artefacts = (*ARTEFACTS, *extra)
    exclusions = _NO_ASM_5 if version.startswith("2.") else ""
    dependencies = [dependency("org.apache.hadoop", each, version, exclusions) for each in artefacts]
    if version.startswith("3.1."):  # its web servers need it, and do not bring it; Java had it until version 10
        dependencies.append(dependency("javax.activation", "activation", "1.1.1"))
    return project_of(dependencies)


def dependency(group: str, artefact: str, version: str, exclusions: str = "") -> str:
    """One dependency of a project file."""
    return _DEPENDENCY.format(group=group, artefact=artefact, version=version, exclusions=exclusions)


def project_of(dependencies: Iterable[str]) -> str:
    """The project file with these dependencies."""
    return _POM.format(dependencies="".join(dependencies))


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tony-provider" / "hadoop"


def is_here(version: str) -> bool:
    """Whether ``resolve`` only has to look."""
    return _target(version, pom(version)).is_dir()


def resolve(version: str, extra: Sequence[str] = ()) -> Path:
    """The folder with `jars/` and `webapps/` of one Hadoop version, such as "3.4.2".

    Downloads at the first call (about half a minute); later calls only look. A second process waits for the first.
    Raises ResolveError with the end of Maven's output.
    """
    return fetch(version, pom(version, extra))


def fetch(name: str, project: str) -> Path:
    """The folder with the runtime jars of a Maven project; see `resolve`. `name` tells folders apart for people."""
    target = _target(name, project)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build(project, target)
    return target


def _target(version: str, project: str) -> Path:
    digest = hashlib.sha256(project.encode()).hexdigest()[:12]
    return cache_root() / f"{version}-{digest}"


def _build(project: str, target: Path) -> None:
    """Fill a folder beside the target and rename it, so that a half-filled one is never taken for the whole."""
    for abandoned in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(abandoned)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (draft / "pom.xml").write_text(project)
        for name in EMPTY_WEBAPPS:
            inside = draft / "webapps" / name / "WEB-INF"
            inside.mkdir(parents=True)
            (inside / "web.xml").write_text(WEB_XML)
        _copy_jars(draft)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft)
        raise


def _copy_jars(draft: Path) -> None:
    command = ["mvn", "--batch-mode", "-f", str(draft / "pom.xml"), COPY_GOAL]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={draft / 'jars'}"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RESOLVE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ResolveError(f"Maven did not finish within {RESOLVE_SECONDS} s") from error
    if done.returncode != 0:
        raise ResolveError(f"Maven could not resolve the Hadoop jars:\n{done.stdout[-3000:]}")
