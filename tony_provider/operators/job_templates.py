"""Rendering of the fields ``job`` and ``overrides``, whose texts are rendered one by one.

In a mapped task, values that other tasks returned must not be rendered. Airflow does not render such values of
``expand``, but it renders those of ``expand_kwargs``. Each parse of a DAG file imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.template import literal  # in airflow.sdk since Airflow 3.1
from jinja2 import TemplateNotFound, Undefined, nodes
from jinja2.nativetypes import NativeEnvironment

from tony_provider.arguments import ReadableTemplates, naming_field, naming_text
from tony_provider.exceptions import TonySpecError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from jinja2 import Environment


def returned_values(task: Any, names: Sequence[str], context: Context) -> Iterator[object]:
    """Yield the values of the arguments ``names`` that ``expand_kwargs`` took from the result of another task.

    Values that the DAG's author wrote, also in a list of ``expand_kwargs``, are left out.
    """
    dag = context.get("dag")
    mapped = dag.task_dict.get(task.task_id) if dag is not None else None
    own = getattr(mapped, "partial_kwargs", {})
    if _is_returned(getattr(mapped, "expand_input", None), context):
        yield from (getattr(task, name, None) for name in names if name not in own)
    if _is_returned(getattr(mapped, "op_kwargs_expand_input", None), context):
        given = own.get("op_kwargs") or {}
        yield from (value for name, value in task.op_kwargs.items() if name not in given)


def _is_returned(expand_input: Any, context: Context) -> bool:
    """Return whether ``expand_kwargs`` was given the result of another task as the mapping of this instance."""
    given = getattr(expand_input, "value", {})
    if isinstance(given, Mapping):
        return False  # the task is not mapped, or is mapped with ``expand``
    index: Any = context["ti"].map_index
    return not (isinstance(given, Sequence) and isinstance(given[index], Mapping))


_FILES = (".tony.yaml", ".tony.json")
_LITERAL = type(literal(None))
_WHOLE = (
    "is a single template, which could become any job. Pass another task's result as "
    'job=plan.output["job"], or build the job in Python. For values of a run, write templates within the job'
)


class JobTemplatesMixin(ReadableTemplates):
    """Mixin that renders the fields ``job`` and ``overrides`` of an operator value by value.

    A text is the name of a job file only if it is the whole ``job`` and the DAG's author wrote it. With Airflow's own
    ``template_ext``, Airflow would load a file for every text with such an ending, at any depth and in all fields.
    """

    job: Any
    overrides: Any
    secrets: Any
    is_rendered = False  # whether Airflow has rendered the template fields, which then contain values
    has_secret_values = False  # whether ``secrets`` comes from another task, and thus must not be rendered

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: Environment,
        seen_oids: set[int],
    ) -> None:
        """Render all template fields, as Airflow does before the task runs. No value of another task is rendered."""
        if parent is self:
            self.is_rendered = True
            seen_oids |= {*map(id, returned_values(self, [*template_fields, "secrets"], context))}
            self.has_secret_values = id(self.secrets) in seen_oids
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render a field, or a part of a field. Raises the errors of ``naming_templates``."""
        field = "job" if content is self.job else "overrides" if content is self.overrides else ""
        if not field or id(content) in (seen_oids or ()):  # objects that Airflow must not render, such as XComs
            return super().render_template(content, context, jinja_env, seen_oids)
        env = jinja_env or self.get_template_env()

        def other(value: Any) -> Any:
            return super(JobTemplatesMixin, self).render_template(value, context, env, seen_oids)

        with naming_field(field):
            if field == "job":
                templates, is_template = job_templates(content, env)
            else:
                templates, is_template = _override_templates(content, env), True
            try:
                return _rendered(templates, context, env, other) if is_template else templates
            except RecursionError as error:
                raise TonySpecError("nested too deeply") from error

    def render_texts(self, values: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Render a mapping whose texts stay text, even digits if the DAG renders native objects."""
        env = self.get_template_env()
        return {
            name: _rendered_text(value, context, env, as_text=True)
            if isinstance(value, str)
            else self.render_template(value, context, env)
            for name, value in values.items()
        }


def job_templates(job: Any, env: Environment) -> tuple[Any, bool]:
    """Parse the argument ``job``: a mapping, text, or the name of a file that ``env`` finds.

    Return the job with its templates, and whether to render them. Raises TonySpecError, TemplateNotFound.
    """
    from tony_provider.job_files.parameters import has_templates
    from tony_provider.runtime.jobspec.problems import SpecError

    with naming_text(job, env):
        if isinstance(job, str):
            job = _parsed(_file(job, env), env, file=job) if _is_file_name(job) else _parsed(job, env)
        try:
            return job, not isinstance(job, Mapping) or has_templates(job)
        except SpecError as error:
            raise TonySpecError(str(error)) from error


def _override_templates(overrides: Any, env: Environment) -> Any:
    """Parse ``overrides``, except text that is a single expression: its value is checked after the rendering."""
    if not isinstance(overrides, str) or not overrides.strip():
        return overrides
    with naming_text(overrides, env):
        return overrides if _is_expression(overrides, env) else _parsed(overrides, env, "overrides")


def _is_file_name(text: str) -> bool:
    return text.endswith(_FILES) and "\n" not in text


def _file(name: str, env: Environment) -> str:
    if env.loader is None:
        raise TemplateNotFound(name)
    return env.loader.get_source(env, name)[0]


def _parsed(text: str, env: Environment, path: str = "", file: str | None = None) -> Mapping[str, Any]:
    from tony_provider.job_files.templates import load_templated
    from tony_provider.runtime.jobspec.problems import SpecError

    try:
        return load_templated(text, path)
    except SpecError as error:
        if _is_expression(text, env, file):  # raises Jinja's error for an invalid template
            raise TonySpecError(_WHOLE) from error
        raise TonySpecError(str(error)) from error


def _is_expression(text: str, env: Environment, file: str | None = None) -> bool:
    """Return whether a text is one ``{{ … }}`` and nothing else."""
    body = env.parse(text.strip(), name=file).body
    parts = body[0].nodes if len(body) == 1 and isinstance(body[0], nodes.Output) else []
    return len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData)


def _rendered(value: Any, context: Context, env: Environment, other: Callable[[Any], Any]) -> Any:
    """Render each text in mappings and lists. Render other objects in them with ``other``."""
    if isinstance(value, str):
        return _rendered_text(value, context, env)
    if isinstance(value, Mapping):
        return {key: _rendered(each, context, env, other) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rendered(each, context, env, other) for each in value]
    return other(value)


def _rendered_text(text: str, context: Context, env: Environment, *, as_text: bool = False) -> Any:
    """Render a text. Return a text without templates unchanged, because Jinja would change its line ends.

    If the DAG renders native objects, a text that is a single expression becomes the object that the expression
    evaluates to, unless ``as_text`` is set. Any other text stays text. Airflow would turn it into an object if it looks
    like a literal such as ``{'paths': […]}``.
    """
    marks = (env.variable_start_string, env.block_start_string, env.comment_start_string)
    lines = (env.line_statement_prefix, env.line_comment_prefix)
    if not any(mark in text for mark in (*marks, *filter(None, lines))):
        return text
    with naming_text(text, env):
        template = env.from_string(text)
        parts = list(template.root_render_func(template.new_context({**context})))
        is_object = not as_text and isinstance(env, NativeEnvironment) and len(parts) == 1
        if is_object and not isinstance(parts[0], (str, Undefined)):
            return parts[0]
        return "".join(map(str, parts))


def without_literals(value: Any) -> Any:
    """Return an unrendered field in which each ``airflow.sdk.literal`` is replaced by its text."""
    if isinstance(value, _LITERAL):
        return value.value
    if isinstance(value, Mapping):
        return {key: without_literals(each) for key, each in value.items()}
    return [*map(without_literals, value)] if isinstance(value, list) else value
