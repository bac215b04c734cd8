"""Runs one of ``masters`` on a real cluster, submitted over REST as an ordinary user."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tests
from tests.hadoop.client import Client
from tests.hadoop.cluster import HadoopCluster

DEADLINE_SECONDS = 120
POLL_SECONDS = 0.2
PROTECTIONS = ("auth-conf", "auth-int", "auth")
REPOSITORY = Path(tests.__file__).parents[1]
USER = "alice"


@dataclass
class Submitted:
    cluster: HadoopCluster
    client: Client
    application_id: str
    report: Path

    async def state(self) -> dict[str, Any]:
        for base in await asyncio.to_thread(self._active):
            url = f"{base}/ws/v1/cluster/apps/{self.application_id}"
            app: dict[str, Any] = (await asyncio.to_thread(self.client.get_json, url))["app"]
            return app
        raise AssertionError("no ResourceManager is active")

    async def ended(self) -> dict[str, Any]:
        """The ResourceManager's last word; the logs come with the failure when there is none in time."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while True:
                    app = await self.state()
                    if app["state"] in ("FINISHED", "FAILED", "KILLED"):
                        return app
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{self.application_id} has not ended: {app}\n{self.logs()}") from None

    async def seen(self) -> dict[str, Any]:
        """What the master reported, after it succeeded."""
        app = await self.ended()
        assert (app["state"], app["finalStatus"]) == ("FINISHED", "SUCCEEDED"), f"{app['diagnostics']}\n{self.logs()}"
        report: dict[str, Any] = json.loads(self.report.read_text())
        return report

    async def running(self) -> None:
        """Waits until the master says that its container runs."""
        mark = self.report.with_name(self.report.name + ".running")
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not mark.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(POLL_SECONDS)

    def logs(self) -> str:
        return "\n".join(
            f"== {file}\n{file.read_text(errors='replace')[-4000:]}"
            for folder in self.cluster.container_logs(self.application_id)
            for file in sorted(folder.glob("std*"))
        )

    def _active(self) -> list[str]:
        base = self.cluster.services.active_resourcemanager()
        return [base] if base else []


async def submit(
    cluster: HadoopCluster,
    scenario: str,
    folder: Path,
    *,
    protection: tuple[str, ...] = PROTECTIONS,
    files: tuple[str, ...] = (),
) -> Submitted:
    """``files`` go to the containers; each as ``URI,size,modification time``."""
    client = cluster.client(USER)
    base = await asyncio.to_thread(cluster.services.active_resourcemanager)
    made = json.loads(
        await asyncio.to_thread(client.request, "POST", f"{base}/ws/v1/cluster/apps/new-application", b"")
    )
    report = folder / f"{made['application-id']}.json"
    command = [
        "exec",
        sys.executable,
        "-m",
        "tests.runtime.hadoop.masters",
        scenario,
        f"--report={report}",
        f"--scheduler={','.join(cluster.state.scheduler)}",
        f"--protection={','.join(protection)}",
        *(f"--file={file}" for file in files),
        "1><LOG_DIR>/stdout",
        "2><LOG_DIR>/stderr",
    ]
    submission = {
        "application-id": made["application-id"],
        "application-name": f"hadoop client: {scenario}",
        "application-type": "TONY",
        "max-app-attempts": 1,
        "resource": {"memory": 128, "vCores": 1},
        "am-container-spec": {
            "commands": {"command": " ".join(command)},
            "environment": {"entry": [{"key": "PYTHONPATH", "value": str(REPOSITORY)}]},
            "credentials": {"secrets": {"entry": [{"key": "job", "value": base64.b64encode(b"of this job").decode()}]}},
        },
    }
    body = json.dumps(submission).encode()
    await asyncio.to_thread(client.request, "POST", f"{base}/ws/v1/cluster/apps", body, "application/json")
    return Submitted(cluster, client, made["application-id"], report)
