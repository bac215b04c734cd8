"""A PostgreSQL of a test's own, as installations of Airflow have one.

SQLite cannot stand for it: it has one writer at a time, for whom Airflow's api-server waits while it keeps him waiting.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.hadoop.ports import free_ports
from tests.hadoop.processes import Process, spawn
from tests.waiting import until

HOST = "127.0.0.1"
ROLE = "airflow"
OWNER = "postgres"  # of Debian's package: the server refuses to run as root
STOP_SECONDS = 20.0
# Nothing here outlives the test: it need not be on the disk.
SETTINGS = {"listen_addresses": HOST, "unix_socket_directories": "", "fsync": "off", "full_page_writes": "off"}


class DatabaseError(Exception):
    """It does not run; the message says what is known."""


@dataclass(frozen=True)
class Database:
    """``folder``: its own, which its owner can get to, wherever the test has its files."""

    folder: Path
    port: int
    process: Process

    @classmethod
    def create(cls) -> Database:
        """A new and empty one, up and running; of one that does not come up nothing is left. Raises DatabaseError."""
        with ExitStack() as undo:
            folder, owner, port = Path(tempfile.mkdtemp(prefix="tony-postgres-")), _owner(), free_ports(1)[0]
            undo.callback(shutil.rmtree, folder)
            if owner is not None:
                shutil.chown(folder, owner)
            data, log = folder / "data", folder / "log"
            initdb = ["--pgdata", str(data), "--username", ROLE, "--auth", "trust", "--no-sync"]
            _run("initdb", *initdb, cwd=folder, user=owner)
            options = [f"--{name}={value}" for name, value in {"port": port, **SETTINGS}.items()]
            command = [_program("postgres"), "-D", str(data), *options]
            database = cls(folder, port, spawn(command, log=log, cwd=folder, env=os.environ, user=owner))
            undo.callback(database.stop)
            ask = [_program("pg_isready"), "--quiet", "--host", HOST, "--port", str(port)]
            until(lambda: subprocess.run(ask, check=False).returncode == 0, lambda: f"PostgreSQL: {log.read_text()}")
            _run("createdb", "--host", HOST, "--port", str(port), "--username", ROLE, ROLE, cwd=folder)
            undo.pop_all()
        return database

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Database:
        """One that was left running, from what ``facts()`` said of it."""
        return cls(Path(facts["folder"]), facts["port"], Process(**facts["process"]))

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"folder": str(self.folder), "port": self.port, "process": asdict(self.process)}

    @property
    def url(self) -> str:
        """As SQLAlchemy has it."""
        return f"postgresql+psycopg2://{ROLE}@{HOST}:{self.port}/{ROLE}"

    def stop(self) -> None:
        """Whoever is connected. Raises DatabaseError."""
        self.process.signal(signal.SIGINT)
        if not self.process.wait_gone(time.monotonic() + STOP_SECONDS):
            raise DatabaseError(f"PostgreSQL did not end within {STOP_SECONDS:g} s")

    def remove(self) -> None:
        """Stop it, and forget what it held. Raises DatabaseError."""
        self.stop()
        shutil.rmtree(self.folder)


def _run(name: str, *words: str, cwd: Path, user: str | None = None) -> None:
    done = subprocess.run(
        [_program(name), *words], cwd=cwd, user=user, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise DatabaseError(f"{name} failed:\n{done.stdout}{done.stderr}")


def _owner() -> str | None:
    """None when it is to be who runs the test."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(OWNER).pw_name
    except KeyError as error:
        raise DatabaseError(f"there is no user {OWNER}, whom Debian's package postgresql makes") from error


def _program(name: str) -> str:
    """Debian keeps them, by their versions, where no PATH leads. Raises DatabaseError."""
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if found is None:
        raise DatabaseError(f"PostgreSQL's {name} was not found: tests/packages.sh installs it")
    return found
