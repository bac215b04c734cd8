"""What a try of a training needs of its operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import DAG, BaseTrigger, Context
    from airflow.sdk.types import Logger
    from jinja2 import Environment

    from tony_provider.hooks.tony import TonyHook
    from tony_provider.runtime.spec.model import JobSpec
    from tony_provider.watching.kill_switch import KillSwitch


class TrainingTask(Protocol):
    """The training operator as ``Training`` sees it. What the arguments mean, the operator says."""

    # Its arguments.
    task_id: str
    template_fields: Sequence[str]
    tony_conn_id: str
    job: Mapping[str, Any] | str
    overrides: Mapping[str, Any] | str | None
    proxy_user: str | None
    secrets: Mapping[str, str] | None
    wait_for_completion: bool
    deferrable: bool
    poll_interval: float
    resume: str
    resume_from: Mapping[str, Any] | str | None
    warm_start: str | None
    checkpoint_key: str | None
    mlflow: Mapping[str, Any] | str | None
    durable: bool
    apply_advice: bool | Mapping[str, Mapping[str, Any]]
    on_kill_action: Literal["kill", "keep"]
    execution_timeout: timedelta | None
    show_output: Literal["leader", False] | list[str]
    # What it keeps of the training while this process lives.
    switch: KillSwitch
    has_links: bool
    is_rendered: bool
    has_secret_values: bool
    told: dict[str, Any] | None

    @property
    def dag_id(self) -> str: ...
    @property
    def hook(self) -> TonyHook: ...
    @property
    def log(self) -> Logger: ...
    @property
    def dag(self) -> DAG: ...

    def get_template_env(self) -> Environment: ...
    def parse_job(self, secrets: Collection[str]) -> JobSpec: ...
    def sent(self, job: JobSpec) -> AbstractContextManager[JobSpec]: ...
    def answer(self, context: Context, result: dict[str, Any]) -> Any: ...
    def render_texts(self, values: Mapping[str, Any], context: Context) -> dict[str, Any]: ...
    def defer(self, *, trigger: BaseTrigger, method_name: str, timeout: timedelta | None) -> NoReturn: ...
