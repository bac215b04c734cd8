"""``airflow tony import`` and ``airflow tony dag``: what they write, and what they refuse before that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tony
from tests.importers.jobs import xml
from tony_provider.cli.definition import get_tony_cli_commands
from tony_provider.cli.job_file import read_job_file
from tony_provider.importers.read_job import SYSTEMS
from tony_provider.runtime.parsing.parse import parse_job

CONFIGURATION = xml(
    tony__application__name="clicks",
    tony__worker__instances=2,
    tony__worker__memory="300m",
    tony__am__retry_count=2,
    tony__am__gpus=1,
    tony__containers__resources="train.py",
)
JOB = """
parameters:
  workers: {type: integer, default: 2, minimum: 1, maximum: 8}
framework: standalone
files: [train.py]
tasks:
  worker: {instances: "{{ params.workers }}", memory: 256MiB, command: python train.py}
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    (tmp_path / "theirs").mkdir()
    path = tmp_path / "theirs" / "tony.xml"
    path.write_text(CONFIGURATION)
    return path


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"backend": "local", "staging_dir": str(tmp_path / "staging")}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps({"conn_type": "tony", "extra": extra}))


def test_an_import_prints_the_job_with_what_is_left(tony: Tony, configuration: Path) -> None:
    said = tony("import", str(configuration), "--command", "python train.py", "--set", "queue=ml")
    assert said.code == 0, said.error
    assert parse_job(said.out).queue == "ml"
    head = [line for line in said.out.splitlines() if line.startswith("#")]
    assert "From TonY" in head[0]
    assert "# The task of a DAG that runs it has retries=2." in head
    assert any("tony.am.gpus" in line for line in head)


def test_an_import_writes_a_job_and_a_dag(tony: Tony, configuration: Path, tmp_path: Path) -> None:
    """Elsewhere than their file: paths lead where they did."""
    job, dag = tmp_path / "clicks.tony.yaml", tmp_path / "clicks_dag.py"
    written = ("--output", str(job), "--dag", str(dag), "--command", "python train.py")
    said = tony("import", str(configuration), *written)
    assert said.code == 0, said.error
    assert said.out.splitlines()[:3] == [f"Wrote {job}", f"Wrote {dag}", "Arguments for the DAG's task: retries=2"]
    assert "- tony.am.gpus ('1'): no user program runs in the master" in said.out
    assert [each.source for each in parse_job(job.read_text()).files] == ["theirs/train.py"]
    assert 'TonyTrainOperator(task_id="train", retries=2, job=JOB)' in dag.read_text()
    again = tony("import", str(configuration), *written)
    assert (again.code, "already exists; use --force to replace it" in again.error) == (1, True)
    assert tony("import", str(configuration), *written, "--force").code == 0


def test_what_looks_like_a_template_is_none(tony: Tony, tmp_path: Path) -> None:
    said = tony("import", "--", "hbox-submit", "--app-type", "mpi", "docker", "ps", "--format", "{{ .Names }}")
    assert said.code == 0, said.error
    assert "\ntemplates: false\n" in said.out
    (tmp_path / "job.tony.yaml").write_text(said.out)
    assert "{{ .Names }}" in read_job_file(tmp_path / "job.tony.yaml").job["tasks"]["chief"]["command"]


def test_keys_of_theirs_stay_in_the_comment(tony: Tony, tmp_path: Path) -> None:
    """YAML ends a comment also where Python ends no line."""
    for end in ("\u2028", "\u2029", "\x85", "\r"):
        spec = {f"x{end}files: [/etc/hostname]{end}#": 1, "services": {"worker": {"script": "true"}}}
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        output = ("--output", str(tmp_path / "x.tony.yaml"), "--force")
        said = tony("import", str(tmp_path / "spec.json"), "--from", "skein", *output)
        assert said.code == 0, said.error
        assert parse_job((tmp_path / "x.tony.yaml").read_text()).files == []


@pytest.mark.parametrize("user", ["{{ ds }}", "root,bob", "a b", "../x", ""])
def test_a_user_of_theirs_is_a_users_name(tony: Tony, tmp_path: Path, user: str) -> None:
    spec = {"user": user, "services": {"worker": {"script": "true"}}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    said = tony("import", str(tmp_path / "spec.json"), "--from", "skein")
    assert "proxy_user" not in said.out
    assert ("user (" in said.out) == bool(user)


def test_a_call_stands_after_two_hyphens(tony: Tony) -> None:
    call = ("torchx", "run", "dist.ddp", "-j", "1x2", "--script", "main.py", "--", "--lr", "0.1")
    said = tony("import", "--", *call)
    assert said.code == 0, said.error
    assert parse_job(said.out).tasks["main"].command == "python main.py --lr 0.1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{configuration}"], "Not imported: the commands of these tasks are unknown"),
        (["{configuration}", "--from", "skein"], "is not a mapping in YAML or JSON"),
        (["/nowhere/at/all.xml"], "cannot be read: No such file"),
        (["--", "rm", "-rf", "/"], "is not from a known system; name the system with --from"),
        (["{configuration}", "--command", "x", "--output", "/nowhere/at/all/x.yaml"], "is not a directory"),
        (["{configuration}", "--command", "x", "--set", "tasks.worker.instances=no"], "the imported job is invalid"),
    ],
)
def test_what_cannot_be_imported_is_said_and_nothing_written(
    tony: Tony, configuration: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    output = [] if "--output" in arguments or "--" in arguments else ["--output", str(tmp_path / "out.yaml")]
    found = tony("import", *output, *[each.format(configuration=configuration) for each in arguments])
    assert (found.code, found.out) == (1, "")
    assert said in found.error
    assert "Traceback" not in found.error
    assert not (tmp_path / "out.yaml").exists()


def test_names_of_systems_are_those_that_are_read() -> None:
    (group,) = get_tony_cli_commands()
    command = next(each for each in group.subcommands if each.name == "import")  # type: ignore[union-attr]
    choices = next(arg.kwargs["choices"] for arg in command.args if "--from" in arg.flags)
    assert list(choices) == [each.name for each in SYSTEMS]


@pytest.mark.usefixtures("connection")
def test_a_dag_is_written_from_a_job(tony: Tony, tmp_path: Path) -> None:
    file, dag = tmp_path / "clicks.tony.yaml", tmp_path / "dags" / "clicks.py"
    file.write_text(JOB)
    dag.parent.mkdir()
    said = tony("dag", str(file), "--output", str(dag), "--schedule", "@daily", "--retries", "3")
    assert (said.code, said.out) == (0, f"Wrote {dag}\n"), said.error
    text = dag.read_text()
    assert '"workers": Param(2, type="integer", minimum=1, maximum=8)' in text
    assert '"../train.py"' in text
    assert 'schedule="@daily"' in text
    assert '"clicks"' in text
    compile(text, str(dag), "exec")


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        (("memory: 256MiB", "memory: 256MB"), [], "MB may mean powers of ten or of two"),
        (("params.workers", "params.wrokers"), [], "did you mean workers?"),
        (("default: 2", "default: 9"), [], "9 is greater than the maximum of 8"),
        (("default: 2, ", ""), [], "parameters.workers: has no default; set it with --param workers=VALUE"),
        (("default: 2, ", ""), ["--schedule", "@daily"], "needs a default for each parameter: workers"),
        (("", ""), ["--param", "workers=12"], "12 is greater than the maximum of 8"),
        (('"{{ params.workers }}"', "{{ params.workers }}"), [], "in quotes and without tojson"),
    ],
)
def test_a_dag_of_a_wrong_job_is_not_written(
    tony: Tony, tmp_path: Path, change: tuple[str, str], arguments: list[str], said: str
) -> None:
    file, dag = tmp_path / "clicks.tony.yaml", tmp_path / "clicks.py"
    file.write_text(JOB.replace(*change) if change[0] else JOB)
    found = tony("dag", str(file), "--output", str(dag), *arguments)
    assert found.code == 1
    assert said in found.error
    assert not dag.exists()


@pytest.mark.usefixtures("local")
def test_a_parametrised_job_is_checked_and_submitted(tony: Tony, tmp_path: Path) -> None:
    file = tmp_path / "greet.tony.yaml"
    file.write_text(JOB.replace("python train.py", "'echo one of $TONY_WORLD_SIZE'").replace("files: [train.py]", ""))
    checked = tony("check", str(file), "--param", "workers=3")
    assert "worker: 3 containers" in checked.out, checked.error
    refused = tony("submit", str(file), "--param", "workers=none")
    assert (refused.code, "--param workers: must be a whole number (got 'none')" in refused.error) == (1, True)
    assert refused.error.count(f"{file}: ") == 1, "the file is named once"
    done = tony("submit", str(file), "--param", "workers=1", "--wait")
    assert done.code == 0, done.error
    application_id = next(word for word in done.out.split() if word.startswith("application_"))
    assert "one of 1" in tony("logs", application_id).out
