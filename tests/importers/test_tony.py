"""TonY: every key of its configuration has a rule, and its client's calls become jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.jobs import imported, imported_text, why, xml
from tony_provider.importers.key_table import ImportedJob, NotImportable
from tony_provider.importers.linkedin_tony_keys import KEYS
from tony_provider.runtime.jobspec.container_content import image_of, image_of_master
from tony_provider.runtime.jobspec.container_content import images as spec_images
from tony_provider.runtime.jobspec.model import Milestone, Role
from tony_provider.runtime.jobspec.placement import Placement, PlacementConstraint, PlacementScope
from tony_provider.runtime.parsing.parse import parse_job

NAMES = [
    line for line in (Path(__file__).parent / "tony_keys.txt").read_text().splitlines() if not line.startswith("#")
]
CLIENT = ("java", "-cp", "tony.jar", "com.linkedin.tony.cli.ClusterSubmitter")


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_mapped_or_listed_with_a_reason(name: str, tmp_path: Path) -> None:
    key = name.replace("<type>", "worker").replace("<group>", "A").replace("<resource>", "fpgas")
    rule = KEYS.find(key)
    assert rule is not None
    if not rule[0].here:
        given = {"tony.worker.instances": 1, "tony.worker.command": "true", key: "7"}
        found = imported_text(tmp_path, "tony.xml", xml(**given))
        assert why(found, key), name


def test_no_rule_is_for_a_key_that_tony_has_not() -> None:
    shapes = {name.replace("<type>", "<>").replace("<group>", "<>").replace("<resource>", "<>") for name in NAMES}
    ours = {key for key in KEYS if "<setting>" not in key and "<part>" not in key}
    assert {_shape(key) for key in ours} - shapes == set()


def _shape(key: str) -> str:
    for name in ("type", "group", "resource"):
        key = key.replace(f"<{name}>", "<>")
    return key


def test_a_configuration_becomes_a_job(tmp_path: Path) -> None:
    text = xml(
        tony__application__name="clicks",
        tony__yarn__queue="ml",
        tony__application__tags="a,b",
        tony__application__timeout="3600000",
        tony__worker__instances=4,
        tony__worker__memory="8g",
        tony__worker__gpus=1,
        tony__worker__command="python train.py",
        tony__ps__instances=1,
        tony__ps__memory="3g",
        tony__ps__command="python train.py",
        tony__evaluator__memory="9g",
        tony__containers__resources="hdfs:///data/vocab.txt,/data/words.txt::dictionary,/envs/x.zip#archive",
        tony__execution__envs="A=1,TONY_B=2",
        tony__am__retry_count=2,
        tony__am__gpus=1,
        fs__defaultFS="hdfs://nn",
    )
    found = imported_text(tmp_path, "tony.xml", text)
    assert found.job == {
        "framework": "tensorflow",
        "name": "clicks",
        "queue": "ml",
        "tags": ["a", "b"],
        "timeouts": {"lifetime": "3600s"},
        "files": ["hdfs:///data/vocab.txt", "/data/words.txt::dictionary"],
        "archives": ["/envs/x.zip"],
        "env": {"A": "1"},
        "tasks": {
            "worker": {"instances": 4, "memory": "8g", "gpus": 1, "command": "python train.py"},
            "ps": {"instances": 1, "memory": "3g", "command": "python train.py"},
        },
    }
    assert found.arguments == {"retries": 2}
    assert why(found, "tony.execution.envs TONY_B") == "names that begin with TONY_ are reserved"
    assert "master" in why(found, "tony.am.gpus")
    assert [each.key for each in found.left_out if "Hadoop" in each.key] == ["1 keys of Hadoop, such as fs.defaultFS"]


def test_a_call_of_its_client_becomes_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sources in the working directory, and the environment as TonY unpacks it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name in ("train.py", "model.py", ".hidden"):
        (tmp_path / "src" / name).write_text("")
    (tmp_path / "test.xml").write_text(xml(tony__worker__instances=1, tony__worker__memory="4g"))
    found = imported(
        *CLIENT,
        "--python_venv=/envs/venv.zip",
        "--src_dir=src",
        "--executes=train.py",
        "--task_params=--steps 1000 --out /tmp/model",
        "--conf_file=test.xml",
        "--python_binary_path=venv/bin/python",
        "-conf",
        "tony.worker.instances=2",
        "-shell_env",
        "LEVEL=info",
        "-hdfs_classpath",
        "hdfs:///jars",
        "-executs",
        "x.py",
    )
    assert found.job == {
        "framework": "tensorflow",
        "files": ["src/model.py", "src/train.py"],
        "archives": ["/envs/venv.zip::venv"],
        "env": {"LEVEL": "info"},
        "tasks": {
            "worker": {
                "instances": 2,
                "memory": "4g",
                "command": "venv/venv/bin/python train.py --steps 1000 --out /tmp/model",
            }
        },
    }
    assert why(found, "hdfs_classpath") == "no Java classes are needed"
    assert why(found, "-executs") == "not an option of TonY's client; did you mean executes?"


def test_sources_that_are_elsewhere_are_taken_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["-src_dir", "my src", "-executes", "my src/train.py", "-python_binary_path", "x/bin/python"]
    found = imported(*CLIENT, *given, "-python_venv", "x.zip", "-conf", "tony.worker.instances=1")
    assert found.job["files"] == ["my src"]
    assert found.job["tasks"]["worker"]["command"] == "cd 'my src' && ../venv/x/bin/python train.py"


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (("-python_binary_path", "bin/python", "-executes", "train.py"), "venv/bin/python train.py"),
        (("-executes", "venv/bin/python train.py"), "venv/bin/python train.py"),
        (("-conf", "tony.worker.command=sh venv/run.sh"), "sh venv/run.sh"),
    ],
)
def test_an_environment_is_unpacked_where_tony_unpacks_it(given: tuple[str, ...], command: str) -> None:
    """Also without -executes and without -python_binary_path, and where the archive is no environment at all."""
    environment = ("-python_venv", "hdfs:///envs/tf.zip")
    found = imported(*CLIENT, *environment, *given, "-conf", "tony.worker.instances=1")
    assert found.job["archives"] == ["hdfs:///envs/tf.zip::venv"]
    assert "python_env" not in found.job
    assert found.job["tasks"]["worker"]["command"] == command


def test_times_after_a_group_are_carried_over_or_listed() -> None:
    after = "tony.application.dependency.{}.timeout.after.all"
    given = {
        "tony.application.group.all": "worker",
        **{f"tony.{name}.instances": "1" for name in ("worker", "evaluator", "reporter")},
        **{after.format(name): "30" for name in ("evaluator", "reporter")},
        after.format("reporter") + ".ignored": "true",
        "tony.containers.command": "python train.py",
    }
    ignored = after.format("evaluator") + ".ignored"
    for value, is_listed in (("true", False), ("false", True)):
        options = [each for key in {**given, ignored: value}.items() for each in ("-conf", "=".join(key))]
        found = imported(*CLIENT, *options)
        assert found.job["timeouts"]["evaluator"] == "30s"
        keys = [each.key for each in found.left_out]
        assert {after.format("reporter"), after.format("reporter") + ".ignored"} <= set(keys)
        assert (ignored in keys) == is_listed


def test_a_tool_that_starts_the_client_has_options_of_its_own() -> None:
    tool = ("gcloud", "dataproc", "jobs", "submit", "hadoop", "--class", CLIENT[-1], "--jars", "gs://a/tony.jar", "--")
    call = ("--executes", "unzip tf.zip && tf/bin/python x.py", "--conf", "tony.worker.instances=1")
    found = imported(*tool, *call)
    assert found.job["tasks"]["worker"]["command"] == "unzip tf.zip && tf/bin/python x.py"
    assert [each.key for each in found.left_out] == ["variables"]
    assert imported(*tool[:5], f"--class={CLIENT[-1]}", *tool[7:], *call).job == found.job


def test_a_notebook_is_told_of() -> None:
    call = ("java", "-cp", "tony.jar", "com.linkedin.tony.cli.NotebookSubmitter", "-executes", "./jupyter.sh")
    assert "airflow tony notebook" in why(imported(*call), "NotebookSubmitter")


def test_variables_that_a_program_names_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    program = "spec = os.environ['CLUSTER_SPEC']\nWORLD = 1  # no variable\nport = os.getenv(\"TB_PORT\")\n"
    (tmp_path / "src" / "train.py").write_text(program)
    given = ["-src_dir", "src", "-executes", "train.py", "-python_binary_path", "python3"]
    found = imported(*CLIENT, *given, "-conf", "tony.worker.instances=1")
    command = found.job["tasks"]["worker"]["command"]
    assert command == 'export CLUSTER_SPEC="$TONY_CLUSTER_SPEC" && python3 train.py'
    assert "set by the command" in why(found, "CLUSTER_SPEC")
    assert "set `tensorboard: true`" in why(found, "TB_PORT")
    torch = imported(*CLIENT, *given, "-conf", "tony.worker.instances=1", "-conf", "tony.application.framework=pytorch")
    assert 'CLUSTER_SPEC="$TONY_CLUSTER_SPEC"' in torch.job["tasks"]["worker"]["command"]


def test_options_alone_are_read_when_they_are_said_to_be_tonys() -> None:
    found = imported("-conf", "tony.worker.instances=3", "-executes", "./run.sh", system="tony")
    assert found.job["tasks"] == {"worker": {"instances": 3, "command": "./run.sh"}}


def test_types_that_others_wait_for_are_preparation(tmp_path: Path) -> None:
    text = xml(
        tony__worker__instances=2,
        tony__ps__instances=1,
        tony__fetch__instances=1,
        tony__worker__depends_on="fetch",
        tony__containers__command="./go.sh",
    )
    job = parse_job(imported_text(tmp_path, "tony.xml", text).job)
    assert job.role("fetch") is Role.ONCE
    assert job.tasks["worker"].after == job.tasks["ps"].after == {"fetch": Milestone.SUCCEEDED}


def test_stages_side_cars_and_those_who_only_serve(tmp_path: Path) -> None:
    text = xml(
        tony__worker__instances=2,
        tony__loader__instances=1,
        tony__helper__instances=1,
        tony__watcher__instances=1,
        tony__application__prepare_stage="loader",
        tony__application__training_stage="worker,helper,watcher",
        tony__application__untracked__jobtypes="ps,helper",
        tony__application__sidecar__jobtypes="watcher",
        tony__containers__command="./go.sh",
    )
    job = parse_job(imported_text(tmp_path, "tony.xml", text).job)
    assert (job.role("loader"), job.role("watcher"), job.tasks["helper"].decides) == (Role.ONCE, Role.SIDECAR, False)
    assert job.tasks["worker"].after == {"loader": Milestone.SUCCEEDED}


def test_a_type_whose_name_changes_keeps_its_role(tmp_path: Path) -> None:
    text = xml(
        **{"tony.my-helper.instances": 1, "tony.my-watcher.instances": 1},
        tony__worker__instances=2,
        tony__application__untracked__jobtypes="my-helper",
        tony__application__sidecar__jobtypes="my-watcher",
        tony__containers__command="./go.sh",
    )
    job = parse_job(imported_text(tmp_path, "tony.xml", text).job)
    assert (job.tasks["my_helper"].decides, job.role("my_watcher")) == (False, Role.SIDECAR)


def test_a_service_that_others_wait_for_is_a_side_car_that_has_started(tmp_path: Path) -> None:
    text = xml(
        tony__application__untracked__jobtypes="features",
        tony__worker__instances=2,
        tony__features__instances=1,
        tony__application__prepare_stage="features",
        tony__containers__command="./go.sh",
    )
    job = parse_job(imported_text(tmp_path, "tony.xml", text).job)
    assert job.role("features") is Role.SIDECAR
    assert job.tasks["worker"].after == {"features": Milestone.STARTED}


def test_mxnets_scheduler_has_no_type_and_its_servers_no_command(tmp_path: Path) -> None:
    text = xml(
        tony__application__framework="mxnet",
        tony__scheduler__instances=1,
        tony__server__instances=2,
        tony__worker__instances=2,
        tony__worker__command="python fit.py",
    )
    found = imported_text(tmp_path, "tony.xml", text)
    assert found.job["tasks"]["server"] == {"role": "ps", "instances": 2}
    assert why(found, "tony.scheduler.instances") == "MXNet's scheduler runs next to rank 0"


def test_horovods_driver_has_no_type(tmp_path: Path) -> None:
    text = xml(
        tony__application__framework="horovod",
        tony__worker__instances=4,
        tony__worker__command="python fit.py",
        tony__driver__instances=1,
        tony__driver__vcores=2,
        tony__driver__command="python horovod_debug_driver.py -t -p 9999",
        tony__application__untracked__jobtypes="driver",
    )
    found = imported_text(tmp_path, "tony.xml", text)
    assert found.job["tasks"] == {"worker": {"instances": 4, "command": "python fit.py"}}
    assert "next to rank 0" in why(found, "tony.driver.instances")


def test_what_is_asked_for_a_type_without_a_number_is_listed(tmp_path: Path) -> None:
    given = {"tony.worker.instances": 2, "tony.worker.command": "x", "tony.ps.memory": "3g", "tony.ps.vcores": 1}
    found = imported_text(tmp_path, "tony.xml", xml(**given))
    assert set(found.job["tasks"]) == {"worker"}
    assert "tony.ps.instances is not given" in why(found, "tony.ps.memory")
    assert not why(found, "tony.ps.vcores")  # which is in every configuration
    none = imported_text(tmp_path, "tony.xml", xml(**given, **{"tony.ps.instances": 0}))
    assert not why(none, "tony.ps.memory")


def test_images_count_where_docker_is_enabled(tmp_path: Path) -> None:
    given = {
        "tony.worker.instances": 1,
        "tony.worker.command": "true",
        "tony.docker.containers.image": "a/b:1",
        "tony.docker.containers.mount": "/data:/data:ro",
        "tony.docker.ps.image": "other:1",
    }
    without = imported_text(tmp_path, "tony.xml", xml(**given))
    assert "docker" not in without.job
    assert "not true" in why(without, "tony.docker.containers.image")
    found = imported_text(tmp_path, "tony.xml", xml(**given, **{"tony.docker.enabled": "true"}))
    assert found.job["docker"] == {"image": "a/b:1", "mounts": ["/data:/data:ro"]}
    assert "docker" not in found.job["tasks"]["worker"]


def test_tensorboards_directory_is_ours(tmp_path: Path) -> None:
    given = {
        "tony.worker.instances": 1,
        "tony.worker.command": "true",
        "tony.application.tensorboard-log-dir": "/logs",
        "tony.tensorboard.memory": "3g",
    }
    found = imported_text(tmp_path, "tony.xml", xml(**given))
    assert found.job["tensorboard"] == {"memory": "3g"}


def test_a_single_node_is_one_worker_by_itself(tmp_path: Path) -> None:
    found = imported_text(tmp_path, "tony.xml", xml(tony__containers__command="python one.py"))
    assert found.job == {"framework": "standalone", "tasks": {"worker": {"instances": 1, "command": "python one.py"}}}


def test_what_is_not_known_is_named_and_not_invented(tmp_path: Path) -> None:
    text = xml(tony__worker__instances=1, tony__worker__memori="2g")
    with pytest.raises(NotImportable, match=r"tasks\.worker\.command: TonY reads the command from -executes") as raised:
        imported_text(tmp_path, "tony.xml", text)
    assert "--command 'python train.py'" in str(raised.value)
    found = imported_text(tmp_path, "tony.xml", text, command="python x.py")
    assert found.job["tasks"] == {"worker": {"instances": 1, "command": "python x.py"}}
    assert "unknown key" in why(found, "tony.worker.memori")


def test_a_value_that_is_none_is_listed(tmp_path: Path) -> None:
    text = xml(
        tony__worker__instances=1,
        tony__worker__memory="lots",
        tony__worker__vcores="two",
        tony__application__tags="good,not good",
        tony__containers__command="true",
    )
    found = imported_text(tmp_path, "tony.xml", text)
    assert found.job["tags"] == ["good"]
    assert found.job["tasks"] == {"worker": {"instances": 1, "command": "true"}}
    assert "not an amount of memory" in why(found, "tony.worker.memory")
    assert why(found, "tony.worker.vcores") == "should be a whole number"
    assert "printable ASCII" in why(found, "tony.application.tags")


def test_of_a_list_only_what_is_wrong_is_left(tmp_path: Path) -> None:
    tags = [f"tag{n}" if n % 3 else f"tony- {n}" for n in range(14)]
    given = {"tony.worker.instances": 1, "tony.worker.command": "true", "tony.application.tags": ",".join(tags)}
    found = imported_text(tmp_path, "tony.xml", xml(**given))
    assert set(found.job.get("tags", [])) <= {tag for tag in tags if " " not in tag}
    assert {each.value for each in found.left_out if isinstance(each.value, str)} >= {tag for tag in tags if " " in tag}


def test_values_name_other_properties(tmp_path: Path) -> None:
    given = {
        "tony.application.name": "clicks-${day}",
        "day": "${year}-03",
        "year": "2026",
        "tony.worker.instances": 1,
        "tony.worker.command": "LD_LIBRARY_PATH=${LD_LIBRARY_PATH} python x.py --year ${year}",
        "tony.containers.resources": "hdfs:///user/${user.name}/x.txt",
        "tony.yarn.queue": "${tony.yarn.queue}",
    }
    found = imported_text(tmp_path, "tony.xml", xml(**given))
    assert found.job["name"] == "clicks-2026-03"
    command = "LD_LIBRARY_PATH=${LD_LIBRARY_PATH} python x.py --year 2026"
    assert found.job["tasks"]["worker"]["command"] == command
    assert "${user.name} is replaced only by Hadoop's client" in why(found, "tony.containers.resources")
    assert "must be a queue" in why(found, "tony.yarn.queue")  # which is itself


def test_a_configuration_that_includes_another_is_refused(tmp_path: Path) -> None:
    text = xml(tony__worker__instances=1, tony__worker__command="x")
    include = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="tony-site.xml"/></configuration>'
    with pytest.raises(NotImportable, match="includes another file"):
        imported_text(tmp_path, "tony.xml", text.replace("</configuration>", include))


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    given = {"tony.worker.instances": 1, "tony.worker.command": "true", "tony.https.keystore.password": "hunter2"}
    found = imported_text(tmp_path, "tony.xml", xml(**given))
    assert "hunter2" not in " ".join(map(str, found.left_out))
    assert "tony.https.keystore.password (…)" in " ".join(map(str, found.left_out))


# -- where containers are ----------------------------------------------------------------------------------------------

TWO = {"tony.worker.instances": 4, "tony.ps.instances": 2, "tony.containers.command": "./go.sh"}


def of(folder: Path, given: dict[str, object]) -> ImportedJob:
    return imported_text(folder, "tony.xml", xml(**given))


def test_a_type_has_an_image_of_its_own(tmp_path: Path) -> None:
    given = {
        "tony.docker.enabled": "true",
        "tony.docker.containers.image": "a/b:1",
        "tony.docker.containers.mount": "/data:/data:ro",
        "tony.docker.ps.image": "small:1",
        "tony.docker.am.image": "master:1",
        "tony.docker.evaluator.image": "absent:1",
    }
    job = parse_job(of(tmp_path, {**TWO, **given}).job)
    images = {path: image.image for path, image in spec_images(job).items() if image is not None}
    assert images == {"am.docker": "master:1", "tasks.worker.docker": "a/b:1", "tasks.ps.docker": "small:1"}
    ps = image_of(job, "ps")
    assert ps is not None
    assert ps.mounts == ["/data:/data:ro"]


def test_where_no_image_is_for_all_only_types_that_have_one_run_in_it(tmp_path: Path) -> None:
    given = {
        "tony.docker.enabled": "true",
        "tony.docker.worker.image": "a/b:1",
        "tony.docker.containers.mount": "/data:/data:ro",
        "tony.containers.envs": "YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK=host,LEVEL=info",
    }
    found = of(tmp_path, {**TWO, **given})
    job = parse_job(found.job)
    worker = image_of(job, "worker")
    assert worker is not None
    assert (worker.image, worker.mounts, worker.network) == ("a/b:1", ["/data:/data:ro"], "host")
    assert image_of(job, "ps") is None
    assert image_of_master(job) is None
    assert job.env == {"LEVEL": "info"}


def test_what_is_said_of_images_where_there_is_none_is_listed(tmp_path: Path) -> None:
    given = {"tony.containers.envs": "YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK=host"}
    found = of(tmp_path, {**TWO, **given})
    assert "docker" not in found.job
    assert "without an image" in why(found, "tony.containers.envs.YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK")


def test_variables_of_the_container_are_the_programs_too(tmp_path: Path) -> None:
    words = ["-executes", "x.sh", "-conf", "tony.worker.instances=1", "-container_env", "A=1", "-shell_env", "A=2"]
    found = imported(*CLIENT, *words, "-container_env", "B=3")
    assert found.job["env"] == {"A": "2", "B": "3"}


def test_files_of_a_type_are_its_own(tmp_path: Path) -> None:
    given = {"tony.worker.resources": "a.txt,b.zip#archive,all.txt", "tony.ps.resources": "all.txt"}
    found = of(tmp_path, {**TWO, **given})
    assert found.job["files"] == ["all.txt"]
    assert found.job["tasks"]["worker"]["files"] == ["a.txt"]
    assert found.job["tasks"]["worker"]["archives"] == ["b.zip"]
    assert not {"files", "archives"} & set(found.job["tasks"]["ps"])


def test_placement_specifications_are_rules(tmp_path: Path) -> None:
    given = {
        "tony.worker.placement-spec": "and(in,rack,w:cardinality,node,w,0,1:nm.yarn.io/disk=ssd)",
        "tony.worker.allocation-tags": "w",
        "tony.application.placement-spec": "notin,node,w,not-self/serving",
    }
    found = of(tmp_path, {**TWO, **given})
    job = parse_job(found.job)
    worker, ps = job.tasks["worker"].placement, job.tasks["ps"].placement
    assert worker is not None
    assert ps is not None
    assert worker.constraints == [
        PlacementConstraint(affinity=["w"], scope=PlacementScope.RACK),
        PlacementConstraint(cardinality="w", max=2),  # YARN counts those that are there before
    ]
    assert (worker.tags, worker.attributes) == (["w"], ["nm.yarn.io/disk=ssd"])
    assert ps == Placement(constraints=[PlacementConstraint(anti_affinity=["w", "not-self/serving"])])
    assert not [each for each in found.left_out if "placement" in each.key or "tags" in each.key]


def test_rules_and_tags_for_all_containers_are_each_types(tmp_path: Path) -> None:
    given = {"tony.containers.placement-spec": "notin,node,train", "tony.containers.allocation-tags": "train"}
    job = parse_job(of(tmp_path, {**TWO, **given}).job)
    for name in ("worker", "ps"):
        placement = job.tasks[name].placement
        assert placement is not None
        assert (placement.tags, placement.constraints[0].anti_affinity) == (["train"], ["train"])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("or(in,node,w:notin,node,w)", "an alternative"),
        ("in,cell,w", "should be in,node or rack,TAG"),
        ("cardinality,node,w", "MIN,MAX"),
        ("cardinality,node,w,a,b", "whole number"),
        ("java=1.7,1.8", "one value"),
        ("anywhere", "is not a placement constraint"),
        ("and(" * 30 + "in,node,w" + ")" * 30, "nested too deeply"),
        ("notin,node,nobody", "no task type and no tag of this name"),
    ],
)
def test_rules_that_have_no_counterpart_are_listed(tmp_path: Path, spec: str, said: str) -> None:
    found = of(tmp_path, {**TWO, "tony.worker.placement-spec": spec, "tony.worker.allocation-tags": "w"})
    assert said in why(found, "tony.worker.placement-spec")
    assert "constraints" not in found.job["tasks"]["worker"].get("placement", {})


def test_names_of_types_are_tags_here_and_are_told(tmp_path: Path) -> None:
    found = of(tmp_path, {**TWO, "tony.worker.placement-spec": "notin,node,ps"})
    assert "here, containers of the type ps have this tag" in why(found, "tony.worker.placement-spec")
    unplaced = of(tmp_path, {**TWO, "tony.worker.allocation-tags": "w"})
    assert "placement specification" in why(unplaced, "tony.worker.allocation-tags")
    assert "placement" not in unplaced.job["tasks"]["worker"]


def test_a_type_that_is_the_chief_by_name_has_its_role(tmp_path: Path) -> None:
    text = {**TWO, "tony.head.instances": 1, "tony.chief.name": "head"}
    assert parse_job(of(tmp_path, text).job).role("head") is Role.CHIEF
    assert "rank 0 leads" in why(of(tmp_path, {**TWO, "tony.chief.name": "worker"}), "tony.chief.name")


# -- what its examples showed ------------------------------------------------------------------------------------------


def test_a_command_that_wants_bash_has_it(tmp_path: Path) -> None:
    """TonY has every command run by bash."""
    command = "chmod +x venv/bin/*; source venv/bin/activate; ray start --head"
    found = of(tmp_path, {"tony.worker.instances": 1, "tony.worker.command": command})
    assert found.job["tasks"]["worker"]["command"] == f"bash -c '{command}'"
    assert "framework: ray" in why(found, "tony.worker.command")


def test_a_script_may_have_remarks_and_variables(tmp_path: Path) -> None:
    script = (
        "JAR=tony.jar exec java -cp $JAR com.linkedin.tony.cli.ClusterSubmitter \\  # that of ours\n"
        " -conf tony.worker.instances=1 \\\n -executes train.py -shell_env A='$B' \\\n"
        ' -task_params "--out /tmp/${job_id}"\n'
    )
    found = imported_text(tmp_path, "run.sh", script)
    assert found.job["tasks"]["worker"]["command"] == "train.py --out /tmp/${job_id}"
    assert "unknown here" in why(found, "$job_id")
    assert (why(found, "$B"), why(found, "$JAR")) == ("", "")


def test_whether_images_count_is_true_or_false(tmp_path: Path) -> None:
    given = {"tony.docker.enabled": "perhaps", "tony.docker.containers.image": "a/b:1"}
    found = of(tmp_path, {**TWO, **given})
    assert why(found, "tony.docker.enabled") == "should be true or false"
    assert "docker" not in found.job
