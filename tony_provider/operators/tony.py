"""TonyTrainOperator: a distributed training on YARN as a task of a DAG.

Each parse of a DAG file imports this module, so it imports modules of a running task only on use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import BaseOperator, conf

from tony_provider import configuration
from tony_provider.arguments import (
    DEFAULT_CONN_ID,
    names,
    output_wanted,
    positive_seconds,
    with_readable_errors,
    yes_or_no,
)
from tony_provider.compat import TaskDeferralError, TaskDeferralTimeout, without_empty_xcoms
from tony_provider.links.job_links import LINKS
from tony_provider.operators.job_templates import JobTemplatesMixin
from tony_provider.operators.openlineage import OpenLineageMixin
from tony_provider.watching.kill_switch import KILL_REASON, KillSwitch

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.hooks.tony import TonyHook
    from tony_provider.operators.submission import ParsedJob
    from tony_provider.operators.training_try import TrainingTry
    from tony_provider.runtime.jobspec.model import JobSpec


class TonyTrainOperator(OpenLineageMixin, JobTemplatesMixin, BaseOperator):
    """Run a distributed training on YARN, or on this machine, and wait for it.

    If a worker dies, the next attempt of the task attaches to the running application of the previous attempt, or
    returns its result. After a failure, the next attempt starts a new application. This application resumes from the
    newest verified checkpoint, unless the commands, the environment or the files have changed. A task that is cleared
    after a success trains from the beginning. See "Retry and resume a training".

    :param job: the job specification, as a mapping, as YAML or JSON text, or as the name of a ``.tony.yaml`` or
        ``.tony.json`` file next to the DAG file. Text and files are parsed before their templates are rendered. See
        "Job keys". Templated: all text values in the job.
    :param overrides: job keys that override the job and the arguments below. Mappings are merged key by key. Lists are
        replaced as a whole, and null deletes a key. By default, overrides may change only sizes and limits, because
        users who trigger the DAG can often set overrides. To allow other keys, set ``allowed_overrides``. See
        "Parameters and the trigger form". Templated.
    :param allowed_overrides: job keys that ``overrides`` may change in addition to sizes and limits, such as
        ``["env.LEARNING_RATE", "tasks.*.env"]``. Each listed key also covers all keys below it. ``*`` matches any
        single name.
    :param tony_conn_id: ID of an Airflow connection of type ``tony``. See "Set up the connection". Templated.
    :param name: name of the application; default: the job's ``name``, otherwise ``<dag>.<task>``. Templated.
    :param yarn_queue: YARN queue of the application. It overrides the job's ``queue``; default: the job's ``queue``,
        otherwise the connection's ``queue``. Templated.
    :param proxy_user: name of the cluster user that runs the job. The cluster must allow the connection's user to
        impersonate this user. Default: the connection's user. Templated.
    :param env_vars: environment variables for the user processes. These variables override variables of the same name
        in the job's ``env``. Templated.
    :param secrets: secret environment variables for the user processes. The values are masked in logs, and reach the
        nodes only in the application's credentials. Literal values are visible in the DAG file. For mapped tasks,
        literal values are also visible in Airflow's database. Use a template instead, such as
        ``{{ conn.model_store.password }}``. Templated.
    :param wait_for_completion: if False, the task returns as soon as the application is submitted.
    :param deferrable: whether the task waits in the triggerer, where it uses no worker slot; default: Airflow's option
        ``[operators] default_deferrable``.
    :param poll_interval: number of seconds between two polls of the job's steps and metrics; default: Airflow's option
        ``[tony] poll_interval``, which is 5. In the first minute, a worker polls more often. A triggerer that waits for
        many jobs polls less often (``[tony] details_per_second``).
    :param queue_timeout: maximum number of seconds from the submission until the job has received all its containers;
        default: the job's ``timeouts.queue``, otherwise no limit.
    :param resume: whether a new application resumes from the newest checkpoint of earlier applications. ``auto``: it
        resumes after a failure, unless the commands, the environment or the files have changed. ``always``: it also
        resumes after a success, and if the commands, the environment or the files have changed. ``never``: it begins at
        step 0. Templated.
    :param resume_from: the checkpoint from which this training starts until it has stored a checkpoint itself. To use
        the newest checkpoint of another training, give a mapping with its ``run_id``. Add its ``dag_id``, ``task_id``,
        and ``map_index`` or ``checkpoint_key`` if they differ from those of this task. The key ``snapshot`` selects an
        older checkpoint by its number. You can also give the URI of a checkpoint chain or a checkpoint. A task's result
        contains both URIs (``checkpoint_chain``, ``checkpoint_dir``). To return to an older checkpoint of this
        training, also set ``resume="never"``. An empty ``run_id`` or an empty text has no effect. Templated.
    :param warm_start: URI of a model directory on the job's store. At step 0, the training code can load its initial
        weights from the local copy in ``TONY_WARM_START``. You can also give the URI of a checkpoint, or the URI of a
        checkpoint chain to use its newest checkpoint. An empty text has no effect. To start from the model of an
        earlier period, use ``macros.tony.newest_model``. Templated.
    :param checkpoint_key: a name that identifies this training instead of the map index. The name must be unique among
        the mapped instances of the task. Set a key if the mapped list can change, because the same map index may then
        belong to another item; default: the map index. Templated.
    :param mlflow: ID of the connection to the MLflow server that records the training as a run. You can also give a
        mapping with the key ``conn_id`` and the optional keys ``experiment`` (default: the DAG's ID) and ``run_name``.
        This argument requires ``tony-provider[mlflow]``. See "Monitor jobs with Prometheus, statsd, OpenTelemetry and
        MLflow". Templated.
    :param durable: if False, each attempt of the task ends any earlier application, ignores its result, and starts a
        new application. The argument ``resume`` still applies.
    :param apply_advice: if True, the application requests the memory and vcores that earlier runs of this task needed,
        instead of the values in the job. After a failure, the next application requests the values in the job. To
        restrict the changes, map each value that may change to its limits, such as
        ``{"memory": {"at_least": "1GiB", "at_most": "16GiB"}, "vcores": {"at_most": 8}}``. By default, ``at_least`` is
        a quarter of the job's value, and ``at_most`` is twice this value. See "Advice on memory, vcores and other
        settings".
    :param on_kill_action: what happens to the application when a user clears this task or sets its state, or when the
        worker shuts down. With ``kill``, the application ends after a grace period for its user processes. With
        ``keep``, the application continues, and the next attempt of the task attaches to it. A task timeout always ends
        the application.
    :param show_output: tasks whose output appears in the Airflow task's log, in lines such as
        ``worker:0 | epoch 3, loss 0.21``. Give ``"leader"`` for the chief or rank 0, a list of tasks such as
        ``["worker:0", "evaluator:0"]``, or False for no output. The number of lines is limited, and the values of
        ``secrets`` are masked. See "Train a model in a DAG".
    :param multiple_outputs: whether each key of the result is a separate XCom, such as ``train.output["model_dir"]``.
    :return: see ``JobResult``.

    Raises TonySpecError, TonyJobRejected and TonyPermanentFailure, which Airflow does not retry. Also raises
    TonyJobFailed, TonyQueueTimeout, TonyKilledExternally and AirflowTaskTimeout, and ClusterError or StorageError
    during an outage.
    """

    template_fields: Sequence[str] = (
        "job",
        "overrides",
        "tony_conn_id",
        "name",
        "yarn_queue",
        "proxy_user",
        "env_vars",
        "resume",
        "resume_from",
        "warm_start",
        "checkpoint_key",
        "mlflow",
    )
    template_fields_renderers = {"job": "yaml", "overrides": "yaml", "env_vars": "yaml"}  # noqa: RUF012 - Airflow's form
    operator_extra_links = LINKS
    ui_color = "#ffdd88"

    def __init__(
        self,
        *,
        job: Mapping[str, Any] | str,
        overrides: Mapping[str, Any] | str | None = None,
        allowed_overrides: Sequence[str] = (),
        tony_conn_id: str = DEFAULT_CONN_ID,
        name: str | None = None,
        yarn_queue: str | None = None,
        proxy_user: str | None = None,
        env_vars: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        wait_for_completion: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | None = None,
        queue_timeout: timedelta | float | None = None,
        resume: str = "auto",
        resume_from: Mapping[str, Any] | str | None = None,
        warm_start: str | None = None,
        checkpoint_key: str | None = None,
        mlflow: Mapping[str, Any] | str | None = None,
        durable: bool = True,
        apply_advice: bool | Mapping[str, Mapping[str, Any]] = False,
        on_kill_action: Literal["kill", "keep"] = "kill",
        show_output: Literal["leader", False] | Sequence[str] = "leader",
        multiple_outputs: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(multiple_outputs=multiple_outputs, **kwargs)
        if on_kill_action not in ("kill", "keep"):
            raise ValueError(f"on_kill_action is {on_kill_action!r} and should be 'kill' or 'keep'")
        if poll_interval is not None:
            poll_interval = positive_seconds("poll_interval", poll_interval)
        self.job = job
        self.overrides = overrides
        self.allowed_overrides = names("allowed_overrides", allowed_overrides)
        self.tony_conn_id = tony_conn_id
        self.name = name
        self.yarn_queue = yarn_queue
        self.proxy_user = proxy_user
        self.env_vars = env_vars
        # Not a template field, because Airflow stores the values of template fields in its database. execute() renders
        # it instead.
        self.secrets = secrets
        self.wait_for_completion = yes_or_no("wait_for_completion", wait_for_completion)
        self.deferrable = yes_or_no("deferrable", deferrable)
        self.poll_interval = configuration.poll_interval() if poll_interval is None else poll_interval
        self.queue_timeout = queue_timeout
        self.resume = resume
        self.resume_from = resume_from
        self.warm_start = warm_start
        self.checkpoint_key = checkpoint_key
        self.mlflow = mlflow
        self.durable = yes_or_no("durable", durable)
        if apply_advice is not False:
            from tony_provider.advice.sizing import Limits  # here: few tasks use it

            Limits.parse(apply_advice)
        self.apply_advice = apply_advice
        self.on_kill_action = on_kill_action
        self.show_output = output_wanted(show_output)
        self.switch = KillSwitch()
        self.has_links = False  # whether this try has pushed the addresses of its links

    @cached_property
    def hook(self) -> TonyHook:
        from tony_provider.hooks.tony import TonyHook

        return TonyHook(self.tony_conn_id, self.proxy_user or None)

    def _training(self, context: Context) -> TrainingTry:
        from tony_provider.operators.training_try import TrainingTry

        return TrainingTry(self, context)

    @with_readable_errors
    def execute(self, context: Context) -> Any:
        training = self._training(context)
        with training.ending_cleanly():
            return training.run()

    @with_readable_errors
    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Continue after the trigger has stopped waiting. ``event`` is the trigger's WatchEvent as plain data."""
        training = self._training(context)
        with training.ending_cleanly():
            return training.continue_after_trigger(event)

    @with_readable_errors
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue a deferred task. Airflow calls this when the trigger has ended, failed, or timed out."""
        self.has_links = True
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (TaskDeferralError, TaskDeferralTimeout) as failure:
            training = self._training(context)
            with training.ending_cleanly():
                return training.continue_without_trigger(failure)

    def on_kill(self) -> None:
        """Stop waiting, and end the application unless ``on_kill_action`` is ``keep``.

        Airflow calls this from a signal handler, at any point of the task.
        """
        self.switch.pull(KILL_REASON if self.on_kill_action == "kill" else None)

    @with_readable_errors
    def dry_run(self) -> None:
        """Print the files of the submission and its requests to the cluster, as YAML with masked secrets.

        Outside a run, some templates cannot be rendered. If ``resume_from`` or ``warm_start`` is such a template, the
        output shows a training that begins at step 0. Raises the errors that an attempt of the task raises before it
        starts an application.
        """
        from tony_provider.operators.submission import print_submission

        print_submission(self)

    def parse_job(self, secrets: Collection[str]) -> ParsedJob:
        """Return the job with all arguments merged over it. ``secrets`` are names of secrets. Raises TonySpecError."""
        from tony_provider.operators.submission import ParsedJob, job_of, layers_of

        layers = layers_of(
            self.job,
            default_name=f"{self.dag_id}.{self.task_id}",
            name=self.name,
            queue=self.yarn_queue,
            env=self.env_vars,
            secrets=list(secrets),
            queue_timeout=self.queue_timeout,
            overrides=self.overrides,
            allowed_overrides=self.allowed_overrides,
            presets=lambda: self.hook.settings.presets,
        )
        return ParsedJob(job_of(layers, self.completed), layers)

    # -- hooks of operators that submit more than the job -------------------------------------------------------------

    def completed(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return keys that the operator merges over ``job``, which already contains the arguments and overrides."""
        return {}

    @contextmanager
    def sent(self, job: JobSpec) -> Iterator[JobSpec]:
        """Context manager that yields the job in the form in which it is submitted.

        The files that this job names exist until the context ends.
        """
        yield job

    def answer(self, context: Context, result: dict[str, Any]) -> Any:
        """Return the task's return value for a training's ``result``."""
        return without_empty_xcoms(result)
