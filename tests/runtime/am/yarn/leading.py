"""Applications with a ``led_master`` on a real cluster: told what to do, and asked what they saw."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tests
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.processes import Process, with_environment
from tests.waiting import until

REPOSITORY = Path(tests.__file__).parents[1]
USER = "alice"
MASTER_MB = 128
ENDED = ("FINISHED", "FAILED", "KILLED")
_SHELLS = ("bash", "sh", "dash")


@dataclass
class Led:
    """``attempt`` is the one that is told and asked."""

    cluster: HadoopCluster
    id: str
    folder: Path
    attempt: int = 1

    @classmethod
    def submit(cls, cluster: HadoopCluster, folder: Path, *, queue: str = "default", attempts: int = 3) -> Led:
        """Returns once its first attempt has registered."""
        client, apps = cluster.client(USER), f"{cluster.services.active_resourcemanager()}/ws/v1/cluster/apps"
        application_id = json.loads(client.request("POST", f"{apps}/new-application", b""))["application-id"]
        folder = folder / application_id
        folder.mkdir()
        command = (
            f"exec {sys.executable} -m tests.runtime.am.yarn.led_master {folder} {','.join(cluster.state.scheduler)} "
            + " ".join(f"{node}={rack}" for node, rack in racks_of(cluster).items())
        )
        asked = {
            "application-id": application_id,
            "application-name": "led",
            "application-type": "TONY",
            "queue": queue,
            "max-app-attempts": attempts,
            "keep-containers-across-application-attempts": True,
            "resource": {"memory": MASTER_MB, "vCores": 1},
            "am-container-spec": {
                "commands": {"command": f"{command} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"},
                "environment": {"entry": [{"key": "PYTHONPATH", "value": str(REPOSITORY)}]},
            },
        }
        client.request("POST", apps, json.dumps(asked).encode(), "application/json")
        led = cls(cluster, application_id, folder)
        led.event("Registered")
        return led

    def tell(self, order: str, **values: Any) -> None:
        with (self.folder / f"orders-{self.attempt}").open("a") as file:
            file.write(json.dumps({"order": order, **values}) + "\n")

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What the attempt has seen of one kind."""
        path = self.folder / f"events-{self.attempt}"
        text = path.read_text() if path.exists() else ""
        # The last line may be under way.
        found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in found if event["event"] == kind]

    def event(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """At least ``count`` of one kind."""
        return until(
            lambda: found if len(found := self.events(kind)) >= count else None,
            lambda: f"{count} {kind} of attempt {self.attempt}: {self.events(kind)}\n{self.logs()}",
        )

    def ask(self, keys: list[int], memory: int, **more: Any) -> list[dict[str, Any]]:
        """``tell`` it to ask for containers, and wait until all of them run; they come in the order of the keys."""
        self.tell("request", keys=keys, memory=memory, **more)
        until(lambda: set(keys) <= {event["key"] for event in self.events("Allocated")}, self.logs)
        by_key = {event["key"]: event["container"] for event in self.events("Allocated")}
        made = [by_key[key] for key in keys]
        until(lambda: {each["id"] for each in made} <= self.launched(), self.logs)
        return made

    def launched(self) -> set[str]:
        return {str(event["container_id"]) for event in self.events("Launched")}

    def launched_first(self, count: int) -> list[str]:
        return [str(event["container_id"]) for event in self.event("Launched", count)[:count]]

    def next_attempt(self) -> dict[str, Any]:
        """Goes over to it once it has registered; its registration."""
        self.attempt += 1
        return self.event("Registered")[0]

    def processes(self) -> dict[str, Process]:
        """Return the programs of its live containers, the master's own included, but not the shells around them."""
        found: dict[str, Process] = {}
        for process in sorted(with_environment(b"CONTAINER_ID=container_"), key=lambda each: (each.started, each.pid)):
            environment = Path(f"/proc/{process.pid}/environ")
            try:
                if Path(f"/proc/{process.pid}/comm").read_text().strip() in _SHELLS:
                    continue
                variables = dict(line.partition("=")[::2] for line in environment.read_text().split("\0"))
            except (FileNotFoundError, ProcessLookupError):
                continue
            container = variables.get("CONTAINER_ID", "")  # of what is just becoming another program: nothing
            if self.id.partition("_")[2] in container:
                found[container] = process
        return found

    def master(self) -> tuple[str, Process]:
        """The container and the process of the current attempt."""
        base = self.cluster.services.active_resourcemanager()
        url = f"{base}/ws/v1/cluster/apps/{self.id}/appattempts"
        attempts = self.cluster.client(USER).get_json(url)["appAttempts"]["appAttempt"]
        container = max(attempts, key=lambda attempt: int(attempt["id"]))["containerId"]
        return container, self.processes()[container]

    def running(self) -> set[str]:
        """The containers of the current attempt that run as far as the ResourceManager knows: nodes tell it later."""
        base = self.cluster.services.active_resourcemanager()
        attempt = f"appattempt_{self.id.partition('_')[2]}_{self.attempt:06}"
        url = f"{base}/ws/v1/cluster/apps/{self.id}/appattempts/{attempt}/containers"
        found = self.cluster.client(USER).get_json(url)["container"]
        return {each["containerId"] for each in found if each["containerState"] == "RUNNING"}

    def state(self) -> str:
        base = self.cluster.services.active_resourcemanager()
        app = self.cluster.client(USER).get_json(f"{base}/ws/v1/cluster/apps/{self.id}")["app"]
        return str(app["state"])

    def end(self) -> None:
        """As its own end, if it still can; and nothing runs on."""
        if self.state() not in ENDED:
            self.tell("finish")
        until(lambda: self.state() in ENDED, self.logs)
        until(lambda: not self.processes(), lambda: f"nothing runs on: {self.processes()}")

    def kill(self) -> None:
        self.cluster.kill_application(self.id, USER)
        until(lambda: self.state() in ENDED, self.logs)

    def logs(self) -> str:
        texts = [
            f"== {file}\n{file.read_text(errors='replace')[-3000:]}"
            for folder in self.cluster.container_logs(self.id)
            for file in sorted(folder.glob("stderr"))
        ]
        return "\n".join([*texts, *(f"== {each}\n{each.read_text()}" for each in self.folder.glob("events-*"))])


def racks_of(cluster: HadoopCluster) -> dict[str, str]:
    """The racks of the nodes of a cluster that has several, by their hosts."""
    hosts = [node.host for node in cluster.state.addresses.nodemanagers]
    return dict(zip(hosts, cluster.settings.racks, strict=False))
