"""Run a Jupyter server, and measure its idleness by kernels, terminals and changed files.

HTTP requests are no sign of activity: a page left open in a browser sends them every few seconds, for days.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

_START = 300.0  # seconds that a server may take until it answers


@dataclass(frozen=True)
class ServerActivity:
    """The activity of the server at one poll."""

    busy: bool  # whether a kernel is computing
    messages: dict[str, str]  # kernel or terminal -> time of its last message, as the server reports it

    @classmethod
    def of(cls, kernels: Any, terminals: Any) -> ServerActivity:
        """Return the activity from the answers of ``/api/kernels`` and ``/api/terminals``; ignore malformed answers."""
        listed = [*_objects(kernels), *_objects(terminals)]
        messages = {str(each.get("id", each.get("name"))): str(each.get("last_activity")) for each in listed}
        return cls(any(each.get("execution_state") == "busy" for each in listed), messages)


def _objects(answer: Any) -> Sequence[dict[str, Any]]:
    return [each for each in answer if isinstance(each, dict)] if isinstance(answer, list) else []


class Idleness:
    """Measures how long the server has been idle. Times are monotonic, in seconds."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._starts_until: Optional[float] = now + _START  # limit for the first answer; None: the server has answered
        self._known: dict[str, str] = {}

    def record(self, seen: Optional[ServerActivity], now: float, *, changed: bool) -> float:
        """Record one poll, and return for how many seconds the server has been idle.

        ``seen`` is None if the server did not answer, which is no sign of activity. The time until its first answer
        does not count as idle. ``changed`` means that a file has changed.
        """
        if seen is not None:
            self._starts_until = None
        elif self._starts_until is not None and now < self._starts_until:
            self._since = now
        messages = {} if seen is None else seen.messages
        if changed or (seen is not None and seen.busy) or messages.items() - self._known.items():
            self._since = now
        self._known.update(messages)
        return now - self._since


HOST = "127.0.0.1"
_TOKEN = "JUPYTER_TOKEN"  # environment variable from which Jupyter reads its token
_KERNELS = (
    "import json; from jupyter_client.kernelspec import KernelSpecManager as K; "
    "print(json.dumps(sorted(K().find_kernel_specs())))"
)
_BESIDE = ("share/jupyter", ".prefix/share/jupyter", ".prefix/data/share/jupyter")  # the last two are for a PEX
# Kernels do not get these variables. Otherwise, checkpoints that their programs save would be mistaken for the archives
# of the notebook's work, which are also checkpoints.
_NOT_FOR_KERNELS = frozenset(
    {"TONY_CHECKPOINT_DIR", "TONY_CHECKPOINT_URI", "TONY_CHECKPOINT_REQUEST", "TONY_RESUME_FROM", "TONY_RESUME_STEP"}
)
_LOOK_SECONDS = 120.0  # enough to import Jupyter's libraries from a slow disk
_ANSWER_SECONDS = 5.0
_MOST_BYTES = 4 << 20  # size limit of an answer
_STOP_SECONDS = 12.0  # between SIGTERM and SIGKILL; kernels need a part of this time to end
# Jupyter's working directory. In the notebooks' directory, Python would import modules from there.
_HOME = os.environ.get("HOME") or "/"
_MEND = "use a python_env with jupyterlab and ipykernel"


class CannotServe(Exception):  # noqa: N818 - named for what is wrong
    """This environment has no Jupyter server or no kernel. The message contains a remedy."""


def expect_token() -> None:
    """Raise CannotServe if the token is missing, because Jupyter would create one and print it."""
    if not os.environ.get(_TOKEN):
        raise CannotServe(f"the secret {_TOKEN} is missing: start the notebook with airflow tony notebook")


def server_module() -> str:
    """Return the module for ``python -m``, JupyterLab if it is installed. Raises CannotServe."""
    if _has("jupyter_server"):
        for module, sign in (("jupyterlab", "jupyterlab.labapp"), ("notebook", "notebook.app")):
            if _has(module) and _has(sign):
                return module
        return "jupyter_server"
    raise CannotServe(f"{sys.executable} has no Jupyter server: {_MEND}")


def expect_kernel() -> None:
    """Raise CannotServe if the environment has no kernel."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _KERNELS],
            cwd=_HOME,
            env=jupyter_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_LOOK_SECONDS,
            check=True,
        )
        found = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        raise CannotServe(f"{sys.executable} cannot list its kernels: {_MEND}") from error
    if not found:
        raise CannotServe(f"{sys.executable} has a Jupyter server but no kernel: {_MEND}")


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def jupyter_environment() -> dict[str, str]:
    """Return Jupyter's environment variables, with data directories next to packages, such as those in a PEX."""
    found = [str(path) for each in sys.path for name in _BESIDE if (path := Path(each, name)).is_dir()]
    lab = [each for each in found if Path(each, "lab", "static").is_dir()]
    env = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_KERNELS}
    env["JUPYTER_RUNTIME_DIR"] = str(runtime_directory())
    if found:
        env["JUPYTER_PATH"] = os.pathsep.join([*filter(None, [env.get("JUPYTER_PATH")]), *found])
    if lab and not Path(sys.prefix, "share", "jupyter", "lab", "static").is_dir():
        env.setdefault("JUPYTERLAB_DIR", str(Path(lab[0], "lab")))
    return env


def runtime_directory() -> Path:
    """Return the directory for the server's own files and for its kernels' sockets, whose paths must be short.

    Raises CannotServe if the directory belongs to another user, which is possible if the job's ``env`` sets TMPDIR.
    """
    directory = Path(tempfile.gettempdir(), "jupyter")
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CannotServe(f"{directory} belongs to another user, or others can write to it; remove TMPDIR from `env`")
    return directory


class Jupyter:
    """A Jupyter server process."""

    def __init__(self, module: str, root: Path, port: int) -> None:
        """Serve the directory ``root`` on ``port`` of the loopback interface only."""
        self._module = module
        self._root = root
        self._port = port
        self._token = os.environ.get(_TOKEN, "")
        self._process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        """Start the server. Raises OSError."""
        command = [
            *(sys.executable, "-m", self._module, "--no-browser"),
            *(f"--ServerApp.ip={HOST}", f"--ServerApp.port={self._port}", "--ServerApp.port_retries=0"),
            *(f"--ServerApp.root_dir={self._root}", "--ServerApp.base_url=/", "--ServerApp.allow_remote_access=False"),
            "--KernelManager.transport=ipc",  # with TCP, any user of the node could read a kernel's messages
            # Jupyter refuses to run as root otherwise; some containers run as root
            *(["--allow-root"] if os.geteuid() == 0 else []),
        ]
        self._process = subprocess.Popen(command, cwd=_HOME, env=jupyter_environment(), stdin=subprocess.DEVNULL)

    @property
    def ended(self) -> Optional[int]:
        """The exit code as in subprocess, or None while the server runs."""
        assert self._process is not None  # noqa: S101 - it was started
        return self._process.poll()

    def activity(self) -> Optional[ServerActivity]:
        """Return the current activity, or None if the server does not answer."""
        kernels = self._ask("/api/kernels")
        return None if kernels is None else ServerActivity.of(kernels, self._ask("/api/terminals"))

    def _ask(self, path: str) -> Any:
        """Return the JSON that the server answers for ``path``, or None without a usable answer.

        The request contains the token. So no request is sent before the server listens or after it has ended: another
        process might have the port.
        """
        if not self._listens():
            return None
        connection = http.client.HTTPConnection(HOST, self._port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"token {self._token}"})
            answer = connection.getresponse()
            return json.loads(answer.read(_MOST_BYTES)) if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def _listens(self) -> bool:
        """Return whether the server listens: it writes a file after it has bound its port."""
        if self._process is None or self._process.poll() is not None:
            return False
        return (runtime_directory() / f"jpserver-{self._process.pid}.json").exists()

    def stop(self) -> None:
        """Stop the server and its kernels. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
