"""Clusters that Airflow reaches through a gateway, while containers use the servers themselves."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from tests.gateways.hdfs_router import HdfsRouter
from tests.gateways.knox import PASSWORDS, Knox
from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobState

PROGRAM = """
import json, os, pathlib, time
import tony_sdk
directory = pathlib.Path(os.environ["TONY_CHECKPOINT_DIR"])
resumed = os.environ.get("TONY_RESUME_STEP")
print("begins at", resumed, flush=True)
if resumed is None:
    (directory / "state.json").write_text(json.dumps({"step": 7}))
    tony_sdk.commit_checkpoint(7, "state.json")
    time.sleep(600)
state = json.loads(pathlib.Path(os.environ["TONY_RESUME_FROM"]).read_text())
pathlib.Path(os.environ["TONY_MODEL_DIR"], "model.json").write_text(json.dumps(state))
"""


@dataclass(kw_only=True)
class KnoxPlace(YarnPlace):
    """Through Knox, by one of its topologies."""

    gateway: Knox
    topology: str = "basic"
    service: str = "yarn"  # of the ResourceManager
    secret: str = ""

    @property
    def connection(self) -> dict[str, Any]:
        address = self.gateway.address(self.topology)
        extra = {
            **super().connection["extra"],
            "webhdfs": address,
            "nodes_webhdfs": ",".join(self.cluster.webhdfs),
            "gateway": self.topology,
            "verify": str(self.gateway.ca_file),
        }
        secret = self.secret or (PASSWORDS[USER] if self.topology == "basic" else self.gateway.token(USER))
        host = f"{address}/{self.service}"
        return {"conn_type": "tony", "host": host, "login": USER, "password": secret, "extra": extra}


@dataclass
class HttpFsPlace(YarnPlace):
    """HDFS through HttpFS, as where Airflow's machines cannot reach DataNodes."""

    @property
    def connection(self) -> dict[str, Any]:
        found = super().connection
        namenodes = found["extra"]["webhdfs"]
        return {**found, "extra": {**found["extra"], "webhdfs": self.cluster.httpfs, "nodes_webhdfs": namenodes}}


@dataclass(kw_only=True)
class RouterPlace(YarnPlace):
    """HDFS through a Router, which is all that Airflow and containers know of HDFS."""

    router: HdfsRouter

    @property
    def connection(self) -> dict[str, Any]:
        found = super().connection
        own = {"webhdfs": self.router.webhdfs, "staging_dir": self.uri(f"/user/{USER}/.tony")}
        return {**found, "extra": {**found["extra"], **own}}

    def uri(self, path: str) -> str:
        return f"hdfs://{self.router.authority}{path}"


def train_kill_and_resume(place: YarnPlace) -> None:
    """Submit a job, watch it, kill it, and submit it again: all that Airflow does is done through the gateway."""
    hook = place.hook()
    command = f"exec python3 -c {shlex.quote(PROGRAM)}"
    first = _submit(place, hook, command)
    first.until(JobState.RUNNING)
    until(lambda: _has_checkpoint(first), first.describe)
    status = first.handle.master_status()
    assert status is not None
    assert status.state is JobState.RUNNING
    assert b"begins at None" in first.handle.output("worker:0", None, 0).data
    first.handle.control("checkpoint", {"reason": "a look"})
    hook.kill(first.id, "the test continues")
    assert first.end().state.value == "KILLED"

    second = _submit(place, hook, command)
    ended = second.succeeded()
    assert ended.resumed_step == 7
    assert "begins at 7\n" in second.log("worker:0")
    assert hook.storage().exists(f"{ended.model_dir}/model.json")


def _submit(place: YarnPlace, hook: TonyHook, command: str) -> Job:
    identity = hook.identity(dag_id="gateways", run_id="manual", task_id=f"train-{id(hook)}")
    worker = {"memory": "128MiB", "command": command}
    spec = {"framework": "standalone", "am": {"memory": "256MiB"}, "tasks": {"worker": worker}, "checkpoint": {}}
    handle = hook.submit(SubmissionRequest(parse_job(spec), identity))
    return Job(hook, identity, handle.application_id, place.log_folders)


def _has_checkpoint(job: Job) -> bool:
    status = job.hook.job_status(job.identity, job.id)
    return status is not None and status.checkpoint_step == 7
