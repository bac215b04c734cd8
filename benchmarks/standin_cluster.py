"""A stand-in for a ResourceManager, a WebHDFS and masters with many running applications: answers fast, and counts.

`python -m benchmarks.standin_cluster APPLICATIONS` prints its port. Beside what YARN and WebHDFS answer it takes
``/finish/<application id>`` (the application ends now) and ``/counts`` (requests so far, by kind).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import dump_json, to_plain
from tony_provider.runtime.protocol.http_messages import OutputPiece
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress, TaskState, TaskStatus

TIMESTAMP = 1_700_000_000_000
_FILE = {
    "type": "FILE",
    "pathSuffix": "",
    "owner": "bench",
    "group": "bench",
    "permission": "600",
    "modificationTime": TIMESTAMP,
    "accessTime": TIMESTAMP,
    "blockSize": 1 << 27,
    "replication": 3,
}


def application_id(number: int) -> str:
    return f"application_{TIMESTAMP}_{number:04}"


class StandIn:
    def __init__(self, applications: int) -> None:
        self._running = {application_id(number): _info(application_id(number)) for number in range(applications)}
        self._ended: set[str] = set()
        self._began = time.monotonic()
        self.counts: Counter[str] = Counter()
        self.port = 0

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        print(self.port, flush=True)
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target = head.split(b" ", 2)[1].decode()
                status, body, location = self._answer(target)
                lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Type: application/json"]
                lines += [f"Content-Length: {len(body)}", *([f"Location: {location}"] if location else [])]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it has gone
        finally:
            writer.close()

    def _answer(self, target: str) -> tuple[HTTPStatus, bytes, str | None]:
        parts = urlsplit(target)
        path, last = parts.path, parts.path.rpartition("/")[2]
        if path.startswith("/webhdfs/v1/"):
            return self._file(path, parse_qs(parts.query).get("op", [""])[0])
        if path == "/ws/v1/cluster/info":
            return _json({"clusterInfo": {"haState": "ACTIVE", "resourceManagerVersion": "3.4.2"}})
        if path == "/ws/v1/cluster/apps":
            self.counts["lists"] += 1
            text = ",".join(info for each, info in self._running.items() if each not in self._ended)
            return HTTPStatus.OK, b'{"apps":{"app":[%s]}}' % text.encode(), None
        if path.startswith("/ws/v1/cluster/apps/"):
            self.counts["applications"] += 1
            info = json.loads(self._running[last])
            if last in self._ended:
                info |= {"state": "FINISHED", "finalStatus": "SUCCEEDED", "finishedTime": TIMESTAMP + 1}
            return _json({"app": info})
        if path.startswith("/proxy/"):
            self.counts["output"] += 1
            return _json(_printed(int(parse_qs(parts.query)["after"][0])))
        if path.startswith("/finish/"):
            self._ended.add(last)
            return _json({})
        return _json(dict(self.counts))

    def _file(self, path: str, operation: str) -> tuple[HTTPStatus, bytes, str | None]:
        """As a NameNode does, which sends on to a DataNode: here the same server, which is asked for no operation."""
        self.counts["store"] += 1
        identity = path.split("/")[-2]
        result = path.endswith("/result.json")
        if result and identity not in self._ended:
            missing = {"exception": "FileNotFoundException", "javaClassName": "java.io.FileNotFoundException"}
            body = json.dumps({"RemoteException": {**missing, "message": f"File does not exist: {path}"}})
            return HTTPStatus.NOT_FOUND, body.encode(), None
        if operation == "OPEN":
            return HTTPStatus.TEMPORARY_REDIRECT, b"", f"http://127.0.0.1:{self.port}{path}"
        status = self._status(identity, result)
        if operation == "GETFILESTATUS":
            return _json({"FileStatus": {**_FILE, "length": len(status)}})
        return HTTPStatus.OK, status, None

    def _status(self, identity: str, ended: bool) -> bytes:
        """Of a job with four workers, which reports a new step each second."""
        step = int(time.monotonic() - self._began)
        progress = TaskProgress(step, 100_000, 1.0, {"loss": 0.5})
        tasks = [TaskStatus("worker", index, TaskState.RUNNING, node="node:1", progress=progress) for index in range(4)]
        state = JobState.SUCCEEDED if ended else JobState.RUNNING
        about: dict[str, Any] = {"generation": 1, "tasks": tasks, "leader": "worker:0", "updated_ms": epoch_ms()}
        return dump_json(JobStatus(identity, "bench", state, **about))


def _json(found: object) -> tuple[HTTPStatus, bytes, None]:
    return HTTPStatus.OK, json.dumps(found).encode(), None


def _printed(after: int) -> dict[str, Any]:
    """What a job's master says its leader has printed since."""
    text = "epoch 3, step 1200: loss 0.4182, accuracy 0.8731\n"
    plain: dict[str, Any] = to_plain(OutputPiece(1, 1, after, after + len(text), text))
    return plain


def _info(name: str) -> str:
    """As long as YARN's own."""
    info = {
        "id": name,
        "user": "bench",
        "name": "bench.train",
        "queue": "default",
        "state": "RUNNING",
        "finalStatus": "UNDEFINED",
        "progress": 10.0,
        "trackingUI": "ApplicationMaster",
        "trackingUrl": f"http://127.0.0.1:8088/proxy/{name}/",
        "diagnostics": "",
        "clusterId": TIMESTAMP,
        "applicationType": "TONY",
        "applicationTags": "tony-" + "0" * 32,
        "priority": 0,
        "startedTime": TIMESTAMP,
        "finishedTime": 0,
        "elapsedTime": 1,
        "currentAppAttemptId": f"appattempt_{name}_000001",
        "amContainerLogs": f"http://node:8042/node/containerlogs/container_{name}_01_000001/bench",
        "amHostHttpAddress": "node:8042",
        "allocatedMB": 8704,
        "allocatedVCores": 5,
        "runningContainers": 5,
        "memorySeconds": 1,
        "vcoreSeconds": 1,
        "queueUsagePercentage": 1.0,
        "clusterUsagePercentage": 1.0,
        "logAggregationStatus": "NOT_START",
        "unmanagedApplication": False,
        "timeouts": {"timeout": [{"type": "LIFETIME", "expiryTime": "UNLIMITED", "remainingTimeInSeconds": -1}]},
    }
    return json.dumps(info)


class StandInProcess:
    """The same in a process of its own, seen from outside."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def ask(self, path: str) -> dict[str, int]:
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            return dict(json.load(answer))

    @property
    def connection(self) -> dict[str, Any]:
        extra = {"webhdfs": self.address, "staging_dir": "hdfs://bench/user/bench/.tony"}
        return {"conn_type": "tony", "login": "bench", "host": self.address, "extra": extra}


@contextmanager
def standin(applications: int) -> Iterator[StandInProcess]:
    command = [sys.executable, "-m", "benchmarks.standin_cluster", str(applications)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield StandInProcess(int(process.stdout.readline()))
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(StandIn(int(sys.argv[1])).serve())
