"""Check single arguments of operators and sensors, and keep the errors in a task's log readable.

Airflow logs an exception with all its causes and all stack frames. The messages of this provider's exceptions already
contain the information that a user needs, so causes and frames are removed from the log.

Each parse of a DAG file imports this module, so it imports the modules for error messages only on use.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from jinja2 import TemplateError, TemplateNotFound, TemplateSyntaxError, UndefinedError

from tony_provider import exceptions
from tony_provider.exceptions import TonySpecError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context
    from jinja2 import Environment

    _Operator = BaseOperator
else:
    _Operator = object  # Airflow's own operator class provides the methods

DEFAULT_CONN_ID = "tony_default"
MOST_SHOWN = 8  # maximum number of tasks whose output one task's log shows

_TASK = re.compile(r"[^\s:]+:\d+")


def positive_seconds(name: str, value: timedelta | float) -> float:
    """Return the argument ``name`` as a positive number of seconds. Raises ValueError."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not _is_positive(seconds):
        raise ValueError(f"{name} is {value!r} and should be a timedelta or a number of seconds above 0")
    return float(seconds)


def positive_number(name: str, value: float) -> float:
    """Return the argument ``name``, a positive number. Raises ValueError."""
    if not _is_positive(value):
        raise ValueError(f"{name} is {value!r} and should be a number above 0")
    return float(value)


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


def yes_or_no(name: str, value: bool) -> bool:
    """Return the argument ``name``, a bool. Raises ValueError also for text, because the text "no" would be true."""
    if value is not True and value is not False:
        raise ValueError(f"{name} is {value!r} and should be True or False")
    return value


def names(argument: str, value: Any) -> list[str]:
    """Return the argument as a list of texts. Raises ValueError, also for a single text instead of a list."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) and each.strip() for each in value):
        raise ValueError(f"{argument} is {value!r} and should be a list of strings")
    return list(value)


def output_wanted(value: Any) -> Literal["leader", False] | list[str]:
    """Check the argument ``show_output``, and return it. Raises ValueError."""
    if value is False or value == "leader":
        return cast(Literal["leader", False], value)
    names = value if isinstance(value, (list, tuple)) else []
    if not names or not all(isinstance(name, str) and _TASK.fullmatch(name) for name in names):
        raise ValueError(
            f'show_output is {value!r} and should be "leader", a list of tasks such as ["worker:0"], or False'
        )
    names = list(dict.fromkeys(names))
    if len(names) > MOST_SHOWN:
        raise ValueError(f"show_output names {len(names)} tasks; the limit is {MOST_SHOWN}")
    return names


def expect_keys(argument: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check that a mapping has only ``known`` keys. Raises TonySpecError."""
    if unknown := sorted(set(given) - set(known)):
        from tony_provider.runtime.jobspec.problems import shown, suggestion

        hint = suggestion(unknown[0], list(known))
        raise TonySpecError(f"{argument}: {shown(unknown[0])} is not known{hint}; the keys are {', '.join(known)}")


def text_of(argument: str, given: Mapping[str, Any], key: str) -> str | None:
    """Return the text of a key, or None if it is empty or missing. Raises TonySpecError."""
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        from tony_provider.runtime.jobspec.problems import shown

        raise TonySpecError(f"{argument}.{key}: should be text, not {shown(value)}")
    return value or None


def empty_to_none(task: Any, names: Iterable[str]) -> None:
    """Set each of the arguments ``names`` of ``task`` to None if its rendered value is blank or the text "None".

    Jinja renders None as the text "None", for example for a parameter that was left empty.
    """
    for name in names:
        value = getattr(task, name)
        if isinstance(value, str) and value.strip() in ("", "None"):
            setattr(task, name, None)


Method = TypeVar("Method", bound=Callable[..., Any])


def with_readable_errors(method: Method) -> Method:
    """Decorator for a method that Airflow calls. Removes causes and stack frames from errors of this provider.

    The removed parts are logged at level DEBUG. All other errors may be bugs of this provider, and are unchanged.
    """

    @functools.wraps(method)
    def call(self: BaseOperator, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if not _is_ours(error):
                raise
            self.log.debug("Traceback of the original error", exc_info=error)
            raise error.with_traceback(None) from None

    return call  # type: ignore[return-value]


def _is_ours(error: Exception) -> bool:
    # Imported here to keep DAG files fast.
    from tony_provider.cluster.errors import ClusterError
    from tony_provider.runtime.storage.errors import StorageError

    return isinstance(error, (ClusterError, StorageError)) or any(
        kind.__module__ == exceptions.__name__ for kind in type(error).__mro__
    )


class ReadableTemplates(_Operator):
    """Base class of operators and sensors that adds the field's name to template errors."""

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render ``content``. Raises the errors of ``naming_templates``."""
        env = jinja_env or self.get_template_env()
        with naming_templates(self, content, env):
            return super().render_template(content, context, env, seen_oids)


@contextmanager
def naming_templates(task: BaseOperator, content: Any, env: Environment) -> Iterator[None]:
    """Context manager around the rendering of ``content``, which is a field of the task or a part of a field.

    Raises TonySpecError for invalid template syntax, UndefinedError for an undefined name, and TemplateNotFound for a
    missing file. A retry can fix a missing file. Each error names the field, and the invalid text or file.
    """
    try:
        with naming_text(content, env):
            yield
    except (TemplateError, TonySpecError) as error:
        if field := next((name for name in task.template_fields if getattr(task, name, None) is content), None):
            raise _below(field, error) from None
        raise


@contextmanager
def naming_text(content: Any, env: Environment) -> Iterator[None]:
    """Context manager around the rendering of ``content``. Adds the text to errors."""
    try:
        yield
    except (TemplateError, TonySpecError) as error:
        told = _with_text(error, content, env)
        if told is error:
            raise
        raise told from None


@contextmanager
def naming_field(name: str) -> Iterator[None]:
    """Context manager that adds a field's name to errors of its rendering."""
    try:
        yield
    except (TemplateError, TonySpecError) as error:
        raise _below(name, error) from None


def _with_text(error: Exception, content: Any, env: Environment) -> Exception:
    """Return the error with ``content`` added. If ``content`` is a mapping or list, the error already has its text."""
    if not isinstance(content, str):
        return error
    if isinstance(error, TemplateSyntaxError):
        return TonySpecError(f"{(error.message or '').rstrip('.')}, in {_line(error, content)}")
    if isinstance(error, TemplateNotFound):
        folders = ", ".join(getattr(env.loader, "searchpath", [])) or str(env.loader)
        return TemplateNotFound(error.name, f"there is no file {error.name} in {folders}")
    if isinstance(error, UndefinedError):
        return UndefinedError(f"{error.message}, in {content!r}")
    return error


def _line(error: TemplateSyntaxError, content: str) -> str:
    """Return the line with the error: from the source that the error contains, otherwise from ``content``."""
    lines = (error.source or content).splitlines()
    line = lines[error.lineno - 1].strip() if 0 < error.lineno <= len(lines) else content
    if error.name:
        return f"{line!r} (line {error.lineno} of {error.name})"
    return f"{line!r} (line {error.lineno})" if len(lines) > 1 else repr(line)


def _below(field: str, error: Exception) -> Exception:
    if isinstance(error, TemplateNotFound):
        return TemplateNotFound(error.name, f"{field}: {error.message}")
    if isinstance(error, (UndefinedError, TonySpecError)):
        return type(error)(f"{field}: {error}")
    return error
