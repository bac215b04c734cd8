"""Access of user processes to Hadoop: HDFS delegation tokens, Hadoop's configuration and the node's class path."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional
from xml.etree import ElementTree

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.files import write_private_file
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_container import ContainerCredentials, ExecutorContainer
from tony_provider.runtime.executor.user_environment import node_environment
from tony_provider.runtime.frameworks.base import fits_variable
from tony_provider.runtime.hadoop.tokens import Credentials

log = logging.getLogger(__name__)


class UserTokens:
    """A token file for user processes at ``target``, with the HDFS tokens of the container's credentials.

    The file contains no other credentials, because a program could use them to act as the executor.
    """

    def __init__(self, credentials: ContainerCredentials, target: Path) -> None:
        self._credentials = credentials
        self._target = target
        self._written = -1  # version of the credentials in the file
        # Services of the tokens, such as ha-hdfs:nameservice, or their kinds. Empty if there is no file.
        self.services: list[str] = []

    def follow(self) -> None:
        """Rewrite the file if there are newer tokens. Blocks. Raises OSError.

        After an error the file stays as it is, and the next call retries. Call this from one thread at a time.
        """
        version, tokens = self._credentials.user_tokens()
        if version == self._written:
            return
        if tokens:
            write_private_file(self._target, Credentials(tokens).to_bytes())
        self.services = list(dict.fromkeys(token.service or token.kind for token in tokens.values()))
        self._written = version

    def remove(self) -> None:
        """Remove the file until ``follow`` writes it again. Blocks. Raises OSError."""
        self._written = -1
        self._target.unlink(missing_ok=True)


_SECONDS = 60.0  # for the start of a JVM, while other containers of the node may also start one
_SAID = 300  # characters of the program's stderr in a message


class ClassPathError(Exception):
    """The class path of the node's Hadoop cannot be determined. The message names the reason."""


def hadoop_program(environ: Mapping[str, str]) -> Optional[str]:
    """Return the path of the node's ``hadoop`` program, or None if there is none. Blocks."""
    homes = [environ[name] for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME") if environ.get(name)]
    path = os.pathsep.join([*(f"{home}/bin" for home in homes), environ.get("PATH") or os.defpath])
    return shutil.which("hadoop", path=path)


def node_class_path(program: str, environ: Mapping[str, str]) -> str:
    """Return the node's Hadoop class path with each jar by name, because an embedded JVM does not expand ``*``.

    Blocks while a JVM starts. Raises ClassPathError.
    """
    try:
        done = processes.run_program([program, "classpath", "--glob"], environ, _SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ClassPathError(f"{program} classpath --glob took longer than {_SECONDS:g} s") from error
    except OSError as error:
        raise ClassPathError(f"{program} cannot be run: {error.strerror}") from error
    lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    found = [line.strip() for line in lines if line.strip()]
    if done.returncode or not found:
        said = replaced(done.stderr.decode("utf-8", "replace").strip())[-_SAID:]
        raise ClassPathError(f"{program} classpath --glob ended with exit code {done.returncode}: {said}")
    return found[-1]


_CORE, _HDFS = "core-site.xml", "hdfs-site.xml"
_USUAL = Path("/etc/hadoop/conf")


def node_configuration(environ: Mapping[str, str]) -> Optional[Path]:
    """Return the node's directory of Hadoop configuration, or None if no readable file has properties. Blocks."""
    return next(filter(_says_anything, _candidates(environ)), None)


def write_configuration(directory: Path, properties: Mapping[str, str]) -> None:
    """Write Hadoop's configuration files with these properties. Blocks. Raises OSError.

    Properties of HDFS go into hdfs-site.xml, because the defaults of HDFS override core-site.xml.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    of_hdfs = {name for name in properties if name.startswith("dfs.")}
    _write(directory / _CORE, {name: properties[name] for name in properties if name not in of_hdfs})
    _write(directory / _HDFS, {name: properties[name] for name in properties if name in of_hdfs})


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("HADOOP_CONF_DIR"):
        yield Path(environ["HADOOP_CONF_DIR"])
    for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME"):
        if environ.get(name):
            yield Path(environ[name], "etc", "hadoop")
    yield _USUAL


def _says_anything(directory: Path) -> bool:
    """Return whether a configuration has properties.

    The files in Hadoop's release archive have none. On some nodes, only the NodeManager can read the configuration.
    """
    try:
        root = ElementTree.parse(directory / _CORE).getroot()  # noqa: S314 - written by the administrator
    except (OSError, ElementTree.ParseError):
        return False
    return len(root) > 0


def _write(path: Path, properties: Mapping[str, str]) -> None:
    root = ElementTree.Element("configuration")
    for name, value in sorted(properties.items()):
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        ElementTree.SubElement(entry, "value").text = value
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


_CONF_DIR, _CLASS_PATH, _USER_NAME = "HADOOP_CONF_DIR", "CLASSPATH", "HADOOP_USER_NAME"


class HadoopAccess:
    """Access to Hadoop for the user processes of one container, in a directory of the workspace.

    One thread prepares a start, while heartbeats refresh the tokens in another thread.
    """

    def __init__(self, container: ExecutorContainer, directory: Path) -> None:
        self._container = container
        self._directory = directory
        self._token_file = directory / "tokens"
        self._tokens = UserTokens(container.credentials, self._token_file)
        self._lock = threading.Lock()  # for the token file
        self._problem = ""  # problem with the token file that was logged last
        self._found: Optional[dict[str, str]] = None  # set by the first start
        self._in_use = False  # a process may read the token file
        self._notes: list[str] = []  # sources of the configuration and of the class path

    def environment(self) -> dict[str, str]:
        """Return the variables of user processes. Blocks, the first time while a JVM starts. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock:
            self._in_use = True
            self._tokens.follow()
        if self._found is None:
            self._found = self._find()
        if not self._tokens.services:
            return self._found
        return {**self._found, contract.ENV_TOKEN_FILE: str(self._token_file)}

    def follow_tokens(self) -> None:
        """Write new tokens of the container to the token file while a user process runs. Blocks. Logs a failure once.

        After a failure the next call retries. There is no file while no user process runs.
        """
        problem = ""
        try:
            with self._lock:
                if self._in_use:
                    self._tokens.follow()
        except OSError as error:
            problem = str(error)
        if problem not in ("", self._problem):
            log.warning("the user process's HDFS tokens could not be replaced: %s", problem)
        self._problem = problem

    def remove_tokens(self) -> None:
        """Remove the token file after the user processes have ended. Blocks. Raises OSError.

        Otherwise tokens could be read later: a container's directory may outlive the container, and servers of the job
        may show its files.
        """
        with self._lock:
            self._in_use = False
            self._tokens.remove()

    def describe(self) -> str:
        """Describe the access for the log of the user processes. Call this after ``environment``."""
        services = ", ".join(self._tokens.services)
        user = self._container.description.user
        tokens = f"hadoop: tokens for {services}" if services else f"hadoop: no tokens, user {user}"
        return "; ".join([tokens, *self._notes])

    def _find(self) -> dict[str, str]:
        """Return the variables of the configuration and the class path, and note their sources."""
        container = self._container
        given = {**container.job.env, **container.spec.env}
        found = {_USER_NAME: container.description.user}  # effective if Hadoop does not authenticate users
        of_node = node_environment(container)
        directory, source = self._configuration({**of_node, **given})
        if directory is not None:
            found[_CONF_DIR] = str(directory)
        self._notes = [source, "the job's own class path"]
        if _CLASS_PATH not in given:
            class_path, self._notes[1] = _class_path_of_node({**of_node, **found, **given})
            if class_path:
                found[_CLASS_PATH] = class_path
        return found

    def _configuration(self, environ: Mapping[str, str]) -> tuple[Optional[Path], str]:
        """Return the configuration directory, or None if there is no configuration, and its source for messages."""
        directory = node_configuration(environ)
        if directory is not None:
            return directory, f"configuration in {directory}"
        properties = self._container.description.hadoop
        if not properties:
            return None, "no configuration, on this node or from the cluster"
        directory = self._directory / "conf"
        write_configuration(directory, properties)
        return directory, "configuration of the ResourceManager"


def _class_path_of_node(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the class path and its source for messages. Without a class path, return "" and the reason."""
    program = hadoop_program(environ)
    if program is None:
        return "", "no class path, because hadoop is not on PATH and HADOOP_HOME is not set"
    try:
        jars = node_class_path(program, environ)
    except ClassPathError as error:
        return "", f"no class path: {error}"
    path = os.pathsep.join(filter(None, [environ.get(_CONF_DIR), jars]))
    if not fits_variable(_CLASS_PATH, path):
        return "", f"no class path: the class path of {program} is too long for a variable"
    return path, f"class path of {program}"
