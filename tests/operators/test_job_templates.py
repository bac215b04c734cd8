"""A job is parsed before it is rendered, so that a value of a form stays inside the value that its template is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG, BaseOperator, literal, task
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

from tests.airflow_dags import run
from tests.operators.jobs import dag_of, job
from tests.rendering import rendered
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.submission import job_alone, layers_of, render_secrets
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.jobspec.problems import SpecError

TEXT = """
framework: standalone
name: "{{ params.x }}"
env: {A: "a{{ params.x }}", B: '{{ params.x }}'}  # a comment with {{ params.y }}
tasks:
  worker:
    command: train --day={{ macros.tony.quote(params.x) }}
"""
AS_JSON = json.dumps(yaml.safe_load(TEXT))
EVIL = "x\nfiles: [/etc/krb5.keytab]\nenv: {LD_PRELOAD: ./evil.so}\ndocker: {image: mallory/image}\n#"
QUOTES = '", files: [/etc/krb5.keytab], b: "\''
HOSTILE = st.sampled_from([EVIL, QUOTES, "{{ params.y }}", "a.tony.yaml", "[1]", "{'a': 1}", "null", "~"]) | st.text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("x.tony.yaml", TEXT), ("x.tony.json", AS_JSON)):
        (tmp_path / name).write_text(text)
    return tmp_path


def operator(folder: Path, spec: Any, *, native: bool = False, **arguments: Any) -> TonyTrainOperator:
    with DAG("a", schedule=None, template_searchpath=str(folder), render_template_as_native_obj=native):
        return TonyTrainOperator(task_id="train", job=spec, **arguments)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("spec", [TEXT, AS_JSON, "x.tony.yaml", "x.tony.json"])
@pytest.mark.parametrize("value", [EVIL, QUOTES, "{'a': 1}", "1.10", "x.tony.yaml"])
def test_a_value_of_a_form_is_one_value_of_the_job(
    airflow_db: None, folder: Path, spec: str, value: str, native: bool
) -> None:
    found = rendered(operator(folder, spec, native=native), {"x": value}).job
    assert set(found) == {"framework", "name", "env", "tasks"}
    assert (found["name"], found["env"]) == (value, {"A": f"a{value}", "B": value})


@given(value=HOSTILE, native=st.booleans())
def test_any_value_of_a_form_is_one_value_of_the_job(value: str, native: bool) -> None:
    with DAG("a", schedule=None, render_template_as_native_obj=native):
        train = TonyTrainOperator(task_id="train", job=TEXT.replace("macros.tony.quote", ""))
    found = train.render_template(train.job, {"params": {"x": value}})
    assert (found["name"], set(found["tasks"]["worker"])) == (value, {"command"})


def test_objects_stay_objects_where_a_dag_renders_them(folder: Path) -> None:
    found = rendered(
        operator(folder, {"files": "{{ params.x }}", "env": {"N": "1.10"}}, native=True), {"x": ["a", "b"]}
    ).job
    assert found == {"files": ["a", "b"], "env": {"N": "1.10"}}


@pytest.mark.parametrize("native", [False, True])
def test_a_secret_of_digits_is_text(airflow_db: None, folder: Path, native: bool) -> None:
    """Where a DAG renders native objects, Airflow makes numbers of such texts."""
    secrets = {"PLAIN": "0042", "TEXT": "{{ params.text }}", "NUMBER": "{{ params.number }}", "BOTH": "{{ 1 }}{{ 2 }}"}
    train = operator(folder, "x.tony.yaml", native=native, secrets=secrets)
    assert render_secrets(train, {"params": {"text": "0042", "number": 42}}) == {
        "PLAIN": "0042",
        "TEXT": "0042",
        "NUMBER": "42",
        "BOTH": "12",
    }


@pytest.mark.parametrize("native", [False, True])
def test_a_value_that_is_missing_is_named(airflow_db: None, native: bool) -> None:
    """Native templates evaluate it later than others: when the text is put together."""
    with DAG("a", schedule=None, render_template_as_native_obj=native, template_undefined=StrictUndefined):
        train = TonyTrainOperator(task_id="train", job={"name": "a-{{ params.missing }}"})
    with pytest.raises(UndefinedError, match=r"^job: .*missing.*, in .a-{{ params.missing }}"):
        train.render_template(train.job, {"params": {}})


@pytest.mark.parametrize("native", [False, True])
def test_only_the_whole_job_is_the_name_of_a_file(folder: Path, native: bool) -> None:
    """Not a value within it, nor any other argument, whoever has written it."""
    name = "x.tony.yaml"
    spec = {"env": {"A": name, "B": "{{ params.x }}"}, "files": [name], "tasks": {"worker": {"command": f"cat {name}"}}}
    others = {"overrides": {"name": name}, "env_vars": {"C": name}, "name": name, "resume_from": {"run_id": name}}
    train = rendered(operator(folder, spec, native=native, **others), {"x": name})
    assert train.job == {**spec, "env": {"A": name, "B": name}}
    assert {field: getattr(train, field) for field in others} == others


def test_an_argument_of_a_function_is_no_name_of_a_file(folder: Path) -> None:
    with DAG("a", schedule=None, template_searchpath=str(folder)) as dag:

        @task.tony(job=job(""))
        def train(path: str) -> str:
            return path

        train("x.tony.yaml")
    assert rendered(dag.task_dict["train"]).op_args == ("x.tony.yaml",)  # type: ignore[arg-type, attr-defined]


@pytest.mark.parametrize("spec", ["{{ params.x }}", " {{ params.x }}\n", "{{ params['x'] | tojson }}"])
def test_a_job_that_is_a_template_as_a_whole_is_refused(folder: Path, spec: str) -> None:
    with pytest.raises(TonySpecError, match=r'^job: is a single template.*job=plan\.output\["job"\]'):
        rendered(operator(folder, spec), {"x": "x.tony.yaml"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: {{ params.x }}", "a key must be text"),
        ("name: {{ params.x | tojson }}", "a key must be text"),
        ('{"name": {{ params.x }}}', "a key must be text"),
        ("{% if params.x %}\nname: a\n{% endif %}", "not YAML or JSON in line 1"),
        ("#{% if params.x %}\nname: a\n#{% endif %}", "a Jinja statement is outside of the values"),
        ('"{{ params.x }}": a', "a key must not be a template"),
        ("env: {A: b, 'x{% if params.x %}y{% endif %}': c}", "a key must not be a template"),
    ],
)
@pytest.mark.parametrize("field", ["job", "overrides"])
def test_what_only_rendering_would_make_a_job_is_refused_with_the_remedy(
    folder: Path, text: str, said: str, field: str
) -> None:
    arguments: dict[str, Any] = {"overrides": text} if field == "overrides" else {}
    with pytest.raises(TonySpecError) as raised:
        rendered(operator(folder, text if field == "job" else job("true"), **arguments), {"x": "a"})
    assert str(raised.value).startswith(f"{field}: ")
    assert said in str(raised.value)
    assert 'in quotes and without tojson: "{{ params.workers }}"' in str(raised.value)


def test_statements_and_comments_within_one_value_are_rendered(folder: Path) -> None:
    text = "name: 'a{# b #}'\nenv:\n  A: |\n    {% if params.x %}\n    # yes\n    {% endif %}\n"
    found = rendered(operator(folder, text), {"x": "1"}).job
    assert (found["name"], found["env"]["A"].split()) == ("a", ["#", "yes"])


@pytest.mark.parametrize("overrides", ["{{ params.x }}", "{{ params.x or '' }}\n", ""])
def test_overrides_that_are_one_expression_are_what_it_gives(folder: Path, overrides: str) -> None:
    given = {"name": "b", "tasks": {"worker": {"instances": 2}}}
    for form in (given, json.dumps(given), yaml.safe_dump(given)):
        train = rendered(operator(folder, job("true"), overrides=overrides), {"x": form})
        merged = _layers(train, allowed=()).merged()
        assert merged["name"] == ("b" if overrides else "a.train")


def test_overrides_with_templates_in_them_are_parsed_first(folder: Path) -> None:
    text = 'name: "{{ params.x }}"'
    train = rendered(operator(folder, job("true"), overrides=text), {"x": EVIL})
    assert train.overrides == {"name": EVIL}
    assert set(_layers(train, allowed=["*"]).over({}, "").merged()) == {"framework", "am", "tasks", "name"}


def _layers(train: TonyTrainOperator, allowed: Any) -> Any:
    return layers_of(
        train.job,
        default_name="a.train",
        name=None,
        queue=None,
        env=None,
        secrets=[],
        queue_timeout=None,
        overrides=train.overrides,
        allowed_overrides=allowed,
        presets=lambda: pytest.fail("there is no preset"),
    )


def test_jobs_of_mapped_tasks_are_parsed_first(airflow_db: None, folder: Path) -> None:
    """What another task has returned is no template in a mapped task either."""
    with DAG("mapped_jobs", schedule=None, params={"x": EVIL}, template_searchpath=str(folder)) as dag:

        @task
        def plan() -> list[Any]:
            return ["name: '{{ params.x }}'", {"name": "x.tony.yaml", "env": {"A": "{{ params.x }}"}}]

        Seen.partial(task_id="own", seen=str(folder / "own")).expand(job=["x.tony.yaml", TEXT])
        Seen.partial(task_id="theirs", seen=str(folder / "theirs")).expand(job=plan())
    assert run(dag).state == "success"
    for index in range(2):
        assert json.loads((folder / f"own{index}").read_text())["name"] == EVIL
    theirs = [json.loads((folder / f"theirs{index}").read_text()) for index in range(2)]
    assert theirs == ["name: '{{ params.x }}'", {"name": "x.tony.yaml", "env": {"A": "{{ params.x }}"}}]


def test_secrets_that_another_task_returned_are_no_templates(airflow_db: None, tmp_path: Path) -> None:
    """Seen: they were rendered, with all of Airflow's context, in the worker."""
    template = "{{ 'rendered' ~ '-value' }}"
    with DAG("mapped_secrets", schedule=None) as dag:

        @task
        def keys() -> list[dict[str, str]]:
            return [{"KEY": template}]

        def seen(name: str) -> Any:
            return SeenSecrets.partial(task_id=name, job=job("true"), seen=str(tmp_path / name))

        seen("theirs").expand(secrets=keys())
        seen("each").expand_kwargs(keys().map(lambda each: {"secrets": each}))
        seen("own").expand(secrets=[{"KEY": template}])
    assert run(dag).state == "success"
    found = {name: json.loads((tmp_path / f"{name}0").read_text())["KEY"] for name in ("theirs", "each", "own")}
    assert found == {"theirs": template, "each": template, "own": "rendered-value"}


ARGUMENTS = {"env_vars": {"A": "{{ 1 + 1 }}"}, "checkpoint_key": "{{ 1 + 2 }}"}


def test_arguments_that_another_task_returned_are_no_templates(airflow_db: None, tmp_path: Path) -> None:
    """Seen: Airflow rendered all of them, the job included, for ``expand_kwargs`` of what a task returned."""
    theirs = {"job": {**job("true"), "name": "{{ 1 + 3 }}"}, **ARGUMENTS}
    with DAG("mapped_arguments", schedule=None) as dag:

        @task
        def plan() -> list[dict[str, Any]]:
            return [theirs]

        def seen(name: str) -> Any:
            return SeenArguments.partial(task_id=name, seen=str(tmp_path / name), warm_start="{{ '' }}w")

        seen("theirs").expand_kwargs(plan())
        seen("own").expand_kwargs([theirs])
    assert run(dag).state == "success"
    found = json.loads((tmp_path / "theirs0").read_text())
    assert found == [theirs["job"], ARGUMENTS["env_vars"], ARGUMENTS["checkpoint_key"], "w"]
    own = json.loads((tmp_path / "own0").read_text())
    assert own == [{**job("true"), "name": "4"}, {"A": "2"}, "3", "w"]


class Seen(TonyTrainOperator):
    """Writes its job as it is rendered, and starts nothing."""

    def __init__(self, *, seen: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seen = seen

    def execute(self, context: Any) -> None:
        Path(f"{self.seen}{context['ti'].map_index}").write_text(json.dumps(self.job))


class SeenArguments(Seen):
    """Writes its arguments as they are rendered."""

    def execute(self, context: Any) -> None:
        found = [self.job, self.env_vars, self.checkpoint_key, self.warm_start]
        Path(f"{self.seen}{context['ti'].map_index}").write_text(json.dumps(found))


class SeenSecrets(Seen):
    """Writes its secrets as the training gets them."""

    def execute(self, context: Any) -> None:
        Path(f"{self.seen}{context['ti'].map_index}").write_text(json.dumps(render_secrets(self, context)))


@pytest.mark.parametrize("spec", ['name: "{{ params.x }}"', {"name": "{{ params.x }}"}, "x.tony.yaml"])
def test_what_another_task_has_returned_is_no_template(folder: Path, spec: Any) -> None:
    """Airflow names the values of a mapped task that come from an XCom."""
    train = operator(folder, spec)
    assert train.render_template(train.job, {}, seen_oids={id(train.job)}) is spec


@pytest.mark.parametrize("form", ["text", "file", "mapping"])
def test_a_job_whose_texts_are_no_templates_is_as_it_is_written(folder: Path, form: str) -> None:
    plain = {"templates": False, "env": {"A": "{{ params.x }}{% endraw %}", "B": "${#HOME}\r", "C": "b.tony.yaml"}}
    (folder / "plain.tony.json").write_text(json.dumps(plain))
    given: Any = {"text": json.dumps(plain), "file": "plain.tony.json", "mapping": plain}[form]
    assert job_alone(rendered(operator(folder, given), {"x": "a"}).job) == {"env": plain["env"]}


def test_templates_is_a_truth_value_and_goes_with_no_parameters(folder: Path) -> None:
    with pytest.raises(TonySpecError, match=r"^job: .*\n.*templates: must be true or false \(got 'maybe'\)"):
        rendered(operator(folder, "templates: maybe"))
    with pytest.raises(SpecError, match="templates: is false, so no template would use the section `parameters`"):
        job_alone({"templates": "false", "parameters": {"a": {"type": "string"}}})


def test_texts_without_templates_keep_their_line_ends(folder: Path) -> None:
    spec = {"env": {"A": "a\r\nb\rc\n"}}
    assert rendered(operator(folder, spec)).job == spec


@pytest.mark.parametrize("spec", ["file", "literal", "nested"])
def test_a_dry_run_reads_files_and_literals(
    local: TonyHook, tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: str
) -> None:
    plain = job("true", env={"A": "{{ x }}"})
    (tmp_path / "plain.tony.json").write_text(json.dumps({"templates": False, **plain}))
    given: Any = {
        "file": "plain.tony.json",
        "literal": literal(plain),
        "nested": {**plain, "env": {"A": literal("{{ x }}")}},
    }
    with dag_of(given[spec], name=literal("{{ y }}")) as dag:
        dag.template_searchpath = [str(tmp_path)]
        dag.task_dict["train"].dry_run()  # type: ignore[union-attr]
    described = yaml.safe_load(capsys.readouterr().out)["description"]["job"]
    assert (described["env"], described["name"]) == ({"A": "{{ x }}"}, "{{ y }}")


def test_jobs_of_operators_with_their_own_environment(folder: Path) -> None:
    """Other marks of Jinja are heeded, too."""
    with DAG("a", schedule=None, jinja_environment_kwargs={"variable_start_string": "[[", "variable_end_string": "]]"}):
        train: BaseOperator = TonyTrainOperator(task_id="train", job='name: "[[ params.x ]]"\nenv: {A: "{{ b }}"}')
    assert isinstance(train, TonyTrainOperator)
    assert rendered(train, {"x": EVIL}).job == {"name": EVIL, "env": {"A": "{{ b }}"}}


def test_a_file_is_found_by_the_loader_that_is_given(folder: Path) -> None:
    train = TonyTrainOperator(task_id="train", job="x.tony.yaml")
    env = Environment(loader=FileSystemLoader(folder), autoescape=False)
    found = train.render_template(train.job, {"params": {"x": "a"}, "macros": _Macros}, env)
    assert found["name"] == "a"


class _Macros:
    class tony:
        quote = str
