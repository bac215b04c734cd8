"""The section ``parameters`` of a job file, and the values that a command line gives."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.job_files.parameters import Parameter, split_parameters
from tony_provider.job_files.templates import check_names, rendered_job, values_of
from tony_provider.macros import quote
from tony_provider.operators.submission import job_alone
from tony_provider.runtime.jobspec.problems import SpecError

SECTION: dict[str, Any] = {
    "workers": {"type": "integer", "default": "2", "minimum": "1", "maximum": "8", "title": "Workers"},
    "rate": {"type": "number", "default": "0.01", "exclusiveMinimum": "0"},
    "fast": {"type": "boolean", "default": "false"},
    "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
    "day": {"type": "string", "format": "date"},
}
JOB = {
    "framework": "standalone",
    "env": {"FAST": "{{ params.fast }}", "SIZE": "{{ params['size'] }}"},
    "tasks": {
        "worker": {
            "instances": "{{ params.workers }}",
            "command": "go --rate={{ params.rate }} --day={{ macros.tony.quote(params.day) }}",
        }
    },
}


def problems(section: Any) -> str:
    with pytest.raises(SpecError) as raised:
        split_parameters({"parameters": section, **JOB})
    return str(raised.value)


def test_values_are_of_their_types() -> None:
    parameters, job = split_parameters({"parameters": SECTION, **JOB})
    assert job == JOB
    assert parameters["workers"] == Parameter("integer", 2, {"title": "Workers", "minimum": 1, "maximum": 8})
    values = values_of(parameters, ["workers=4", "day=2026-01-02", "fast=True"])
    assert values == {"workers": 4, "rate": 0.01, "fast": True, "size": "small", "day": "2026-01-02"}
    check_names(job, parameters)
    whole = rendered_job(job, values, quote)
    assert whole["env"] == {"FAST": "True", "SIZE": "small"}
    assert whole["tasks"]["worker"] == {"instances": "4", "command": "go --rate=0.01 --day=2026-01-02"}


def test_a_file_without_the_section_is_a_job() -> None:
    assert split_parameters(JOB) == ({}, JOB)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ([1], "parameters: must be a mapping"),
        ({"a": 1}, "parameters.a: must be a mapping"),
        ({"a b": {"type": "string"}}, "has letters, digits and _"),
        ({"a": {}}, "parameters.a.type: must be one of string, integer, number, boolean"),
        ({"a": {"type": "int"}}, "(got 'int')"),
        ({"a": {"type": "integer", "default": "two"}}, "parameters.a.default: must be a whole number (got 'two')"),
        ({"a": {"type": "integer", "default": "9", "maximum": "8"}}, "9 is greater than the maximum of 8"),
        ({"a": {"type": "integer", "minimun": "1"}}, "unknown key; did you mean minimum?"),
        ({"a": {"type": "string", "minimum": "1"}}, "applies only to numbers"),
        ({"a": {"type": "integer", "minLength": "1"}}, "applies only to text"),
        ({"a": {"type": "string", "enum": []}}, "must be a list of values"),
        ({"a": {"type": "string", "pattern": "("}}, "is not a regular expression"),
        ({"a": {"type": "number", "default": "nan"}}, "must be a finite number"),
        ({"a": {"type": "boolean", "default": "maybe"}}, "must be true or false"),
    ],
)
def test_bad_sections_are_told_with_their_path(section: Any, said: str) -> None:
    assert said in problems(section)


def test_all_that_is_wrong_is_told_at_once() -> None:
    said = problems({"a": {"type": "integer", "default": "x"}, "b": {"type": "nothing"}})
    assert "parameters.a.default" in said
    assert "parameters.b.type" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["workers=many", "day=2026-01-01"], "--param workers: must be a whole number (got 'many')"),
        (["workers=9", "day=2026-01-01"], "9 is greater than the maximum of 8"),
        (["rate=0", "day=2026-01-01"], "0 is less than or equal to the minimum of 0"),
        (["size=huge", "day=2026-01-01"], "'huge' is not one of ['small', 'large']"),
        (["day=yesterday"], "'yesterday' is not a 'date'"),
        (["wokers=4", "day=2026-01-01"], "is not a parameter of the job; did you mean workers?"),
        (["nonsense=4", "day=2026-01-01"], "it has workers, rate, fast, size, day"),
        (["workers", "day=2026-01-01"], "should be NAME=VALUE"),
        ([], "parameters.day: has no default; set it with --param day=VALUE"),
    ],
)
def test_bad_values_are_told(given: list[str], said: str) -> None:
    parameters, _ = split_parameters({"parameters": SECTION, **JOB})
    with pytest.raises(SpecError) as raised:
        values_of(parameters, given)
    assert said in str(raised.value)


def test_names_that_no_parameter_has_and_parameters_that_nothing_uses_are_told() -> None:
    parameters, job = split_parameters({"parameters": {**SECTION, "spare": {"type": "string"}}, **JOB})
    job["name"] = "{{ params.wrokers }}"
    with pytest.raises(SpecError) as raised:
        check_names(job, parameters)
    assert "name: params.wrokers is not a parameter of the job; did you mean workers?" in str(raised.value)
    assert 'parameters.spare: is not used: write "{{ params.spare }}"' in str(raised.value)


def test_a_task_of_a_dag_takes_the_job_of_such_a_file() -> None:
    """Airflow fills in what the DAG's own parameters say; the section is for the command line."""
    assert job_alone({"parameters": SECTION, **JOB}) == JOB
    with pytest.raises(SpecError, match=r"parameters\.a\.type"):
        job_alone({"parameters": {"a": {}}, **JOB})


@pytest.mark.parametrize("template", ["{{ ds }}", "{{ dag_run.run_after }}", "{{ macros.tony.newest_model('x') }}"])
def test_what_only_a_dag_fills_in_is_told(template: str) -> None:
    with pytest.raises(SpecError, match=r"cannot be rendered: .*; only a DAG renders values of a run"):
        rendered_job({"name": template}, {}, quote)


def test_templates_reach_nothing_else() -> None:
    with pytest.raises(SpecError, match="cannot be rendered"):
        rendered_job({"name": "{{ ''.__class__.__mro__[1].__subclasses__() }}"}, {}, quote)


@given(st.text())
def test_a_value_never_becomes_another_key_or_word(value: str) -> None:
    job = {"name": "{{ params.x }}", "command": "echo {{ macros.tony.quote(params.x) }}"}
    if "\0" in value:
        with pytest.raises(SpecError):
            rendered_job(job, {"x": value}, quote)
        return
    whole = rendered_job(job, {"x": value}, quote)
    assert set(whole) == set(job)
    assert whole["name"] == value


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% if params.x == 'a' %}{{ macros.json.codecs.builtins.exec('') }}{% endif %}", "uses macros;"),
        ("{% if params.x == 'a' %}{{ self._TemplateReference__context.macros }}{% endif %}", "uses self;"),
        ("{% if params.x == 'a' %}{% include 'airflow.cfg' %}{% endif %}", "uses airflow.cfg;"),
        ("{% if params.x == 'a' %}{{ conn.store.password }}{% endif %}", "uses conn;"),
        ("{% set m = macros %}{{ m.json }}{{ params.x }}", "uses macros;"),
        ("{{ params.x }}{{ macros.tony.quote(var.value.key) }}", "uses var;"),
        # Seen: the macro's own environment compiled and ran any Python where Airflow rendered the DAG that was written.
        (
            "{{ params.x }}{% macro m() %}{% endmacro %}{% if 'ds' is filter %}{{ m.x }}{% endif %}",
            ".x, the test filter, {% macro %};",
        ),
        ("{{ params.x }}{% call(y) params.z() %}{% endcall %}", "a call, {% call %};"),
        ("{{ params.x }}{% block b %}{% endblock %}", "uses {% block %};"),
        ("{{ params.x._environment }}", "uses ._environment;"),
        ("{{ params.x['_environment'] }}", "uses an item by its name;"),
        ("{{ params.x | attr(params.x) }}", "uses the filter attr;"),
        ("{{ [params.x] | map(attribute='_environment') | list }}", "uses the filter map, {% keyword %};"),
        ("{{ params.x | join(',', '_environment') }}", "uses the filter join;"),
        ("{{ params.x.format(params) }}", "uses a call;"),
        ("{% for y in params.x %}{{ loop._undefined }}{% endfor %}", "uses ._undefined;"),
        ("{% autoescape false %}{{ params.x }}{% endautoescape %}", "uses {% keyword %}, {% scope %}"),
        ("{{ params.x | ds }}", "is not a template that Jinja can parse: No filter named 'ds'"),
    ],
)
def test_a_template_of_a_file_reaches_nothing_else_of_a_dag_in_any_branch(template: str, said: str) -> None:
    parameters, job = split_parameters({"parameters": {"x": {"type": "string", "default": "b"}}, "name": template})
    with pytest.raises(SpecError, match=re.escape(said)):
        check_names(job, parameters)


@pytest.mark.parametrize(
    "template",
    [
        "{{ params.x | default('a') | upper | trim }}-{{ params['x'] ~ 1 + 2 }}",
        "{% if params.x is not none and params.x != 'a' %}{{ params.x.replace('a', 'b')[0] }}{% else %}b{% endif %}",
        "{% for y in params.x.split(',') %}{{ loop.index }}: {{ y | join(', ') }}{% endfor %}",
        "{{ params.x[1:] if params.x.startswith('a') else macros.tony.quote(params.x) }}",
    ],
)
def test_what_a_template_of_a_file_may_use(template: str) -> None:
    check_names({"name": template}, split_parameters({"parameters": {"x": {"type": "string"}}})[0])


def test_a_template_of_a_file_may_have_names_of_its_own() -> None:
    template = "{% set y = params.x %}{% for each in range(2) %}{{ macros.tony.quote(y ~ each) }}{% endfor %}"
    check_names({"name": template}, split_parameters({"parameters": {"x": {"type": "string"}}})[0])
