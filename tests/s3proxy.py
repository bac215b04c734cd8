"""A real S3 server for tests: S3Proxy, which keeps objects in memory and verifies the signatures of requests."""

from __future__ import annotations

import importlib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.hadoop.daemons import ClusterError
from tests.hadoop.ports import free_ports
from tests.hadoop.processes import Process, spawn, stop
from tests.hadoop.resolve import dependency, fetch, project_of
from tests.hadoop.tools import java_program
from tests.waiting import until
from tony_provider.runtime.storage import read_bytes, walk
from tony_provider.runtime.storage.object_store import ObjectStorage

VERSION = "3.1.0"
# Clients of the clouds, to which it can also forward requests. One brings an older Jackson.
_CLOUDS = ("com.azure", "com.google.cloud", "com.microsoft.azure", "software.amazon.awssdk", "com.amazonaws", "io.grpc")
_JACKSON = {"jackson-core": "2.21.2", "jackson-databind": "2.21.2", "jackson-annotations": "2.21"}
_LOG = """\
<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c: %m%n</pattern></encoder>
  </appender>
  <root level="info"><appender-ref ref="console"/></root>
</configuration>
"""
_SECONDS = 60.0
KEY, SECRET = "AKIATONYTESTS", "s3-secret-of-the-tests"


@dataclass(frozen=True)
class ObjectServer:
    """A running server. Its users are one access key."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its clients."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def add_bucket(self) -> str:
        """Create an empty bucket, and return its name."""
        obstore: Any = importlib.import_module("obstore")  # not at the top, because every test loads this module
        name = f"bucket-{uuid4().hex}"
        bucket = importlib.import_module("obstore.store").S3Store(
            name, config=self.variables, client_options={"allow_http": True}
        )
        url = obstore.sign(bucket, "PUT", "", timedelta(minutes=5))
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30):
            return name

    def storage(self, bucket: str) -> ObjectStorage:
        return ObjectStorage.open(f"s3://{bucket}", self.variables)

    def files(self, bucket: str) -> dict[str, bytes]:
        """The objects of a bucket by their keys."""
        root = f"s3://{bucket}/"
        storage = self.storage(bucket)
        found = [each.path for each in walk(storage, root) if not each.is_directory]
        return {path.removeprefix(root): read_bytes(storage, path) for path in found}


@pytest.fixture(scope="session")
def object_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    if request.config.getoption("no_daemons", False):
        pytest.skip("started without daemons")
    with s3proxy(tmp_path_factory.mktemp("s3proxy")) as running:
        yield running


@contextmanager
def s3proxy(root: Path) -> Iterator[ObjectServer]:
    """Run the server in an empty folder. Raises ClusterError, ResolveError."""
    jars = fetch(f"s3proxy-{VERSION}", pom()) / "jars"
    server = ObjectServer(free_ports(1)[0])
    (root / "logback.xml").write_text(_LOG)
    properties = {
        "s3proxy.authorization": "aws-v4",
        "s3proxy.endpoint": server.endpoint,
        "s3proxy.identity": KEY,
        "s3proxy.credential": SECRET,
        "s3proxy.ignore-unknown-headers": "true",  # newer checksums of requests
        "jclouds.provider": "transient",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
    }
    (root / "s3proxy.conf").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    log = root / "s3proxy.log"
    flags = [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xmx200m",
        f"-Dlogback.configurationFile={root}/logback.xml",
    ]
    command = [str(java_program()), *flags, "-classpath", f"{jars}/*", "org.gaul.s3proxy.Main"]
    process = spawn([*command, "--properties", f"{root}/s3proxy.conf"], log=log, cwd=root, env={})
    try:
        until(lambda: _has_started(process, log), lambda: log.read_text()[-3000:], _SECONDS)
        yield server
    finally:
        stop([process], 5)


def pom() -> str:
    """The project file with the server, without its clients of clouds."""
    left_out = "".join(
        f"<exclusion><groupId>{each}</groupId><artifactId>*</artifactId></exclusion>" for each in _CLOUDS
    )
    proxy = dependency("org.gaul", "s3proxy", VERSION, f"<exclusions>{left_out}</exclusions>")
    jackson = (dependency("com.fasterxml.jackson.core", name, version) for name, version in _JACKSON.items())
    return project_of([proxy, *jackson])


def _has_started(process: Process, log: Path) -> bool:
    if not process.alive():
        raise ClusterError(f"S3Proxy ended; its log ends with\n{log.read_text()[-3000:]}")
    return "AbstractConnector: Started" in log.read_text()
