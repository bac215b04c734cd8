"""What a person who may only press Trigger can ask for, when the author's DAG takes a value from the form."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from tests.airflow_dags import Run, run
from tests.operators.jobs import DAG_ID, job
from tests.shared_runtime import is_untouched
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.common.contract import SPECIFICATION_FILE
from tony_provider.runtime.storage.base import read_text

AUTHORS = "echo mine > $TONY_MODEL_DIR/whose"
EVIL = {
    "tasks": {
        "worker": {"command": "echo theirs > $TONY_MODEL_DIR/whose", "env": {"PYTHONPATH": "/tmp/mallory"}},
        "another": {"command": "true"},
    },
    "files": ["/etc/hostname"],
    "archives": ["/opt/mallory.zip"],
    "python_env": "hdfs:///user/mallory/env.tar.gz",
    "docker": {"image": "mallory/image"},
    "env": {"LD_PRELOAD": "./evil.so"},
    "hadoop": True,
    "framework": "mpi",
    "priority": 1,
}
PATHS = [
    *("tasks.worker.command", "tasks.worker.env.PYTHONPATH", "tasks.another", "files", "archives", "python_env"),
    *("docker.image", "env.LD_PRELOAD", "hadoop", "framework"),
]


def triggered(form: dict[str, Any], spec: Any = None, **arguments: Any) -> Run:
    """Run a DAG whose author takes ``overrides`` from the form, as a person fills it in."""
    with DAG(DAG_ID, schedule=None, params={"overrides": {}, "size": "", "script": ""}) as dag:
        given = {"overrides": "{{ params.overrides }}", **arguments}
        TonyTrainOperator(task_id="train", job=spec or job(AUTHORS), poll_interval=0.5, **given)
    return run(dag, run_conf=form)


def allows(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    """Have the connection say so."""
    connection = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])
    connection["extra"].update(extra)
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))


def nothing_is_left(hook: TonyHook) -> bool:
    return is_untouched(Path(hook.layout.root.removeprefix("file://")))


def test_a_form_sets_no_command_file_image_or_environment(local: TonyHook) -> None:
    """All at once; each of them alone in tests/runtime/parsing."""
    done = triggered({"overrides": EVIL})
    error = str(done.errors["train"])
    assert "10 problems" in error
    for path in PATHS:
        assert f"  {path}: may not be overridden. The key comes from this run's rendered `overrides`" in error
        assert f'allowed_overrides=["{path}"]' in error
    assert nothing_is_left(local)


def test_a_form_sets_sizes_and_what_the_author_lets_it(local: TonyHook) -> None:
    form = {"tasks": {"worker": {"instances": 2, "env": {"LR": "0.1; id"}}}, "name": "tuned"}
    spec = job('test "$TONY_WORLD_SIZE$LR" = "20.1; id"')
    done = triggered({"overrides": form}, spec, allowed_overrides=["tasks.*.env.LR"])
    assert done.state == "success", done.errors


def test_the_connection_has_the_last_word_on_overrides(local: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    allows(monkeypatch, allowed_overrides="tasks.*.instances, tasks.*.memory")
    form = {"priority": 1, "tasks": {"worker": {"command": "id", "instances": 1}}}
    done = triggered({"overrides": form}, allowed_overrides=["*"])
    error = str(done.errors["train"])
    assert "the connection does not allow this job" in error
    for words in ("priority", "tasks.worker.command", "'id'", "'tony_default'", "tasks.*.instances, tasks.*.memory"):
        assert words in error
    assert "tasks.worker.instances:" not in error
    assert nothing_is_left(local)


def test_a_file_that_a_template_names_lies_below_a_root_of_the_connection(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keytab = tmp_path / "worker.keytab"
    keytab.write_text("secret")
    spec = job("test -e worker.keytab", files=["{{ params.script }}", "train.sh"])
    allows(monkeypatch, file_roots=str(tmp_path / "scripts"), max_tasks=1, queues="none")
    spec["tasks"]["worker"]["instances"] = 2
    done = triggered({"script": str(keytab)}, spec, overrides=None, yarn_queue="etl")
    error = str(done.errors["train"])
    # With what else the connection does not allow, though another file is not there.
    for words in ("queue: etl is not", "tasks: 2 is more"):
        assert words in error
    assert nothing_is_left(local)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "link").symlink_to(keytab)
    spec = job("true", files=["{{ params.script }}"])
    done = triggered({"script": str(tmp_path / "scripts" / "link")}, spec, overrides=None)
    assert f"{keytab} is not allowed by the connection 'tony_default' (file_roots: {tmp_path}/scripts)" in str(
        done.errors["train"]
    )
    assert nothing_is_left(local)
    allows(monkeypatch, file_roots=str(tmp_path), queues="", max_tasks="")
    assert triggered({"script": str(keytab)}, job("test -e worker.keytab", files=["{{ params.script }}"])).errors == {}


def test_whom_a_template_names_is_one_of_the_connections_users(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    allows(monkeypatch, proxy_users="bob,ml-*")
    done = triggered({"script": "hdfs"}, overrides=None, proxy_user="{{ params.script }}")
    error = str(done.errors["train"])
    assert "proxy_user: hdfs is not allowed by the connection 'tony_default' (proxy_users: bob, ml-*)" in error
    assert nothing_is_left(local)


def test_a_job_without_a_lifetime_gets_the_connections(local: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    allows(monkeypatch, max_lifetime="2h")
    done = triggered({}, job("true"), overrides=None)
    assert done.state == "success", done.errors
    [written] = Path(local.layout.root.removeprefix("file://")).rglob(SPECIFICATION_FILE)
    assert re.search(r'"lifetime": *7200', written.read_text())
    done = triggered({"overrides": {"timeouts": {"lifetime": "1d"}}}, job("true"))
    assert "timeouts.lifetime: 86400 s is more than the connection" in str(done.errors["train"])


def test_a_preset_lies_under_the_job(local: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"env": {"A": "preset", "B": "preset"}, "tasks": {"worker": {"instances": 2}}}
    allows(monkeypatch, presets={"small": small, "large": {"priority": 3}})
    spec = job('test "$A$B$TONY_WORLD_SIZE" = jobpreset2', env={"A": "job"}, preset="{{ params.size }}")
    done = triggered({"size": "small"}, spec, overrides=None)
    assert done.state == "success", done.errors
    unknown = str(triggered({"size": "smal"}, spec, overrides=None).errors["train"])
    for words in ("preset:", "'smal'", "'tony_default'", "large, small", "did you mean small?"):
        assert words in unknown
    # What the form may name as preset is the author's to say.
    assert "preset: may not be overridden" in str(triggered({"overrides": {"preset": "large"}}).errors["train"])


HOSTILE = 'a b\'; touch $TONY_MODEL_DIR/theirs; echo "$(touch $TONY_MODEL_DIR/theirs)" `id` \\ * ${HOME}\n& exit 3 #'


def test_whatever_a_form_says_stays_one_word_of_a_command(local: TonyHook) -> None:
    command = (
        "set -- {{ macros.tony.quote(params.script) }}\n"
        'test $# = 1 && printf %s "$1" > $TONY_MODEL_DIR/said && ls $TONY_MODEL_DIR > $TONY_MODEL_DIR/all'
    )
    done = triggered({"script": HOSTILE}, job(command), overrides=None)
    assert done.state == "success", done.errors
    model = done.results["train"]["model_dir"]
    assert read_text(local.storage(), f"{model}/said") == HOSTILE
    assert read_text(local.storage(), f"{model}/all").split() == ["all", "said"]


def test_whatever_a_form_says_stays_one_value_of_a_job_that_is_text(local: TonyHook) -> None:
    """Without a filter such as tojson: the text is parsed before its templates are rendered."""
    text = "framework: standalone\nname: '{{ params.script }}'\ntasks: {worker: {command: 'true'}}\n"
    done = triggered({"script": "x\nfiles: [/etc/hostname]"}, text, overrides=None)
    error = str(done.errors["train"])
    assert "one problem" in error
    assert "name: must be 1 to" in error
    assert nothing_is_left(local)


def test_a_template_that_would_be_filled_in_before_the_text_is_read_is_refused(local: TonyHook) -> None:
    text = "framework: standalone\nname: {{ params.script | tojson }}\ntasks: {worker: {command: 'true'}}\n"
    error = str(triggered({"script": "x"}, text, overrides=None).errors["train"])
    assert 'in quotes and without tojson: "{{ params.workers }}"' in error


def test_whom_a_form_names_is_a_user(local: TonyHook) -> None:
    for value in ("root, bob", "../bob", "{{ params.size }}", "bob\nroot"):
        error = str(triggered({"script": value}, overrides=None, proxy_user="{{ params.script }}").errors["train"])
        assert "proxy_user: a user's name has letters, digits and" in error
