"""skein's own client, in the Python that has it: `python skein_client.py`. See base.ClientProcess for what it reads."""

from __future__ import annotations

import json
import shlex
import sys
import time
from typing import Any

import skein

ENDED = ("FINISHED", "FAILED", "KILLED")
POLL = 0.1  # seconds


def tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    with skein.Client() as client:
        tell({"ready": True})
        for line in sys.stdin:
            run(client, json.loads(line))


def run(client: skein.Client, order: dict[str, Any]) -> None:
    began = time.time()
    worker = skein.Service(
        instances=order["tasks"],
        resources=skein.Resources(memory=f"{order['memory']} MiB", vcores=1),
        script=shlex.join(order["words"]),
        max_restarts=order["restarts"],
    )
    attempts = 2 if order["restarts"] else 1
    spec = skein.ApplicationSpec(name="trivial", services={"worker": worker}, max_attempts=attempts)
    application_id = client.submit(spec)
    tell({"application_id": application_id, "began": began, "submitted": time.time()})
    if not order["watched"]:
        return
    while True:
        report = client.application_report(application_id)
        if str(report.state).upper() in ENDED:
            break
        time.sleep(POLL)
    ended = time.time()
    assert str(report.final_status).upper() == "SUCCEEDED", report.diagnostics
    tell({"at": ended})


main()
