"""The commands under ``airflow tony``. Imported by every `airflow` command, so it imports nothing heavy."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, ActionCommand, Arg, CLICommand, GroupCommand
from airflow.cli.cli_config import lazy_load_command as lazily


def _arg(*flags: str, **options: Any) -> Arg:
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


_CONNECTION = (
    _arg("--conn-id", help="The tony connection (default: %(default)s)", default="tony_default"),
    _arg("--proxy-user", help="Act for this user"),
    ARG_VERBOSE,
)
_APPLICATION = _arg("application_id", nargs="?", help="Such as application_1700000000000_0001")
_TAG = _arg("--tag", help="In place of an id: the newest application of the training with this tag (tony-…)")
_WHICH = (_APPLICATION, _TAG, *_CONNECTION)
_JOB = _arg("job", metavar="JOB.tony.yaml", help="The job specification, in YAML or JSON")
_SET = _arg(
    "--set",
    action="append",
    metavar="KEY=VALUE",
    help="Lay a value over the job's, such as tasks.worker.instances=4; may be given several times",
)
_QUEUE = _arg("--queue", help="YARN queue, in place of the job's and the connection's")

_SUBMIT = ActionCommand(
    name="submit",
    help="Run a job without a DAG",
    description=(
        "Start a job. Files that it names are looked for beside it. Submitted again with the same name and --run-id, "
        "it is the same training, and goes on from its newest checkpoint."
    ),
    func=lazily("tony_provider.cli.submit.submit"),
    args=(
        _JOB,
        *_CONNECTION,
        _SET,
        _QUEUE,
        _arg("--name", help="The job's name, in place of the one in its file"),
        _arg("--run-id", help="Which training this is, among your own of the job's name (default: the time)"),
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="A secret of the job, whose value is that of this environment variable; may be given several times",
        ),
        _arg("--wait", "--follow", action="store_true", help="Follow the job until it ends; exit with 1 when it fails"),
        _arg("-q", "--quiet", action="store_true", help="Print the application's id only"),
    ),
)
_STATUS = ActionCommand(
    name="status",
    help="Show the state of a job, and how far it is",
    description="The job and its tasks. --output plain has a line for each task, json and yaml have all there is.",
    func=lazily("tony_provider.cli.status.status"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("-w", "--watch", action="store_true", help="Until the job ends; exit with 1 when it fails"),
    ),
)
_LOGS = ActionCommand(
    name="logs",
    help="Show what the tasks of a job have printed",
    description="The kept logs of a job that has ended; of a running one the end of what its tasks have printed.",
    func=lazily("tony_provider.cli.logs.logs"),
    args=(
        *_WHICH,
        _arg("-t", "--task", help="Such as worker:0, or `am` for the application master (default: all tasks)"),
        _arg("-f", "--follow", action="store_true", help="Go on until the job ends"),
    ),
)
_KILL = ActionCommand(
    name="kill",
    help="End a job, with grace",
    description="Its tasks are asked to end, and its last checkpoints and logs are copied; then it is killed.",
    func=lazily("tony_provider.cli.kill.kill"),
    args=(
        *_WHICH,
        _arg("--reason", help="For its diagnostics, and for the log of a task that watches it"),
        _arg(
            "--grace",
            help="How long its tasks have between SIGTERM and SIGKILL, such as 30s (default: as the job says)",
        ),
    ),
)
_EXPORT = ActionCommand(
    name="export",
    help="Have a job that trains export its model",
    description=(
        "Ask the program for its model as it is now, and print where on the store it is. The job goes on. A program "
        "that never looks for such requests exports nothing: then the newest checkpoint is named."
    ),
    func=lazily("tony_provider.cli.export.export"),
    args=(
        *_WHICH,
        _arg("--reason", help="For the job's log and its events"),
        _arg(
            "--timeout",
            default="5m",
            help="How long to wait for it, such as 30s; 0s: only ask (default: %(default)s)",
        ),
    ),
)
_RENEW = ActionCommand(
    name="renew",
    help="Bring running jobs newer HDFS tokens",
    description=(
        "On clusters with Kerberos: a job whose task waits for it gets them by itself. For those of tasks with "
        "wait_for_completion=False run this regularly, such as once an hour; a token is brought once half the life of "
        "the job's own is over."
    ),
    func=lazily("tony_provider.cli.renew.renew"),
    args=(
        _arg("application_ids", nargs="*", metavar="application_id", help="Default: all that run"),
        *_CONNECTION,
        _arg("--now", action="store_true", help="However long the job's own token holds"),
    ),
)
_TENSORBOARD = ActionCommand(
    name="tensorboard",
    help="Draw the curves of jobs that run or have ended",
    description=(
        "Copy the jobs' event files from the store into a private directory, and show them by TensorBoard on this "
        "machine, until Ctrl-C. Needs the package tensorboard here."
    ),
    func=lazily("tony_provider.cli.tensorboard.tensorboard"),
    args=(
        _arg("application_ids", nargs="*", metavar="application_id", help="Such as application_1700000000000_0001"),
        _arg("--tag", action="append", help="The newest application of the training with this tag (tony-…)"),
        _arg("--dag-id", help="With --task-id and --run-id, the newest application of that training"),
        _arg("--task-id", help="The task of the DAG that trains"),
        _arg("--run-id", action="append", help="A run of the DAG; may be given several times, as may --tag"),
        _arg("--map-index", type=int, default=-1, help="Of a mapped task"),
        *_CONNECTION,
        _arg("--port", type=int, help="Of this machine (default: the first free one from 6006 on)"),
        _arg("--refresh", default="30s", help="How often to look for what is new (default: %(default)s)"),
        _arg("--most", default="8GiB", help="How much may be copied to this machine (default: %(default)s)"),
        _arg("--open", action="store_true", help="Open a browser"),
    ),
)
_ADVISE = ActionCommand(
    name="advise",
    help="Say what should be changed about a job",
    description="At most three things, by what the job asked for and used, and by former runs of its task.",
    func=lazily("tony_provider.cli.advise.advise"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("--explain", action="store_true", help="Print what each rule looks at, when it is silent, what to do"),
        _arg("--patch", action="store_true", help="Print the changes alone: JSON that `overrides` takes"),
    ),
)
_LIST = ActionCommand(
    name="list",
    help="List the jobs that a cluster runs",
    func=lazily("tony_provider.cli.listing.list_applications"),
    args=(
        *_CONNECTION,
        ARG_OUTPUT,
        _arg("--queue", help="Only those in this queue"),
        _arg("--user", help="Only those of this user"),
        _arg("--all", action="store_true", help="Those that have ended too, as far as the cluster remembers them"),
        _arg("--ended", action="store_true", help="Only those that have ended"),
    ),
)
_CHECK = ActionCommand(
    name="check",
    help="Check a job specification against a cluster",
    description=(
        "Whether the job could run: its form, its files, what the connection allows, and the queue, labels and sizes "
        "of the live cluster. Says of each key where it comes from: the job, its preset, the connection, the command "
        "line."
    ),
    func=lazily("tony_provider.cli.check.check"),
    args=(
        _JOB,
        *_CONNECTION,
        _SET,
        _QUEUE,
        _arg("--explain", action="store_true", help="Print the keys that have their default, too"),
    ),
)
_DOCTOR = ActionCommand(
    name="doctor",
    help="Find what is wrong with a connection",
    description=(
        "Look at everything that jobs need, from this host and within 10 seconds: ResourceManagers, NameNodes, "
        "Kerberos, the queue, the staging directory. Exits with 1 when something is wrong."
    ),
    func=lazily("tony_provider.cli.doctor.doctor"),
    args=(*_CONNECTION, ARG_OUTPUT),
)
_GC = ActionCommand(
    name="gc",
    help="Remove what old trainings have left in the staging directory",
    description=(
        "List old chains (checkpoints) and application directories (models, logs), and with --yes remove them. Those "
        "of trainings that run stay, and those that a published model or another checkpoint chain names."
    ),
    func=lazily("tony_provider.cli.gc.gc"),
    args=(
        *_CONNECTION,
        ARG_OUTPUT,
        _arg("--older-than", default="30d", help="Unchanged for so long, such as 12h or 30d (default: %(default)s)"),
        _arg("--keep-history", help="Keep what is known of jobs for so long, such as 365d (default: like the rest)"),
        _arg(
            "--models",
            action="append",
            metavar="URI",
            help=(
                "Where else models are published (versions/<any>/version.json) than below the staging directory; may "
                "be given several times"
            ),
        ),
        _arg("--dry-run", action="store_true", help="Only list (default)"),
        _arg("-y", "--yes", action="store_true", help="Really remove"),
    ),
)
_RUNTIME_BUILD = ActionCommand(
    name="build",
    help="Make a runtime archive for nodes whose Python is not the worker's",
    description=(
        "Download the runtime's dependencies for the given versions of Python, and pack them with the runtime "
        "into one archive. Name it as `runtime_archive` in the tony connection: a path on the workers, or the URI "
        "of a copy on HDFS."
    ),
    func=lazily("tony_provider.cli.runtime.build"),
    args=(
        _arg("--python", required=True, help="Versions of the nodes' Python, with commas between, such as 3.9,3.12"),
        _arg("--platform", help="Wheel platforms of the nodes, with commas between (default: Linux on x86_64)"),
        _arg("--output", default="tony-runtime.zip", help="The archive to write (default: %(default)s)"),
    ),
)


def get_tony_cli_commands() -> list[CLICommand]:
    """The group ``tony`` of commands that the provider adds to Airflow's command line."""
    runtime = GroupCommand(name="runtime", help="The runtime that travels to the nodes", subcommands=(_RUNTIME_BUILD,))
    shown = (_STATUS, _LOGS, _TENSORBOARD, _ADVISE, _LIST)
    commands = (_SUBMIT, _KILL, _EXPORT, _RENEW, *shown, _CHECK, _DOCTOR, _GC, runtime)
    return [GroupCommand(name="tony", help="Distributed training on YARN", subcommands=commands)]
