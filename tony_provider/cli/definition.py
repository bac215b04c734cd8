"""Definitions of the commands below ``airflow tony``.

Every `airflow` command imports this module, so it imports nothing heavy.
"""

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
_PARAM = _arg(
    "--param",
    action="append",
    metavar="NAME=VALUE",
    help="A value for one of the file's parameters, such as workers=4; may be given several times",
)
_FORCE = _arg("--force", action="store_true", help="Replace a file that is there")
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
        _PARAM,
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
    func=lazily("tony_provider.cli.show_status.status"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("-w", "--watch", action="store_true", help="Until the job ends; exit with 1 when it fails"),
        _arg(
            "--story",
            metavar="TASK",
            help="Show how a task, such as worker:3, has come to its state, and why (of an ended job: its events)",
        ),
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
    func=lazily("tony_provider.cli.job_actions.kill"),
    args=(
        *_WHICH,
        _arg("--reason", help="For its diagnostics, and for the log of a task that watches it"),
        _arg(
            "--grace",
            help="How long its tasks have between SIGTERM and SIGKILL, such as 30s (default: as the job says)",
        ),
    ),
)
_REASON = _arg("--reason", help="For the job's log, its events and its page")
_SUSPEND = ActionCommand(
    name="suspend",
    help="Have a job give all its containers back, and wait",
    description=(
        "After a checkpoint the job's tasks are stopped, and nothing but its application master is left of it on the "
        "cluster, until `airflow tony resume`. Its task in Airflow goes on waiting."
    ),
    func=lazily("tony_provider.cli.job_actions.suspend"),
    args=(*_WHICH, _REASON),
)
_RESUME = ActionCommand(
    name="resume",
    help="Have a job that was suspended go on",
    description="Its containers are asked for again, and it goes on from its newest checkpoint.",
    func=lazily("tony_provider.cli.job_actions.resume"),
    args=(*_WHICH, _REASON),
)
_RESIZE = ActionCommand(
    name="resize",
    help="Have a job go on with more tasks of a type, or with fewer",
    description=(
        "Within min_instances and max_instances of the type. More containers are asked for while the job trains, and "
        "it goes on with them, or with fewer, from its next checkpoint. What the cluster could never hold is refused."
    ),
    func=lazily("tony_provider.cli.job_actions.resize"),
    args=(
        *_WHICH,
        _arg("counts", nargs="+", metavar="TYPE=NUMBER", help="How many tasks there are to be, such as worker=4"),
        _REASON,
    ),
)
_CHECKPOINT = ActionCommand(
    name="checkpoint",
    help="Copy a checkpoint of a job to a local directory",
    description="Restore and verify the files of the job's newest checkpoint, or of an older one that is still kept.",
    func=lazily("tony_provider.cli.job_actions.checkpoint"),
    args=(
        *_WHICH,
        _arg("directory", help="A directory that the command creates"),
        _arg("--snapshot", type=int, help="The number of the checkpoint, as `airflow tony status` lists it"),
        _arg("--rank", type=int, default=0, help="The task whose own files come first (default: %(default)s)"),
    ),
)
_EXPORT = ActionCommand(
    name="export",
    help="Have a job that trains export its model",
    description=(
        "Ask the program for its model as it is now, and print where on the store it is. The job goes on. A program "
        "that never looks for such requests exports nothing: then the newest checkpoint is named."
    ),
    func=lazily("tony_provider.cli.job_actions.export"),
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
    func=lazily("tony_provider.cli.maintenance.renew"),
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
    func=lazily("tony_provider.cli.local_tensorboard.tensorboard"),
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
_TUNNEL = ActionCommand(
    name="tunnel",
    help="Reach a server of a running job from this machine",
    description=(
        "Have a port of this machine's loopback lead to a port that a task's program listens on, such as a notebook or "
        "a dashboard, through the application's master, until Ctrl-C."
    ),
    func=lazily("tony_provider.cli.open_tunnel.tunnel"),
    args=(
        _arg("application_id", help="Such as application_1700000000000_0001"),
        _arg("task", metavar="TASK[:PORT]", help="Such as worker:0:8888 (default: the port of TONY_PORT)"),
        *_CONNECTION,
        _arg("--local-port", type=int, default=0, help="Of this machine (default: any that is free)"),
    ),
)
_NOTEBOOK = ActionCommand(
    name="notebook",
    help="Open a notebook with what a job's task has",
    description=(
        "Run Jupyter in one container with the environment, files, inputs and resources of a job's task, and lead to "
        "it until Ctrl-C; the notebook goes on. With the same name it is found again while it runs, and later its work "
        "is. With --of it has the newest checkpoint of a training."
    ),
    func=lazily("tony_provider.cli.notebook.notebook"),
    args=(
        _arg("job", nargs="?", metavar="JOB.tony.yaml", help="The job whose task it is like"),
        *_CONNECTION,
        _arg("--of", metavar="APPLICATION", help="Like a task of this application, with its newest checkpoint"),
        _arg("--tag", help="In place of --of: the newest application of the training with this tag (tony-…)"),
        _arg("--dag-id", help="With --task-id and --run-id, the newest application of that training"),
        _arg("--task-id", help="The task of the DAG that trains"),
        _arg("--run-id", help="The run of the DAG"),
        _arg("--map-index", type=int, default=-1, help="Of a mapped task"),
        _arg(
            "-y",
            "--yes",
            action="store_true",
            help="Use objects outside of the staging directory's cache that the application's history names",
        ),
        _arg("--task", metavar="TYPE", help="The task type that it is like (default: the one that leads)"),
        _arg("--name", help="Which of your notebooks it is (default: the job's name)"),
        _PARAM,
        _arg(
            "--set",
            action="append",
            metavar="KEY=VALUE",
            help="Lay a value over the notebook's job, such as tasks.notebook.memory=8GiB; may be given several times",
        ),
        _QUEUE,
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="A secret of the job, whose value is that of this environment variable; may be given several times",
        ),
        _arg("--idle", default="1h", help="It ends when nothing went on for so long; 0s: never (default: %(default)s)"),
        _arg("--lifetime", help="It ends after so long at the latest (default: 12h, or what the connection allows)"),
        _arg("--keep", default="1GiB", help="How much of its work is kept, at most (default: %(default)s)"),
        _arg("--local-port", type=int, default=0, help="Of this machine (default: any that is free)"),
        _arg("--open", action="store_true", help="Open a browser"),
        _arg("-d", "--detach", action="store_true", help="Only submit it"),
    ),
)
_ADVISE = ActionCommand(
    name="advise",
    help="Say what should be changed about a job",
    description="At most three things, by what the job asked for and used, and by former runs of its task.",
    func=lazily("tony_provider.cli.diagnose.advise"),
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
    func=lazily("tony_provider.cli.show_status.list_applications"),
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
    func=lazily("tony_provider.cli.submit.check"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
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
    func=lazily("tony_provider.cli.diagnose.doctor"),
    args=(*_CONNECTION, ARG_OUTPUT),
)
_GC = ActionCommand(
    name="gc",
    help="Remove what old trainings have left in the staging directory",
    description=(
        "List old chains (checkpoints), application directories (models, logs) and built Python environments, and with "
        "--yes remove them. Those of trainings that run stay, and those that a published model or another checkpoint "
        "chain names."
    ),
    func=lazily("tony_provider.cli.maintenance.gc"),
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
_IMPORT = ActionCommand(
    name="import",
    help="Write a job of another system as one of ours",
    description=(
        "Read what TonY, Skein, YARN services, Hbox, tf-yarn or TorchX are given, and write the job, and a DAG around "
        "it; what could not be carried over is listed with the reason. Nothing of theirs is executed."
    ),
    func=lazily("tony_provider.cli.job_file.import_job"),
    args=(
        _arg(
            "words",
            nargs="+",
            metavar="FILE or CALL",
            help="A file of theirs; or, after --, their whole command as it is typed",
        ),
        _arg(
            "--from",
            dest="system",
            choices=("tony", "skein", "yarn-service", "hbox", "tf-yarn", "torchx"),
            help="Whose it is (default: as it looks)",
        ),
        _arg("--command", help="What those tasks run of which nothing says it, such as 'python train.py'"),
        _SET,
        _arg("-o", "--output", metavar="JOB.tony.yaml", help="The job file to write (default: print it)"),
        _arg("--dag", metavar="DAG.py", help="A DAG file to write, with the job in it"),
        _arg("--dag-id", help="The DAG's id (default: by the job's name)"),
        _FORCE,
        ARG_VERBOSE,
    ),
)
_DAG = ActionCommand(
    name="dag",
    help="Write a DAG around a job",
    description=(
        "A DAG file with the job in it, to be read and changed. The job's parameters become the DAG's, with their "
        "types and limits, and so a form when it is triggered."
    ),
    func=lazily("tony_provider.cli.job_file.dag"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _arg("-o", "--output", metavar="DAG.py", help="The DAG file to write (default: print it)"),
        _arg("--dag-id", help="The DAG's id (default: by the job's name)"),
        _arg("--schedule", help="When it runs, such as @daily (default: when it is triggered)"),
        _arg("--retries", type=int, help="Of its task"),
        _FORCE,
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
    func=lazily("tony_provider.cli.maintenance.build_runtime"),
    args=(
        _arg("--python", required=True, help="Versions of the nodes' Python, with commas between, such as 3.9,3.12"),
        _arg("--platform", help="Wheel platforms of the nodes, with commas between (default: Linux on x86_64)"),
        _arg("--output", default="tony-runtime.zip", help="The archive to write (default: %(default)s)"),
    ),
)
_ENV_BUILD = ActionCommand(
    name="build",
    help="Build a Python environment for jobs of a file of requirements",
    description=(
        "Install requirements for a Python that the nodes have, pack them, and put them into the staging directory's "
        "cache, once for each content: another call with the same requirements builds nothing. Prints the URI for the "
        "job's key python_env."
    ),
    func=lazily("tony_provider.cli.maintenance.build_env"),
    args=(
        _arg("requirements", help="A file of requirements in pip's form, with or without hashes, or a pylock.toml"),
        *_CONNECTION,
        _arg("--python", help="The nodes' Python, such as 3.12 (default: this one's version)"),
        _arg(
            "--platform",
            help="The nodes' platform, as wheels name it, such as manylinux_2_28_x86_64 (default: this machine's)",
        ),
        _arg("--shared", action="store_true", help="Put it into the connection's shared_cache, for all users"),
        _arg("--installer", choices=("uv", "pip"), help="What installs (default: uv where it is there, else pip)"),
    ),
)
_PORTAL_REBUILD = ActionCommand(
    name="rebuild",
    help="List jobs in the portal by what they have left on the store",
    description=(
        "Read the staging directory, and write the summaries of jobs to Airflow's database, of which Airflow has none "
        "or none with an end: versions after 3.3 discard them when a task is cleared. At most 20 jobs for each task "
        "instance, and only those whose DAG run Airflow has."
    ),
    func=lazily("tony_provider.cli.maintenance.rebuild"),
    args=(*_CONNECTION, ARG_OUTPUT),
)


def get_tony_cli_commands() -> list[CLICommand]:
    """Return the command group ``tony`` that the provider adds to Airflow's command line."""
    runtime = GroupCommand(name="runtime", help="The runtime that travels to the nodes", subcommands=(_RUNTIME_BUILD,))
    env = GroupCommand(name="env", help="Python environments of jobs", subcommands=(_ENV_BUILD,))
    portal = GroupCommand(name="portal", help="The portal in Airflow's pages", subcommands=(_PORTAL_REBUILD,))
    shown = (_STATUS, _LOGS, _CHECKPOINT, _TENSORBOARD, _NOTEBOOK, _TUNNEL, _ADVISE, _LIST)
    steered = (_KILL, _SUSPEND, _RESUME, _RESIZE, _EXPORT, _RENEW)
    commands = (_SUBMIT, *steered, *shown, _CHECK, _IMPORT, _DAG, _DOCTOR, _GC, env, portal, runtime)
    return [GroupCommand(name="tony", help="Distributed training on YARN", subcommands=commands)]
