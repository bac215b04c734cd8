"""Hbox: its submit command, typed or in a shell script, becomes a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.jobs import imported, imported_text, why
from tony_provider.importers.key_table import NotImportable
from tony_provider.runtime.jobspec.container_content import image_of, image_of_master
from tony_provider.runtime.parsing.parse import parse_job

SCRIPT = r"""#!/bin/sh
# don't run it twice
$HBOX_HOME/bin/hbox-submit \
   --app-type "tensorflow" \
   --app-name "tf-demo" \
   --input /data/clicks#data \
   --input hdfs://other/words,/data/more#Words \
   --output /models/clicks#model \
   --files demo.py,deal.py#dealing.py \
   --cacheFile /data/vocab.txt#vocab --cacheArchive /envs/x.tgz#x \
   --worker-memory 10G --worker-num 3 --worker-cores 3 --worker-gpus 1 \
   --ps-memory 2G --ps-num 1 --ps-cores 2 \
   --tf-evaluator true --evaluatorworker-memory 4G \
   --driver-memory 1G \
   --board-enable true \
   --priority HIGH --jars a.jar \
   --queue default \
   --conf hbox.container.env.PYTHONPATH=x/python \
   --conf hbox.app.max.attempts=3 \
   --conf hbox.reserve.port.begin=21000 --conf hbox.reserve.port.end=22000 \
   --conf hbox.job.exec.timeout=3600000 \
   --conf hbox.nothing.like.it=1 \
   python demo.py --data_path=./data "--title=two words"
"""


def test_a_script_becomes_a_job(tmp_path: Path) -> None:
    found = imported_text(tmp_path, "run.sh", SCRIPT)
    assert found.system == "Hbox"
    command = "python demo.py --data_path=./data '--title=two words'"
    linked = f'ln -sfn "$TONY_OUTPUT_MODEL" model && {command}'
    size = {"vcores": 3, "gpus": 1}
    assert found.job == {
        "framework": "tensorflow",
        "name": "tf-demo",
        "queue": "default",
        "files": ["demo.py", "deal.py::dealing.py", "hdfs:///data/vocab.txt::vocab"],
        "archives": ["hdfs:///envs/x.tgz::x"],
        "am": {"memory": "1G"},
        "tensorboard": True,
        "inputs": {
            "data": {"paths": ["hdfs:///data/clicks"]},
            "words": {"paths": ["hdfs://other/words", "hdfs:///data/more"]},
        },
        "outputs": {"model": {"path": "hdfs:///models/clicks"}},
        "env": {"PYTHONPATH": "x/python"},
        "timeouts": {"lifetime": "3600s"},
        "port_range": "21000-22000",
        "tasks": {
            "worker": {"instances": 2, "memory": "10G", **size, "command": linked},
            "ps": {"instances": 1, "memory": "2G", "vcores": 2, "command": command},
            "evaluator": {"memory": "4G", **size, "command": command},
        },
    }
    assert found.arguments == {"retries": 2}
    assert "TONY_INPUT_DATA" in why(found, "input")
    assert "a number" in why(found, "priority")
    assert "JVM" in why(found, "jars")
    assert "unknown key" in why(found, "--conf hbox.nothing.like.it")


def test_a_typed_call_of_xlearning_is_the_same() -> None:
    given = ["--app-type", "DISTTORCH", "--worker-num", "2", "--launch-cmd", "python train.py --lr 0.1"]
    found = imported("/opt/xlearning/bin/xl-submit", *given, "--conf", "xlearning.worker.memory=3G", "--amMemory", "1g")
    assert found.job == {
        "framework": "pytorch",
        "am": {"memory": "1g"},
        "tasks": {"worker": {"instances": 2, "memory": "3G", "command": "python train.py --lr 0.1"}},
    }


def test_what_mpirun_starts_is_the_chiefs(tmp_path: Path) -> None:
    found = imported(
        "hbox-submit", "--app-type", "mpi", "--worker-num", "3", "--worker-cores", "2", "--files", "demo", "./demo"
    )
    assert found.job["framework"] == "mpi"
    assert found.job["tasks"] == {
        "chief": {"memory": 1024, "vcores": 2, "command": "mpirun tony-here ./demo"},
        "worker": {"instances": 2, "memory": 1024, "vcores": 2},
    }


def test_one_process_of_mpi_has_no_workers() -> None:
    found = imported("hbox-submit", "--app-type", "mpi", "--worker-num", "1", "--worker-memory", "3G", "./demo")
    assert found.job["tasks"] == {"chief": {"memory": "3G", "command": "mpirun tony-here ./demo"}}


def test_servers_are_only_where_hbox_has_them() -> None:
    found = imported("hbox-submit", "--app-type", "horovod", "--ps-num", "2", "--ps-memory", "1G", "python", "train.py")
    assert set(found.job["tasks"]) == {"worker"}


def test_servers_of_others_than_tensorflow_and_mxnet_are_workers_that_serve() -> None:
    found = imported("hbox-submit", "--app-type", "xflow", "--worker-num", "2", "--ps-num", "2", "sh", "demo.sh")
    job = parse_job(found.job)
    assert (job.framework, job.tasks["ps"].decides, job.role("ps").value) == ("generic", False, "worker")


def test_a_worker_of_mxnet_without_servers_is_by_itself() -> None:
    assert imported("xl-submit", "--app-type", "mxnet", "python", "demo.py").job["framework"] == "standalone"


def test_another_kind_is_standalone() -> None:
    found = imported("hbox-submit", "--app-type", "caffe", "--worker-num", "2", "sh", "run.sh")
    assert parse_job(found.job).framework == "standalone"
    assert "tolerated_failures" in why(found, "app-type")


def test_a_script_with_several_calls_is_refused(tmp_path: Path) -> None:
    call = "hbox-submit --app-type mpi --worker-num 2 ./demo"
    with pytest.raises(NotImportable, match="contains 2 calls of the client"):
        imported_text(tmp_path, "run.sh", f"{call}\n{call} &\n")
    found = imported_text(tmp_path, "run.sh", f"{call} > log 2>&1 &\n")
    assert found.job["tasks"]["chief"]["command"] == "mpirun tony-here ./demo"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--app-type", "vpc", "bash"], "interactive containers"),
        (["--app-type", "tensorflow", "--worker-num"], "has no value"),
        (
            ["--app-type", "tensorflow", "--worker-num", "many", "x"],
            r"--worker-num: should be a whole number \(got 'many'\)",
        ),
        (["--app-type", "tensorflow", "--worker-num", "2"], "from --launch-cmd"),
    ],
)
def test_bad_calls_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(NotImportable, match=said):
        imported("hbox-submit", *words)


def test_servers_that_hbox_does_not_start_are_listed() -> None:
    found = imported("hbox-submit", "--app-type", "horovod", "--ps-num", "2", "python", "train.py")
    assert "Hbox starts no servers" in why(found, "--ps-num")


def test_images_are_of_all_containers_but_the_master() -> None:
    words = ["--app-type", "disttorch", "--conf", "hbox.docker.image=ml/torch:2", "python", "train.py"]
    without = imported("hbox-submit", *words)
    assert "docker" not in without.job
    assert "not docker" in why(without, "--conf hbox.docker.image")
    more = ["hbox.container.type=docker", "hbox.docker.registry.host=registry", "hbox.docker.registry.port=5000"]
    job = parse_job(imported("hbox-submit", *(word for each in more for word in ("--conf", each)), *words).job)
    image = image_of(job, "worker")
    assert image is not None
    assert (image.image, image_of_master(job)) == ("registry:5000/ml/torch:2", None)


def test_words_in_an_array_are_not_known(tmp_path: Path) -> None:
    script = 'opts=(--app-type mpi)\nexec "$HBOX_HOME"/bin/hbox-submit "${opts[@]}" ./demo\n'
    with pytest.raises(NotImportable, match="in a shell array, which is not evaluated"):
        imported_text(tmp_path, "run.sh", script)


def test_variables_of_a_script_are_named(tmp_path: Path) -> None:
    script = "hbox-submit --app-type mpi --files $HERE/demo --queue '$literal' ./demo $DATA\n"
    found = imported_text(tmp_path, "run.sh", script)
    assert "unknown here" in why(found, "$HERE")
    assert "unknown here" in why(found, "$DATA")
    assert why(found, "$literal") == ""


def test_an_unknown_option_is_listed() -> None:
    found = imported("hbox-submit", "--app-type", "tensorflow", "--worker-memry", "1G", "python", "x.py")
    assert why(found, "--worker-memry") == "not an option of Hbox; did you mean worker-memory?"


@pytest.mark.parametrize(
    ("kind", "said"),
    [("distlightgbm", "lightGBMlist.txt is not"), ("LightLDA", "lightLDAEndPoints.txt is not"), ("xflow", "ps-lite")],
)
def test_what_programs_of_a_kind_are_not_given_is_told(kind: str, said: str) -> None:
    found = imported("hbox-submit", "--app-type", kind, "--worker-num", "2", "--ps-num", "1", "sh", "demo.sh")
    assert said in why(found, "app-type")


def test_variables_of_lightlda_are_set(tmp_path: Path) -> None:
    (tmp_path / "demo.sh").write_text('[ "$LIGHTLDA_ROLE" = ps ] && ./server -endpoint $LIGHTLDA_SERVER_ENDPOINT\n')
    call = "hbox-submit --app-type lightlda --files demo.sh --worker-num 2 --ps-num 1 sh demo.sh\n"
    found = imported_text(tmp_path, "run.sh", call)
    assert found.job["tasks"]["ps"]["command"] == 'export LIGHTLDA_ROLE="$TONY_TASK_TYPE" && sh demo.sh'
    assert "TONY_CLUSTER_SPEC" in why(found, "LIGHTLDA_SERVER_ENDPOINT")


def test_paths_that_begin_in_a_home_are_told_of() -> None:
    call = ["hbox-submit", "--app-type", "x", "--input", "clicks/2026#data", "--output", "/models/clicks#model"]
    found = imported(*call, "--cacheFile", "vocab.txt", "python", "a.py")
    assert found.job["inputs"]["data"]["paths"] == ["hdfs:///clicks/2026"]
    assert found.job["files"] == ["hdfs:///vocab.txt"]
    for key in ("input", "cacheFile"):
        assert "home on HDFS" in why(found, key)
    assert "home on HDFS" not in why(found, "output")
