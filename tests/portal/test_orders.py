"""Orders that users send to a real job through the portal's API: who may send them, and what is recorded."""

from __future__ import annotations

import json
from typing import Any

from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.cli.test_suspend import reached
from tests.hooks.jobs import SECONDS, ended
from tests.portal.conftest import As
from tests.waiting import until
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook

NAMES = ["checkpoint", "export", "suspend", "resume", "resize", "stop"]


class Orders:
    """The routes of one job for one user."""

    def __init__(self, client: As, user: str, job: TonyJob) -> None:
        self._client = client(user)
        self._path = f"/tony/api/jobs/{job.application_id}/actions"

    def offered(self) -> dict[str, Any]:
        answer = self._client.get(self._path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def send(self, name: str, **body: Any) -> list[str]:
        answer = self.try_to_send(name, **body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["lines"])

    def try_to_send(self, name: str, **body: Any) -> Any:
        return self._client.post(f"{self._path}/{name}", json={"token": self.offered()["token"] or "", **body})


def logged(job: TonyJob) -> list[tuple[str, str | None, str | None]]:
    """Event, user and details of each entry of the audit log about the job, oldest first."""
    with create_session() as session:
        found = session.scalars(select(Log).where(Log.event.startswith("tony_")).order_by(Log.id)).all()
        return [(log.event, log.owner, log.extra) for log in found if job.application_id in (log.extra or "")]


def events(job: TonyJob, name: str) -> list[str]:
    return [each["message"] for each in job.history().events if each["event"] == name]


def noted(job: TonyJob, name: str, text: str) -> None:
    until(lambda: any(text in each for each in events(job, name)), lambda: f"{text!r} in {events(job, name)}", SECONDS)


def test_a_user_who_may_edit_the_dag_acts_on_a_running_job(client: As, running_job: TonyJob, local: TonyHook) -> None:
    which, application_id = _of(running_job), running_job.application_id
    orders = Orders(client, "rita", running_job)
    offered = orders.offered()
    assert [each["name"] for each in offered["actions"]] == NAMES
    assert (offered["resizable"], offered["reason"], offered["missing"]) == ({"worker": [1, 2]}, None, [])
    stop = offered["actions"][-1]
    assert stop["command"] == f"airflow tony kill {application_id}"
    assert "with 2 of its retries left" in offered["retries"]

    assert orders.send("export")[0] == f"Requested an export of the model of {application_id}"
    noted(running_job, "export_requested", "requested by the Airflow user rita")
    assert orders.send("checkpoint") == [
        f"Requested a checkpoint of {application_id}",
        "Newest checkpoint so far: none",
    ]
    noted(running_job, "checkpoint_requested", "requested by the Airflow user rita")

    refused = orders.try_to_send("resize", tasks={"worker": 9})
    assert (refused.status_code, "9 is not between 1 and 2" in refused.json()["detail"]) == (409, True)
    assert orders.send("suspend")[0].startswith(f"{application_id} saves a checkpoint")
    reached(local, which, application_id, "SUSPENDED")
    assert orders.send("resize", tasks={"worker": 2}) == [
        f"{application_id} is suspended, and will have 2 workers when it is resumed"
    ]
    assert orders.send("resume") == [
        f"{application_id} requests its containers, and resumes from its newest checkpoint"
    ]
    reached(local, which, application_id, "RUNNING")
    assert orders.send("stop", grace=1)[0].startswith(f"{application_id} ends within ")
    assert "Killed by the Airflow user rita: requested on the job's page" in ended(local, application_id).diagnostics

    assert [(event, user) for event, user, _ in logged(running_job)] == [
        (f"tony_{name}", "rita") for name in ("export", "checkpoint", "resize", "suspend", "resize", "resume", "stop")
    ]
    details = json.loads(logged(running_job)[-1][2] or "")
    assert details == {"application_id": application_id, "grace": 1.0}


def test_a_user_who_may_only_read_the_dag_sends_no_order(client: As, running_job: TonyJob) -> None:
    orders = Orders(client, "peggy", running_job)
    offered = orders.offered()
    assert (offered["actions"], offered["token"]) == ([], None)
    assert "does not permit you to edit the DAG ordered" in offered["reason"]
    token = Orders(client, "rita", running_job).offered()["token"]
    for name in NAMES:
        assert orders.try_to_send(name, token=token).status_code == 403
    for user in ("bob", "carol", "erin"):  # may not even read the DAG
        assert client(user).get(f"/tony/api/jobs/{running_job.application_id}/actions").status_code == 404
    assert client(None).post(f"/tony/api/jobs/{running_job.application_id}/actions/stop", json={}).status_code == 401
    assert logged(running_job) == []


def test_an_order_needs_the_token_of_its_user_and_job(client: As, running_job: TonyJob) -> None:
    orders = Orders(client, "rita", running_job)
    of_saul = Orders(client, "saul", running_job).offered()["token"]
    for token in ("", "x", of_saul, orders.offered()["token"] + "x"):
        refused = orders.try_to_send("stop", token=token)
        assert (refused.status_code, "reload the page" in refused.json()["detail"]) == (403, True)
    assert orders.try_to_send("reboot").status_code == 404
    assert orders.try_to_send("stop", grace=-1).status_code == 422
    assert logged(running_job) == []


def test_an_order_to_a_job_that_has_ended_has_a_reason(client: As, running_job: TonyJob) -> None:
    orders = Orders(client, "rita", running_job)
    running_job.kill("seen")
    ended(running_job.hook, running_job.application_id)
    late = orders.try_to_send("suspend")
    assert (late.status_code, running_job.application_id in late.json()["detail"]) == (409, True)


def _of(job: TonyJob) -> Identity:
    assert job.identity is not None
    return job.identity
