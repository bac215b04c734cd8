"""tf-yarn: what ``run_on_yarn(…)`` is given, read from source that is never executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.jobs import imported, imported_text, why
from tony_provider.importers.key_table import NotImportable

PROGRAM = """
import os
from tf_yarn import NodeLabel
from tf_yarn.tensorflow import TaskSpec, run_on_yarn
import winequality

raise SystemExit("this program was executed")
GIB = 2**10
SIZE = 4
OUT = f"hdfs:///user/{os.getlogin()}/out"
SPECS = {
    "chief": TaskSpec(memory="2 GiB", vcores=4),
    "worker": TaskSpec(48 * GIB, 4, instances=(SIZE - 1), label=NodeLabel.GPU),
    "ps": TaskSpec(memory=GIB, vcores=8, label=NodeLabel.CPU),
    "evaluator": TaskSpec(memory="2 GiB", vcores=cores()),
    "tensorboard": TaskSpec(memory="1 GiB", vcores=1, tb_model_dir=OUT),
}
run_on_yarn(
    experiment_fn,
    task_specs=SPECS,
    pyenv_zip_path="viewfs://cluster/envs/tf.tar.gz",
    files={**editable(), os.path.basename(winequality.__file__): winequality.__file__, "w": "words.txt"},
    env={"LEVEL": "info", "WHERE": OUT},
    queue="ml",
    name="wine" + "s",
    nb_retries=2,
    file_systems=["hdfs://other"],
    retries=3,
)
"""


def test_a_call_becomes_a_job(tmp_path: Path) -> None:
    found = imported_text(tmp_path, "run.py", PROGRAM, command="python train.py")
    assert found.job == {
        "framework": "tensorflow",
        "name": "wines",
        "queue": "ml",
        "tensorboard": {"memory": "1 GiB", "vcores": 1},
        "python_env": "viewfs://cluster/envs/tf.tar.gz",
        "files": ["winequality.py", "words.txt::w"],
        "env": {"LEVEL": "info"},
        "tasks": {
            "chief": {"instances": 1, "memory": "2 GiB", "vcores": 4, "command": "python train.py"},
            "worker": {
                "instances": 3,
                "memory": 49152,
                "vcores": 4,
                "node_label": "gpu",
                "command": "python train.py",
            },
            "ps": {"instances": 1, "memory": 1024, "vcores": 8, "command": "python train.py"},
            "evaluator": {"instances": 1, "memory": "2 GiB", "command": "python train.py"},
        },
    }
    assert found.arguments == {"retries": 2}


def test_what_only_running_it_would_tell_is_named(tmp_path: Path) -> None:
    found = imported_text(tmp_path, "run.py", PROGRAM, command="python train.py")
    assert "when the program runs" in why(found, "task.evaluator.vcores")
    assert "when the program runs" in why(found, "env 'WHERE'")
    assert "when the program runs" in why(found, "files **")
    assert "unknown argument" in why(found, "retries")
    assert "@task.tony" in why(found, "experiment_fn")
    assert "TONY_TENSORBOARD_DIR" in why(found, "task.tensorboard.tb_model_dir")


def test_the_program_is_not_invented(tmp_path: Path) -> None:
    with pytest.raises(NotImportable, match=r"tasks\.ps\.command: write the content of experiment_fn as a program"):
        imported_text(tmp_path, "run.py", PROGRAM)


@pytest.mark.parametrize(
    ("module", "more", "framework"),
    [
        ("tf_yarn.pytorch", "", "pytorch"),
        ("tf_yarn.distributed", "", "standalone"),
        ("tf_yarn", "", "tensorflow"),
        ("tf_yarn", ', custom_task_module="tf_yarn.tensorflow.tasks.gloo_allred_task"', "horovod"),
    ],
)
def test_the_module_says_which_framework(tmp_path: Path, module: str, more: str, framework: str) -> None:
    text = f"import {module}\nrun_on_yarn(f, {{'worker': TaskSpec(1024, 1, nb_proc_per_worker=2)}}{more})"
    found = imported_text(tmp_path, "run.py", text, command="python x.py")
    assert found.job["framework"] == framework
    assert found.job["tasks"]["worker"]["processes"] == 2


def test_the_call_alone_and_an_older_one(tmp_path: Path) -> None:
    alone = imported('run_on_yarn(f, {"chief": TaskSpec("1 GiB", 1)})', command="python x.py")
    assert alone.job["tasks"] == {"chief": {"instances": 1, "memory": "1 GiB", "vcores": 1, "command": "python x.py"}}
    older = imported('run_on_yarn("/envs/tf.zip", f, task_specs={"chief": TaskSpec("1 GiB", 1)})', command="x")
    assert older.job["python_env"] == "/envs/tf.zip"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run_on_yarn(f, task_specs={'a': TaskSpec(1, 1)}", "is not Python"),
        ("run_on_yarn(f, {})\nrun_on_yarn(g, {})", r"has 2 calls of run_on_yarn \(lines 1, 2\)"),
        ("# run_on_yarn(", "has 0 calls"),
        ("run_on_yarn(f)", "no task_specs"),
        ("run_on_yarn(f, specs())", "when the program runs"),
        ("run_on_yarn(f, {'a': make()})", "is not a TaskSpec"),
        ("X = X\nrun_on_yarn(f, X)", "when the program runs"),
        ("run_on_yarn(f, {'a': TaskSpec(" + "-" * 5000 + "1, 1)})", "nested too deeply|is not Python"),
        (
            "a = 'xx'\n"
            + "\n".join(f"b{n} = b{n - 1} + b{n - 1}" for n in range(1, 60))
            + "\nb0 = a\nrun_on_yarn(f, b59)",
            "when the program runs",
        ),
        ("x = 10**9**9\nrun_on_yarn(f, {'a': TaskSpec(x, 1)})", "the commands of these tasks are unknown"),
    ],
)
def test_bad_sources_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(NotImportable, match=said):
        imported_text(tmp_path, "run.py", text)


def test_each_label_has_its_environment(tmp_path: Path) -> None:
    text = """
from tf_yarn.tensorflow import run_on_yarn, TaskSpec, NodeLabel
ENVS = {NodeLabel.CPU: "viewfs://cluster/cpu.pex", NodeLabel.GPU: "viewfs://cluster/gpu.pex"}
TASKS = {"chief": TaskSpec("1 GiB", 1, label=NodeLabel.GPU), "ps": TaskSpec("1 GiB", 1)}
run_on_yarn(f, TASKS, pyenv_zip_path=ENVS)
"""
    found = imported_text(tmp_path, "run.py", text, command="python train.py")
    environments = {name: task["python_env"] for name, task in found.job["tasks"].items()}
    assert environments == {"chief": "viewfs://cluster/gpu.pex", "ps": "viewfs://cluster/cpu.pex"}
    lacking = imported_text(tmp_path, "run.py", text.replace("NodeLabel.CPU:", "'other':"), command="python train.py")
    assert "has no environment for cpu" in why(lacking, "pyenv_zip_path")


def test_access_lists_are_ours(tmp_path: Path) -> None:
    text = (
        "run_on_yarn(f, {'chief': TaskSpec('1 GiB', 1)}, acls=skein.model.ACLs(enable=True, view_users=['bob'], "
        "modify_groups=['ml'], ui_users=['*']))"
    )
    found = imported_text(tmp_path, "run.py", text, command="x")
    assert found.job["acls"] == {"view": {"users": ["bob"]}, "modify": {"groups": ["ml"]}}
    assert "acls.view" in why(found, "acls ui_users")
    for other in ("None", "make()", "ACLS"):
        changed = text.replace(text[text.index("skein.model") : -1], other)
        assert "acls" not in imported_text(tmp_path, "run.py", changed, command="x").job


def test_a_module_under_another_name_and_an_older_label(tmp_path: Path) -> None:
    text = """
import os
import dnn as experiment
from models import wine
from tf_yarn import run_on_yarn, TaskFlavor, TaskSpec
run_on_yarn(
    experiment.get,
    task_specs={"chief": TaskSpec(memory=2 * 2 ** 10, vcores=4, flavor=TaskFlavor.GPU)},
    files={os.path.basename(experiment.__file__): experiment.__file__, "wine.py": wine.__file__},
)
"""
    found = imported_text(tmp_path, "run.py", text, command="x")
    assert found.job["files"] == ["dnn.py", "models/wine.py"]
    assert found.job["tasks"]["chief"]["node_label"] == "gpu"


@pytest.mark.parametrize(("said", "processes"), [("2", 2), ("1", None), ("CONFIG.workers", None)])
def test_older_versions_have_the_experiment_say_how_many_processes_there_are(
    tmp_path: Path, said: str, processes: int | None
) -> None:
    text = f"""
from tf_yarn.pytorch import PytorchExperiment, TaskSpec, run_on_yarn
def experiment_fn():
    return PytorchExperiment(model=Net(), main_fn=loop, train_dataset=data, n_workers_per_executor={said})
run_on_yarn(experiment_fn, {{"worker": TaskSpec(memory=48 * 2**10, vcores=48, instances=2)}})
"""
    found = imported_text(tmp_path, "run.py", text, command="python x.py")
    assert found.job["tasks"]["worker"].get("processes") == processes
    is_named = "`processes` of the task type" in why(found, "PytorchExperiment n_workers_per_executor")
    assert is_named == said.startswith("CONFIG")


@pytest.mark.parametrize(
    "also", ["size += 1", "for size in sizes: pass", "def of(size): pass", "size, other = 1, 2", "if (size := 4): pass"]
)
def test_a_name_with_several_values_has_none_that_is_known(tmp_path: Path, also: str) -> None:
    text = f"import tf_yarn\nsize = 4\n{also}\nrun_on_yarn(f, {{'worker': TaskSpec(1024, 1, instances=size)}})"
    found = imported_text(tmp_path, "run.py", text, command="x")
    assert "when the program runs" in why(found, "task.worker.instances")
