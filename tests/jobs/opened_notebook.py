"""``airflow tony notebook`` as a process of its own, as people have it, and its server by Jupyter's own API."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.waiting import SECONDS, until

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*")


class OpenedNotebook:
    """From the command's start until it has ended; what it says is in ``said``."""

    def __init__(self, conn_id: str, *words: str) -> None:
        command = [sys.executable, "-m", "airflow", "tony", "notebook", *words, "--conn-id", conn_id]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = ""
        self.session = requests.Session()
        self.session.trust_env = False

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(iter(self._process.stdout.readline, ""))

    @property
    def said(self) -> str:
        return "".join(self._lines)

    def __enter__(self) -> OpenedNotebook:
        """Returns once there is an address."""

        def address() -> str | None:
            found = _ADDRESS.search(self.said)
            assert found or self._process.poll() is None, self.said
            return found[0] if found else None

        self.url = until(address, lambda: f"an address\n{self.said}")
        self.session.headers["Authorization"] = f"token {self.token}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.url).query)["token"][0]

    @property
    def address(self) -> str:
        return f"http://{urlsplit(self.url).netloc}"

    @property
    def application_id(self) -> str:
        found = re.search(r"application_\d+_\d+", self.said)
        assert found, self.said
        return found[0]

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self._process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> int:
        """Wait for its end; the exit code."""
        code = self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    # -- what people do there, by Jupyter's API ----------------------------------------------------------------------

    def save(self, name: str, text: str) -> None:
        body = {"type": "file", "format": "text", "content": text}
        self.session.put(f"{self.address}/api/contents/{name}", json=body, timeout=SECONDS).raise_for_status()

    def content(self, name: str) -> Any:
        answer = self.session.get(f"{self.address}/api/contents/{name}", timeout=SECONDS)
        answer.raise_for_status()
        return answer.json()["content"]

    def names(self, directory: str = "") -> set[str]:
        return {each["name"] for each in self.content(directory)}

    def run(self, code: str) -> str:
        """What code prints, run by a kernel that is started for it and stays."""
        wanted = {"name": "python3", "path": "/"}
        kernel = self.session.post(f"{self.address}/api/kernels", json=wanted, timeout=SECONDS).json()
        url = f"{self.address.replace('http', 'ws')}/api/kernels/{kernel['id']}/channels?token={self.token}"
        header = {"msg_id": "one", "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        printed = ""
        with connect(url, origin=Origin(self.address)) as there:
            there.send(json.dumps(message))
            while True:
                answer = json.loads(there.recv(SECONDS))
                if answer["parent_header"].get("msg_id") != "one":
                    continue
                if answer["msg_type"] == "stream":
                    printed += answer["content"]["text"]
                elif answer["msg_type"] == "error":
                    raise AssertionError("\n".join(answer["content"]["traceback"]))
                elif answer["content"].get("execution_state") == "idle":  # after all that was printed
                    break
        return printed


def job_file(folder: Path, environment: Path | str, **more: Any) -> Path:
    """A job whose task's container a notebook can have."""
    (folder / "words.txt").write_text("of the job\n")
    job = {
        "framework": "standalone",
        "name": "clicks",
        "python_env": str(environment),
        "files": ["words.txt"],
        "env": {"MODE": "fast"},
        "tasks": {"worker": {"memory": "700MiB", "command": "true"}},
        **more,
    }
    file = folder / "clicks.tony.json"
    file.write_text(json.dumps(job))
    return file
