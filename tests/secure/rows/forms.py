"""Somebody who may press Trigger, and no more, in the Airflow that runs alice's trainings."""

from __future__ import annotations

import json
import os

from tests import airflow_home
from tests.operators.test_asked_for import AUTHORS, EVIL, triggered
from tests.secure.field import Field
from tests.secure.row import row
from tony_provider.runtime.storage.base import read_text

NAME = "from-a-form"


@row(
    "form-overrides",
    "set command, files (a worker's keytab), environment and image by a trigger form",
    by="who may trigger",
)
def form_overrides(field: Field) -> str:
    if not (airflow_home.HOME / "airflow.db").exists():
        airflow_home.migrate()
    os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps(field.place.connection)
    field.at_end(_forget)
    keytab = str(field.hadoop.layout.keytab("airflow"))
    evil = {key: value for key, value in EVIL.items() if key != "priority"} | {"files": [keytab]}  # a form may set that
    spec = {
        "name": NAME,
        "framework": "standalone",
        "am": {"memory": "256MiB"},
        "tasks": {"worker": {"memory": "128MiB", "command": AUTHORS}},
    }
    for key, value in evil.items():
        done = triggered({"overrides": {key: value}}, spec)
        error = str(done.errors.get("train", f"nothing: the run is {done.state}"))
        field.expect(key in error and "allowed_overrides" in error, f"{key}: {error[:200]}")
    started = _applications(field)
    field.expect(started == [], f"applications were started: {started}")
    return f"{len(evil)} forms, each refused by the name of its key before anything was started"


@row(
    "form-job-text",
    "add files (a worker's keytab), environment and image to a job that is text, by a line break in a value of a form",
    by="who may trigger",
)
def form_job_text(field: Field) -> str:
    if not (airflow_home.HOME / "airflow.db").exists():
        airflow_home.migrate()
    os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps(field.place.connection)
    field.at_end(_forget)
    keytab = field.hadoop.layout.keytab("airflow")
    evil = f"x\nfiles: [{keytab}]\nenv: {{LD_PRELOAD: ./evil.so}}\ndocker: {{image: mallory/image}}\n#"
    command = f'test ! -e {keytab.name} && test -z "$LD_PRELOAD" && printf %s "$SAID" > $TONY_MODEL_DIR/said'
    spec = f"""
name: {NAME}
framework: standalone
am: {{memory: 256MiB}}
env: {{SAID: "{{{{ params.script }}}}"}}
tasks: {{worker: {{memory: 128MiB, command: '{command}'}}}}
"""
    done = triggered({"script": evil}, spec, overrides=None)
    field.expect(done.state == "success", f"the run is {done.state}: {done.errors}")
    if done.state == "success":
        said = read_text(field.place.hook().storage(), f"{done.results['train']['model_dir']}/said")
        field.expect(said == evil, f"the program found {said!r}")
    return "the value arrived whole, in the one variable that its template stands in; the job had no other key"


def _forget() -> None:
    del os.environ["AIRFLOW_CONN_TONY_DEFAULT"]


def _applications(field: Field) -> list[str]:
    url = f"{field.hadoop.rm_webapp[0]}/ws/v1/cluster/apps"
    found = field.hadoop.client("alice").get_json(url, user="alice")["apps"]
    return [each["id"] for each in (found or {}).get("app", []) if each["name"] == NAME]
