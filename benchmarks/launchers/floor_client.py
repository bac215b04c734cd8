"""The least client of the floor: `python floor_client.py RESOURCEMANAGER USER SCHEDULER RESOURCES`.

``RESOURCES`` are the local resources of the master, as YARN's REST interface has them, in JSON.
"""

from __future__ import annotations

import http.client
import json
import shlex
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

POLL = 0.1  # seconds
LOGS = "1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"


class Floor:
    def __init__(self, address: str, user: str, scheduler: str, resources: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        self.user = f"user.name={user}"
        self.scheduler = scheduler
        self.resources = json.loads(resources)
        self.requests: Counter[str] = Counter()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        kind = f"ResourceManager {method} /ws/v1/cluster/apps{'/ID' if path.startswith('/application_') else path}"
        self.requests[kind] += 1
        content = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        self.connection.request(method, f"/ws/v1/cluster/apps{path}?{self.user}", content, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text) if text else None

    def run(self, order: dict[str, Any]) -> None:
        began = time.time()
        application_id = self.ask("POST", "/new-application")["application-id"]
        task = f"exec {shlex.join(order['words'])}"
        words = ["tony", self.scheduler, str(order["tasks"]), str(order["memory"]), task]
        container = {
            "local-resources": {"entry": self.resources},
            "commands": {"command": f"exec python3 -I floor_master.py {shlex.join(words)} {LOGS}"},
        }
        context = {
            "application-id": application_id,
            "application-name": "floor",
            "am-container-spec": container,
            "max-app-attempts": 1,
            "resource": {"memory": order["master_memory"], "vCores": 1},
        }
        self.ask("POST", "", context)
        submitted = time.time()
        told = {"application_id": application_id, "began": began, "submitted": submitted}
        tell({**told, "requests": self.requests})
        self.requests.clear()
        while True:
            app = self.ask("GET", f"/{application_id}")["app"]
            if app["state"] in ("FINISHED", "FAILED", "KILLED"):
                break
            time.sleep(POLL)
        ended = time.time()
        assert app["finalStatus"] == "SUCCEEDED", app["diagnostics"]
        tell({"at": ended, "requests": self.requests})


def tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    tell({"ready": True})
    for line in sys.stdin:
        Floor(*sys.argv[1:]).run(json.loads(line))


main()
