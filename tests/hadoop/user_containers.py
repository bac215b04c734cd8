"""Containers that run as the users of their applications, on this machine: what NodeManagers need for it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.hadoop import container_executor, node_view
from tests.hadoop.config import Layout
from tests.hadoop.node_classes import node_classes
from tests.hadoop.node_view import NodeView, uid_of
from tests.hadoop.resolve import resolve
from tests.hadoop.settings import GROUPS, ORDINARY_USERS, Settings
from tests.hadoop.tools import java_program

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class UserContainers:
    layout: Layout
    settings: Settings

    def write(self) -> None:
        """The view that NodeManagers begin in, and the program that they begin containers by."""
        self._view.write()
        words = [str(_python()), "-I", "-S", str(Path(container_executor.__file__).resolve())]
        self.layout.container_executor.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        self.layout.container_executor.chmod(0o755)

    def command(self, daemon: list[str]) -> list[str]:
        """A NodeManager's, in that view."""
        program = str(Path(node_view.__file__).resolve())
        return [str(_python()), "-I", program, str(self.layout.node_view / "view.json"), "--", *daemon]

    @property
    def _view(self) -> NodeView:
        java = Path(str(java_program())).resolve().parents[1]
        version = self.settings.version
        folders = [
            resolve(version),  # what programs of theirs find
            resolve(version, self.settings.extra_artefacts),
            node_classes(version),
            java,
            sys.prefix,
            sys.base_prefix,
            REPOSITORY,
            self.layout.root,
        ]
        return NodeView(ORDINARY_USERS, tuple(dict.fromkeys(map(str, folders))), str(self.layout.node_view), GROUPS)


def system_user(user: str) -> int:
    """The number that a user's containers run as."""
    return uid_of(ORDINARY_USERS, user)


def _python() -> Path:
    """Without a virtual environment: these programs need the standard library only."""
    return Path(sys.executable).resolve()
