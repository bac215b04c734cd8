"""Jobs of other systems, of the shape of their public examples, imported and run to their end on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.ports import free_ports
from tests.importers.jobs import imported, xml
from tests.jobs.job import Job
from tests.jobs.places import LocalPlace
from tony_provider.importers.key_table import ImportedJob

PROGRAM = """
import json, os, sys
cluster = json.loads(os.environ["CLUSTER_SPEC"])  # as TonY calls it
print(json.dumps({"steps": sys.argv[1:], "workers": len(cluster["worker"]), "me": int(os.environ["TASK_INDEX"])}))
"""
CLIENT = ("java", "-cp", "tony.jar", "com.linkedin.tony.cli.ClusterSubmitter")
SKEIN = """
name: hello_world
services:
  first: {resources: {vcores: 1, memory: 128}, script: echo first}
  my-service:
    instances: 2
    depends: [first]
    resources: {vcores: 1, memory: 128}
    files: {payload.txt: payload.txt}
    commands: [echo "Sleeping", cat payload.txt, echo "Stopping service"]
"""
SERVICE = {
    "name": "sleeper-service",
    "version": "1.0",
    "components": [
        {
            "name": "listener",
            "number_of_containers": 1,
            "launch_command": f"{sys.executable} -m http.server --bind 127.0.0.1 $TONY_PORT",
            "readiness_check": {"type": "PORT", "properties": {"port": "0"}},
            "resource": {"cpus": 1, "memory": "256"},
        },
        {
            "name": "sleeper",
            "number_of_containers": 2,
            "dependencies": ["listener"],
            "launch_command": "sleep 1",
            "resource": {"cpus": 1, "memory": "256"},
            "restart_policy": "NEVER",
        },
    ],
}


def run(place: LocalPlace, found: ImportedJob, folder: Path, **over: Any) -> Job:
    job = place.run({**found.job, **over}, search_path=[folder])
    job.succeeded()
    return job


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def said_by(job: Job, tasks: Sequence[str]) -> list[Any]:
    return [job.said(task) for task in tasks]


def test_a_call_of_tonys_client(local: LocalPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of its mnist example, with another program."""
    configuration = xml(
        tony__worker__instances=2, tony__worker__memory="256m", tony__application__security__enabled="false"
    )
    monkeypatch.chdir(written(tmp_path, {"src/mnist_distributed.py": PROGRAM, "tony-test.xml": configuration}))
    options = ["--src_dir=src", "--executes=mnist_distributed.py", "--task_params=--steps 1000"]
    found = imported(*CLIENT, *options, "--conf_file=tony-test.xml", f"--python_binary_path={sys.executable}")
    job = run(local, found, tmp_path)
    said = said_by(job, ["worker:0", "worker:1"])
    assert [(each["steps"], each["workers"], each["me"]) for each in said] == [
        (["--steps", "1000"], 2, 0),
        (["--steps", "1000"], 2, 1),
    ]


def test_a_specification_of_skein(local: LocalPlace, tmp_path: Path) -> None:
    written(tmp_path, {"spec.yaml": SKEIN, "payload.txt": "the payload\n"})
    job = run(local, imported(str(tmp_path / "spec.yaml")), tmp_path)
    for task in ("my_service:0", "my_service:1"):
        said = [line for line in job.log(task).splitlines() if line and not line.startswith("[tony]")]
        assert said == ["Sleeping", "the payload", "Stopping service"]


@pytest.mark.long  # that of Skein is another one of the framework standalone
def test_a_service_of_yarn(local: LocalPlace, tmp_path: Path) -> None:
    """A sleeper that waits for a listener to be ready; the listener is made a side-car, as the list says."""
    written(tmp_path, {"service.json": json.dumps(SERVICE)})
    found = imported(str(tmp_path / "service.json"), given={"tasks": {"listener": {"role": "sidecar"}}})
    job = run(local, found, tmp_path)
    assert {task.name: task.state.value for task in job.status().tasks if task.name.startswith("sleeper")} == {
        "sleeper:0": "SUCCEEDED",
        "sleeper:1": "SUCCEEDED",
    }


@pytest.mark.long  # that of TonY is another gang
def test_a_call_of_torchx(local: LocalPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import json, os, sys\nprint(json.dumps([os.environ[n] for n in ('RANK', 'WORLD_SIZE')] + sys.argv[1:]))\n"
    )
    monkeypatch.chdir(written(tmp_path, {"main.py": program}))
    call = ["torchx", "run", "-s", "local_cwd", "dist.ddp", "-j", "2x2", "--script", "main.py", "--memMB", "256"]
    found = imported(*call, "--", "--lr", "0.1")
    job = run(local, found, tmp_path, env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"})
    said = [line for task in ("main:0", "main:1") for line in job.log(task).splitlines() if '"--lr"' in line]
    ranks = [json.loads(line.partition("] ")[2]) for line in said]
    assert sorted(ranks) == [[str(rank), "4", "--lr", "0.1"] for rank in range(4)]


@pytest.mark.long  # that of TonY is another one of TensorFlow
def test_a_script_of_hbox(local: LocalPlace, tmp_path: Path) -> None:
    """What the program writes into ./model, as ever, is in the output."""
    program = "mkdir -p model && echo weights > model/weights-$TONY_TASK_INDEX.txt\n"
    script = (
        "$HBOX_HOME/bin/hbox-submit \\\n --app-type tensorflow --app-name demo \\\n --files demo.sh \\\n"
        f" --output file://{tmp_path}/published#model \\\n --worker-num 2 --worker-memory 256M \\\n sh demo.sh\n"
    )
    written(tmp_path, {"demo.sh": program, "run.sh": script})
    run(local, imported(str(tmp_path / "run.sh")), tmp_path)
    found = sorted(path.name for path in (tmp_path / "published").rglob("weights-*"))
    assert found == ["weights-0.txt", "weights-1.txt"]


# -- what their other examples are like --------------------------------------------------------------------------------

# As TonY's example with Ray: two types, each with its own command for bash and its own files.
TWO_TYPES = {
    "tony.head.instances": 1,
    "tony.head.memory": "256m",
    "tony.chief.name": "head",
    "tony.head.resources": "head.env::settings,shared.txt",
    "tony.head.command": "source ./settings; cat shared.txt; echo $WHO",
    "tony.worker.instances": 2,
    "tony.worker.memory": "256m",
    "tony.worker.resources": "worker.env::settings,shared.txt",
    "tony.worker.command": "source ./settings; cat shared.txt; echo $WHO",
}
# As that of its documents: a notebook whose end is the application's, beside a scheduler and its workers.
DRIVEN = """
name: driven
master:
  resources: {vcores: 1, memory: 256}
  files: {driver.sh: driver.sh, data.csv: data.csv}
  script: |
    source ./driver.sh
services:
  the.scheduler:
    resources: {vcores: 1, memory: 128}
    script: sleep 1000
  the.worker:
    instances: 2
    max_restarts: 2
    depends: [the.scheduler]
    resources: {vcores: 1, memory: 128}
    script: sleep 1000
"""
# As the web servers of Hadoop's documents, of which one asks the others, without their images.
WEB = {
    "name": "web-service",
    "lifetime": "3600",
    "components": [
        {
            "name": "httpd",
            "number_of_containers": 1,
            "launch_command": f"source ./resources/port && {sys.executable} -m http.server --bind 127.0.0.1 $WEB_PORT",
            "readiness_check": {"type": "PORT", "properties": {"port": "WEB_PORT"}},
            "resource": {"cpus": 1, "memory": "256"},
            "configuration": {"files": [{"type": "STATIC", "dest_file": "port", "src_file": "PORT_FILE"}]},
        },
        {
            "name": "httpd-proxy",
            "dependencies": ["httpd"],
            "launch_command": f"{sys.executable} ask.py WEB_PORT",
            "resource": {"cpus": 1, "memory": "256"},
            "restart_policy": "NEVER",
        },
    ],
}
ASKING = (
    "import sys, urllib.request\nprint(urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/', timeout=10).status)\n"
)


def lines_of(job: Job, task: str) -> list[str]:
    return [line for line in job.log(task).splitlines() if line and not line.startswith("[tony]")]


def test_each_type_of_tonys_has_its_command_for_bash_and_its_files(local: LocalPlace, tmp_path: Path) -> None:
    texts = {"head.env": "WHO=head\n", "worker.env": "WHO=worker\n", "shared.txt": "shared\n"}
    written(tmp_path, {**texts, "tony.xml": xml(**TWO_TYPES)})
    found = imported(str(tmp_path / "tony.xml"))
    assert found.job["files"] == ["shared.txt"]
    job = run(local, found, tmp_path)
    assert [lines_of(job, task) for task in ("head:0", "worker:0", "worker:1")] == [
        ["shared", "head"],
        ["shared", "worker"],
        ["shared", "worker"],
    ]


@pytest.mark.long  # that of TonY is another one with files of its types
def test_a_driver_of_skeins_ends_the_job(local: LocalPlace, tmp_path: Path) -> None:
    written(tmp_path, {"spec.yaml": DRIVEN, "driver.sh": "cat data.csv\n", "data.csv": "1,2\n"})
    job = run(local, imported(str(tmp_path / "spec.yaml")), tmp_path)
    assert lines_of(job, "chief:0") == ["1,2"]


@pytest.mark.long  # the sleeper is another service of YARN's
def test_a_service_that_asks_another_one(local: LocalPlace, tmp_path: Path) -> None:
    (free_port,) = free_ports(1)
    text = json.dumps(WEB).replace("WEB_PORT", str(free_port)).replace(f"${free_port}", "$WEB_PORT")
    text = text.replace("PORT_FILE", f"file://{tmp_path}/port")
    written(tmp_path, {"service.json": text, "port": f"WEB_PORT={free_port}\n", "ask.py": ASKING})
    found = imported(str(tmp_path / "service.json"), given={"tasks": {"httpd": {"role": "sidecar"}}})
    job = run(local, found, tmp_path, files=["ask.py"])
    assert lines_of(job, "httpd_proxy:0") == ["200"]


@pytest.mark.long  # that with TensorFlow is another one of Hbox
def test_servers_of_hbox_that_are_workers_here(local: LocalPlace, tmp_path: Path) -> None:
    """As its example with xflow: servers never end, and the job does when the workers have."""
    program = 'if [ "$TF_ROLE" = ps ]; then sleep 1000; fi\necho "$TF_ROLE $TF_INDEX"\n'
    script = (
        "$HBOX_HOME/bin/hbox-submit \\\n --app-type xflow --worker-memory 256m --worker-num 2 \\\n"
        " --ps-memory 256m --ps-num 1 --files demo.sh \\\n --app-name xflow \\\n sh demo.sh\n"
    )
    written(tmp_path, {"demo.sh": program, "run.sh": script})
    job = run(local, imported(str(tmp_path / "run.sh")), tmp_path)
    assert [lines_of(job, task) for task in ("worker:0", "worker:1")] == [["worker 0"], ["worker 1"]]


@pytest.mark.long  # that of TonY is another one with a chief
def test_a_program_of_tf_yarn(local: LocalPlace, tmp_path: Path) -> None:
    """As its examples: a chief, an evaluator beside it, and modules that come along."""
    program = """
import os
import models
from tf_yarn.tensorflow import TaskSpec, run_on_yarn
MIB = 2**8
run_on_yarn(
    experiment_fn,
    task_specs={"chief": TaskSpec(memory=MIB, vcores=1), "evaluator": TaskSpec(memory=MIB, vcores=1)},
    files={**editable_requirements, os.path.basename(models.__file__): models.__file__},
)
"""
    train = "import json, os, models\nprint(models.NAME, json.loads(os.environ['TF_CONFIG'])['task']['type'])\n"
    written(tmp_path, {"run.py": program, "models.py": "NAME = 'wine'\n", "train.py": train})
    found = imported(str(tmp_path / "run.py"), command=f"{sys.executable} train.py")
    job = run(local, found, tmp_path, files=[*found.job["files"], "train.py"])
    assert lines_of(job, "chief:0") == ["wine chief"]


@pytest.mark.long  # dist.ddp is another component
def test_an_echo_of_torchx(local: LocalPlace, tmp_path: Path) -> None:
    job = run(local, imported("torchx", "run", "utils.echo", "--msg", "hello :)", "--num_replicas", "2"), tmp_path)
    assert [lines_of(job, task) for task in ("echo:0", "echo:1")] == [["hello :)"], ["hello :)"]]
