"""What a user process finds of Hadoop with the job's key ``hadoop``: who it is, where HDFS is, how to read it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.executor.environment import node_environment
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.hadoop_access.class_path import ClassPathError, class_path, hadoop_program
from tony_provider.runtime.executor.hadoop_access.user_tokens import UserTokens
from tony_provider.runtime.frameworks.base import fits

log = logging.getLogger(__name__)

_CONF_DIR, _CLASS_PATH, _USER_NAME = "HADOOP_CONF_DIR", "CLASSPATH", "HADOOP_USER_NAME"


class HadoopAccess:
    """The user processes' access to Hadoop in one container, in a directory of the workspace.

    A start is prepared in one thread, while heartbeats follow the tokens in another.
    """

    def __init__(self, container: ExecutorContainer, directory: Path) -> None:
        self._container = container
        self._directory = directory
        self._token_file = directory / "tokens"
        self._tokens = UserTokens(container.credentials, self._token_file)
        self._lock = threading.Lock()  # of the token file
        self._trouble = ""  # with it, that was logged last
        self._found: Optional[dict[str, str]] = None  # from the first start on
        self._in_use = False  # there is a process that may read the token file
        self._configured = ""  # where it comes from, for people
        self._class_path = ""  # the same

    def environment(self) -> dict[str, str]:
        """The variables of user processes. Blocks, the first time for a JVM's start; raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock:
            self._in_use = True
            self._tokens.follow()
        if self._found is None:
            self._found = self._look()
        if not self._tokens.services:
            return self._found
        return {**self._found, contract.ENV_TOKEN_FILE: str(self._token_file)}

    def follow_tokens(self) -> None:
        """Have new tokens of the container in the file that running processes know. Blocks; what fails is logged once.

        The next call tries again. While no process of the user's runs there is no file.
        """
        trouble = ""
        try:
            with self._lock:
                if self._in_use:
                    self._tokens.follow()
        except OSError as error:
            trouble = str(error)
        if trouble not in ("", self._trouble):
            log.warning("the user process's HDFS tokens could not be renewed: %s", trouble)
        self._trouble = trouble

    def withdraw(self) -> None:
        """Remove the token file: the processes that it was for have ended. Blocks; raises OSError.

        A container's directory may be kept for longer than the container, and servers of the job may show its files.
        """
        with self._lock:
            self._in_use = False
            self._tokens.withdraw()

    def told(self) -> str:
        """What a user process finds, in a line of its log. Call it after ``environment``."""
        services = ", ".join(self._tokens.services)
        user = self._container.description.user
        return "; ".join(
            [
                f"hadoop: tokens for {services}" if services else f"hadoop: no tokens, user {user}",
                self._configured,
                self._class_path,
            ]
        )

    def _look(self) -> dict[str, str]:
        container = self._container
        given = {**container.job.env, **container.spec.env}
        found = {_USER_NAME: container.description.user}  # heeded where Hadoop asks for no proof
        of_node = node_environment(container)
        found.update(self._configuration({**of_node, **given}))
        if _CLASS_PATH in given:
            self._class_path = "the job's own class path"
        else:
            found.update(self._class_path_of_node({**of_node, **found, **given}))
        return found

    def _configuration(self, environ: Mapping[str, str]) -> dict[str, str]:
        from tony_provider.runtime.executor.hadoop_access import client_configuration  # an XML parser: few jobs need it

        directory = client_configuration.of_node(environ)
        properties = self._container.description.hadoop
        if directory is not None:
            self._configured = f"configuration in {directory}"
        elif properties:
            self._configured = "configuration as the ResourceManager has it"
            directory = self._directory / "conf"
            client_configuration.write(directory, properties)
        else:
            self._configured = "no configuration, on this node or from the cluster"
            return {}
        return {_CONF_DIR: str(directory)}

    def _class_path_of_node(self, environ: Mapping[str, str]) -> dict[str, str]:
        program = hadoop_program(environ)
        if program is None:
            self._class_path = "no class path, since there is no hadoop on PATH and no HADOOP_HOME"
            return {}
        try:
            jars = class_path(program, environ)
        except ClassPathError as error:
            self._class_path = f"no class path: {error}"
            return {}
        path = os.pathsep.join(filter(None, [environ.get(_CONF_DIR), jars]))
        if not fits(_CLASS_PATH, path):
            self._class_path = f"no class path: that of {program} is longer than a variable may be"
            return {}
        self._class_path = f"class path of {program}"
        return {_CLASS_PATH: path}
