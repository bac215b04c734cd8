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
    _arg("--conn-id", help="ID of the Airflow connection of type tony (default: %(default)s)", default="tony_default"),
    _arg("--proxy-user", help="Cluster user to impersonate (default: the user of the connection)"),
    ARG_VERBOSE,
)
_APPLICATION = _arg(
    "application_id", nargs="?", help="Application ID of the job, such as application_1700000000000_0001"
)
_TAG = _arg(
    "--tag", help="Tag of a training (tony-…). Use it instead of an ID to select the training's newest application."
)
_WHICH = (_APPLICATION, _TAG, *_CONNECTION)
_JOB = _arg("job", metavar="JOB.tony.yaml", help="Path of the job file, in YAML or JSON")
_SET = _arg(
    "--set",
    action="append",
    metavar="KEY=VALUE",
    help="Override a value of the job, such as tasks.worker.instances=4. You can repeat this option.",
)
_PARAM = _arg(
    "--param",
    action="append",
    metavar="NAME=VALUE",
    help="Value of a parameter of the job file, such as workers=4. You can repeat this option.",
)
_FORCE = _arg("--force", action="store_true", help="Replace files that already exist")
_QUEUE = _arg("--queue", help="YARN queue of the job (default: the job's own queue, otherwise the connection's queue)")

_SUBMIT = ActionCommand(
    name="submit",
    help="Run a job without a DAG",
    description=(
        "Submit a job. Paths in the job are relative to the directory of the job file. If you give the name and the "
        "--run-id of an earlier job, the new job resumes the earlier training from its newest checkpoint."
    ),
    func=lazily("tony_provider.cli.submit.submit"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _SET,
        _QUEUE,
        _arg("--name", help="Name of the job (default: the name in the job file)"),
        _arg(
            "--run-id",
            help="Run ID, which identifies your training together with the job name (default: the current time)",
        ),
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="Name of a secret. Its value is in the environment variable of this name. You can repeat this option.",
        ),
        _arg(
            "--wait",
            "--follow",
            action="store_true",
            help="Follow the job until it ends. Exit with 1 if the job fails.",
        ),
        _arg("-q", "--quiet", action="store_true", help="Print only the ID of the application"),
    ),
)
_STATUS = ActionCommand(
    name="status",
    help="Show the state and progress of a job",
    description=(
        "Show the state of a job and its tasks. With --output plain, the command prints one line for each task. With "
        "--output json or yaml, the command prints all data."
    ),
    func=lazily("tony_provider.cli.show_status.status"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("-w", "--watch", action="store_true", help="Follow the job until it ends. Exit with 1 if the job fails."),
        _arg(
            "--story",
            metavar="TASK",
            help=(
                "Show the state transitions of a task, such as worker:3, and their reasons. If the job has ended, show "
                "the events of the task."
            ),
        ),
    ),
)
_LOGS = ActionCommand(
    name="logs",
    help="Show the output of a job's tasks",
    description="Show the stored logs of an ended job, or the last output of the tasks of a running job.",
    func=lazily("tony_provider.cli.logs.logs"),
    args=(
        *_WHICH,
        _arg(
            "-t",
            "--task",
            help="Task whose output is shown, such as worker:0; `am`: the application master (default: all tasks)",
        ),
        _arg("-f", "--follow", action="store_true", help="Follow the output until the job ends"),
    ),
)
_KILL = ActionCommand(
    name="kill",
    help="Kill a job after a grace period",
    description=(
        "Stop the tasks of a job with SIGTERM, store the last checkpoints and logs of the job, and kill the job."
    ),
    func=lazily("tony_provider.cli.job_actions.kill"),
    args=(
        *_WHICH,
        _arg(
            "--reason",
            help="Reason that is shown in the job's diagnostics and in the log of an Airflow task that watches the job",
        ),
        _arg(
            "--grace",
            help="Time between SIGTERM and SIGKILL of the tasks, such as 30s (default: the time in the job)",
        ),
    ),
)
_REASON = _arg("--reason", help="Reason that is shown in the job's log, in its events and on its page")
_SUSPEND = ActionCommand(
    name="suspend",
    help="Suspend a job: save a checkpoint and release all containers",
    description=(
        "Stop the tasks of a job after a checkpoint, and release all containers except the container of the "
        "application master. The job stays suspended until you run `airflow tony resume`. The Airflow task of the job "
        "continues to wait."
    ),
    func=lazily("tony_provider.cli.job_actions.suspend"),
    args=(*_WHICH, _REASON),
)
_RESUME = ActionCommand(
    name="resume",
    help="Resume a suspended job",
    description="Request the containers of a suspended job again, and resume the job from its newest checkpoint.",
    func=lazily("tony_provider.cli.job_actions.resume"),
    args=(*_WHICH, _REASON),
)
_RESIZE = ActionCommand(
    name="resize",
    help="Change the number of tasks of a task type",
    description=(
        "Set the number of tasks of a task type, from min_instances to max_instances of the type. The job requests "
        "more containers while it trains, and continues with the new number of tasks from its next checkpoint. The "
        "command rejects a number of tasks that can never fit on the cluster."
    ),
    func=lazily("tony_provider.cli.job_actions.resize"),
    args=(
        *_WHICH,
        _arg(
            "counts", nargs="+", metavar="TYPE=NUMBER", help="Task type and its new number of tasks, such as worker=4"
        ),
        _REASON,
    ),
)
_CHECKPOINT = ActionCommand(
    name="checkpoint",
    help="Copy a checkpoint of a job to a local directory",
    description=(
        "Restore and verify the files of a job's newest checkpoint, or of an older checkpoint that is still stored."
    ),
    func=lazily("tony_provider.cli.job_actions.checkpoint"),
    args=(
        *_WHICH,
        _arg("directory", help="Path of the local directory that the command creates"),
        _arg(
            "--snapshot",
            type=int,
            help="Number of the checkpoint, as `airflow tony status` shows it (default: the newest checkpoint)",
        ),
        _arg(
            "--rank",
            type=int,
            default=0,
            help="Rank of the task whose files are used if several tasks stored the same path (default: %(default)s)",
        ),
    ),
)
_EXPORT = ActionCommand(
    name="export",
    help="Export the model of a running job",
    description=(
        "Request the present model from the program of a job, and print the model's URI on the store. The job "
        "continues. If the program does not check for such requests, the error message contains the newest checkpoint."
    ),
    func=lazily("tony_provider.cli.job_actions.export"),
    args=(
        *_WHICH,
        _arg("--reason", help="Reason that is shown in the job's log and events"),
        _arg(
            "--timeout",
            default="5m",
            help=(
                "Maximum time to wait for the export, such as 30s. With 0s, the command only sends the request "
                "(default: %(default)s)."
            ),
        ),
    ),
)
_RENEW = ActionCommand(
    name="renew",
    help="Send running jobs new HDFS tokens",
    description=(
        "Replace the HDFS tokens of running jobs on a Kerberos cluster. An Airflow task that waits for its job sends "
        "new tokens itself. For tasks with wait_for_completion=False, run this command regularly, for example hourly. "
        "A job receives a new token after half the lifetime of its present token."
    ),
    func=lazily("tony_provider.cli.maintenance.renew"),
    args=(
        _arg(
            "application_ids",
            nargs="*",
            metavar="application_id",
            help="Application IDs (default: all running applications)",
        ),
        *_CONNECTION,
        _arg("--now", action="store_true", help="Send each job a new token, even if its present token is still new"),
    ),
)
_TENSORBOARD = ActionCommand(
    name="tensorboard",
    help="Show running and ended jobs in TensorBoard",
    description=(
        "Copy the event files of jobs from the store into a private directory, and show the files in TensorBoard on "
        "this machine. The command runs until you press Ctrl-C. This machine needs the package tensorboard."
    ),
    func=lazily("tony_provider.cli.local_tensorboard.tensorboard"),
    args=(
        _arg(
            "application_ids",
            nargs="*",
            metavar="application_id",
            help="Application IDs of the jobs to show, such as application_1700000000000_0001",
        ),
        _arg(
            "--tag",
            action="append",
            help="Tag of a training (tony-…), to show the training's newest application. You can repeat this option.",
        ),
        _arg(
            "--dag-id", help="DAG ID. Together with --task-id and --run-id, it selects a training's newest application."
        ),
        _arg("--task-id", help="ID of the training task in the DAG"),
        _arg("--run-id", action="append", help="ID of the DAG run. You can repeat this option."),
        _arg("--map-index", type=int, default=-1, help="Map index of the training task (default: not mapped)"),
        *_CONNECTION,
        _arg("--port", type=int, help="Local port of TensorBoard (default: the first free port from 6006)"),
        _arg("--refresh", default="30s", help="Time between two checks for new data (default: %(default)s)"),
        _arg("--most", default="8GiB", help="Maximum size of all local copies (default: %(default)s)"),
        _arg("--open", action="store_true", help="Open a browser"),
    ),
)
_TUNNEL = ActionCommand(
    name="tunnel",
    help="Forward a local port to a server of a running job",
    description=(
        "Forward a port of this machine's loopback interface to a port on which a task's program listens, such as the "
        "port of a notebook or a dashboard. The connection passes through the application master. The command runs "
        "until you press Ctrl-C."
    ),
    func=lazily("tony_provider.cli.open_tunnel.tunnel"),
    args=(
        _arg("application_id", help="Application ID of the running job, such as application_1700000000000_0001"),
        _arg(
            "task",
            metavar="TASK[:PORT]",
            help="Task and port of its program, such as worker:0:20888 (default port: TONY_PORT of the task)",
        ),
        *_CONNECTION,
        _arg("--local-port", type=int, default=0, help="Port of this machine for the tunnel (default: any free port)"),
    ),
)
_NOTEBOOK = ActionCommand(
    name="notebook",
    help="Open a notebook in the environment of a job's task",
    description=(
        "Run Jupyter in one container that has the environment, files, inputs and resources of a job's task. The "
        "command connects to the notebook until you press Ctrl-C. The notebook then continues to run. Use the same "
        "name to reconnect to the notebook, or to reopen its stored work later. With --of, the notebook has the newest "
        "checkpoint of a training."
    ),
    func=lazily("tony_provider.cli.notebook.notebook"),
    args=(
        _arg("job", nargs="?", metavar="JOB.tony.yaml", help="Path of the job file whose task the notebook copies"),
        *_CONNECTION,
        _arg(
            "--of",
            metavar="APPLICATION",
            help="ID of the application whose task and newest checkpoint the notebook copies",
        ),
        _arg(
            "--tag",
            help="Tag of a training (tony-…). Use it instead of --of to select the training's newest application.",
        ),
        _arg(
            "--dag-id", help="DAG ID. Together with --task-id and --run-id, it selects a training's newest application."
        ),
        _arg("--task-id", help="ID of the training task in the DAG"),
        _arg("--run-id", help="ID of the DAG run"),
        _arg("--map-index", type=int, default=-1, help="Map index of the training task (default: not mapped)"),
        _arg(
            "-y",
            "--yes",
            action="store_true",
            help="Allow objects in the application's history that are outside the cache of the staging directory",
        ),
        _arg("--task", metavar="TYPE", help="Task type that the notebook copies (default: the leading type)"),
        _arg("--name", help="Name that identifies your notebook (default: the job name)"),
        _PARAM,
        _arg(
            "--set",
            action="append",
            metavar="KEY=VALUE",
            help="Override a value of the job, such as tasks.notebook.memory=8GiB. You can repeat this option.",
        ),
        _QUEUE,
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="Name of a secret. Its value is in the environment variable of this name. You can repeat this option.",
        ),
        _arg(
            "--idle",
            default="1h",
            help=(
                "Time without activity after which the notebook ends. With 0s, inactivity never ends the notebook "
                "(default: %(default)s)."
            ),
        ),
        _arg("--lifetime", help="Time after which the notebook ends (default: 12h, or the connection's lower limit)"),
        _arg("--keep", default="1GiB", help="Maximum size of the notebook's stored work (default: %(default)s)"),
        _arg("--local-port", type=int, default=0, help="Port of this machine for the tunnel (default: any free port)"),
        _arg("--open", action="store_true", help="Open a browser"),
        _arg("-d", "--detach", action="store_true", help="Submit the notebook and exit, without connecting to it"),
    ),
)
_ADVISE = ActionCommand(
    name="advise",
    help="Recommend changes to a job",
    description=(
        "Print at most three recommendations for a job. They are based on the requested and used resources, and on "
        "earlier runs."
    ),
    func=lazily("tony_provider.cli.diagnose.advise"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("--explain", action="store_true", help="Also print the documentation of each recommendation's rule"),
        _arg("--patch", action="store_true", help="Print only the recommended changes, as JSON for `overrides`"),
    ),
)
_LIST = ActionCommand(
    name="list",
    help="List the jobs of a cluster",
    func=lazily("tony_provider.cli.show_status.list_applications"),
    args=(
        *_CONNECTION,
        ARG_OUTPUT,
        _arg("--queue", help="List only jobs in this queue"),
        _arg("--user", help="List only jobs of this user"),
        _arg("--all", action="store_true", help="Also list ended jobs that are still in the cluster's records"),
        _arg("--ended", action="store_true", help="List only ended jobs"),
    ),
)
_CHECK = ActionCommand(
    name="check",
    help="Check a job specification against a cluster",
    description=(
        "Check whether a job can run. The command checks the syntax, the files, the connection's limits, and the "
        "queue, labels and sizes of the live cluster. It also prints the origin of each key: the job, its preset, the "
        "connection, or the command line."
    ),
    func=lazily("tony_provider.cli.submit.check"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _SET,
        _QUEUE,
        _arg("--explain", action="store_true", help="Also print the keys that have their default value"),
    ),
)
_DOCTOR = ActionCommand(
    name="doctor",
    help="Check a connection",
    description=(
        "Check everything that jobs need: ResourceManagers, NameNodes, Kerberos, the queue and the staging directory. "
        "The command checks from this host and takes at most 10 seconds. It exits with 1 if it finds a problem."
    ),
    func=lazily("tony_provider.cli.diagnose.doctor"),
    args=(*_CONNECTION, ARG_OUTPUT),
)
_GC = ActionCommand(
    name="gc",
    help="Remove files of old trainings from the staging directory",
    description=(
        "List old checkpoint chains, application directories (models and logs) and built Python environments. With "
        "--yes, the command also removes them. The command keeps files of running trainings. It also keeps files to "
        "which a published model or another checkpoint chain refers."
    ),
    func=lazily("tony_provider.cli.maintenance.gc"),
    args=(
        *_CONNECTION,
        ARG_OUTPUT,
        _arg(
            "--older-than",
            default="30d",
            help="Minimum time since the last change of the files, such as 12h (default: %(default)s)",
        ),
        _arg(
            "--keep-history",
            help="Minimum time to keep the history of jobs, such as 365d (default: the time of --older-than)",
        ),
        _arg(
            "--models",
            action="append",
            metavar="URI",
            help=(
                "Directory with published models (versions/<any>/version.json) outside the staging directory. You can "
                "repeat this option."
            ),
        ),
        _arg("--dry-run", action="store_true", help="List the files without removing them. This is the default."),
        _arg("-y", "--yes", action="store_true", help="Remove the listed files"),
    ),
)
_IMPORT = ActionCommand(
    name="import",
    help="Convert a job of another system",
    description=(
        "Read a job of TonY, Skein, YARN services, Hbox, tf-yarn or TorchX, and write the job as a job file, as a DAG, "
        "or as both. The command lists all settings that it does not carry over, and the reasons. It executes no code "
        "of the input."
    ),
    func=lazily("tony_provider.cli.job_file.import_job"),
    args=(
        _arg(
            "words",
            nargs="+",
            metavar="FILE or CALL",
            help="File of the other system, or a whole command line of the other system after --",
        ),
        _arg(
            "--from",
            dest="system",
            choices=("tony", "skein", "yarn-service", "hbox", "tf-yarn", "torchx"),
            help="System to convert from (default: detected from the input)",
        ),
        _arg("--command", help="Command of tasks that have no command in the input, such as 'python train.py'"),
        _SET,
        _arg("-o", "--output", metavar="JOB.tony.yaml", help="Job file to write (default: the job is printed)"),
        _arg("--dag", metavar="DAG.py", help="DAG file to write, which contains the job"),
        _arg("--dag-id", help="ID of the new DAG (default: an ID derived from the job name)"),
        _FORCE,
        ARG_VERBOSE,
    ),
)
_DAG = ActionCommand(
    name="dag",
    help="Write a DAG that runs a job",
    description=(
        "Write a DAG file that contains a job, so that you can edit it. The parameters of the job file become params "
        "of the DAG. They keep their types and limits, and appear in the trigger form of the DAG."
    ),
    func=lazily("tony_provider.cli.job_file.dag"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _arg("-o", "--output", metavar="DAG.py", help="DAG file to write (default: the DAG is printed)"),
        _arg("--dag-id", help="ID of the new DAG (default: an ID derived from the job name)"),
        _arg("--schedule", help="Schedule of the DAG, such as @daily (default: no schedule, only triggered runs)"),
        _arg("--retries", type=int, help="Number of retries of the DAG's task (default: Airflow's default)"),
        _FORCE,
    ),
)
_RUNTIME_BUILD = ActionCommand(
    name="build",
    help="Build a runtime archive for nodes whose Python differs from the worker's",
    description=(
        "Download the dependencies of the runtime for the given versions of Python, and pack them and the runtime into "
        "one archive. Set `runtime_archive` in the tony connection to this archive: a path on the workers, or the URI "
        "of a copy on HDFS."
    ),
    func=lazily("tony_provider.cli.maintenance.build_runtime"),
    args=(
        _arg("--python", required=True, help="Python versions of the nodes, separated by commas, such as 3.9,3.12"),
        _arg(
            "--platform",
            help="Platforms of the nodes, as in wheel names, separated by commas (default: Linux on x86_64)",
        ),
        _arg("--output", default="tony-runtime.zip", help="Path of the archive to write (default: %(default)s)"),
    ),
)
_ENV_BUILD = ActionCommand(
    name="build",
    help="Build a Python environment for jobs from a requirements file",
    description=(
        "Install requirements for the Python of the nodes, pack them, and store them in the staging directory's cache. "
        "Another call with the same requirements builds nothing. The command prints the URI for the job's key "
        "python_env."
    ),
    func=lazily("tony_provider.cli.maintenance.build_env"),
    args=(
        _arg("requirements", help="Requirements file of pip (with or without hashes), or a pylock.toml file"),
        *_CONNECTION,
        _arg("--python", help="Python version of the nodes, such as 3.12 (default: the version of this Python)"),
        _arg(
            "--platform",
            help=(
                "Platform of the nodes, as in wheel names, such as manylinux_2_28_x86_64 (default: the platform of "
                "this machine)"
            ),
        ),
        _arg(
            "--shared",
            action="store_true",
            help="Store the environment in the connection's shared_cache, for all users",
        ),
        _arg(
            "--installer",
            choices=("uv", "pip"),
            help="Installer of packages (default: uv if it is installed, otherwise pip)",
        ),
    ),
)
_PORTAL_REBUILD = ActionCommand(
    name="rebuild",
    help="Restore the portal's list of jobs from the store",
    description=(
        "Read the staging directory, and write the summaries of jobs to Airflow's database. The command writes a "
        "summary only if the database has no final summary of the job. Airflow versions after 3.3 discard summaries "
        "when a task is cleared. The command writes at most 20 jobs for each task instance, and only jobs whose DAG "
        "run exists in Airflow."
    ),
    func=lazily("tony_provider.cli.maintenance.rebuild"),
    args=(*_CONNECTION, ARG_OUTPUT),
)


def get_tony_cli_commands() -> list[CLICommand]:
    """Return the command group ``tony`` that the provider adds to Airflow's command line."""
    runtime = GroupCommand(name="runtime", help="Build the runtime for the nodes", subcommands=(_RUNTIME_BUILD,))
    env = GroupCommand(name="env", help="Build Python environments for jobs", subcommands=(_ENV_BUILD,))
    portal = GroupCommand(name="portal", help="Maintain the portal in Airflow's pages", subcommands=(_PORTAL_REBUILD,))
    shown = (_STATUS, _LOGS, _CHECKPOINT, _TENSORBOARD, _NOTEBOOK, _TUNNEL, _ADVISE, _LIST)
    steered = (_KILL, _SUSPEND, _RESUME, _RESIZE, _EXPORT, _RENEW)
    commands = (_SUBMIT, *steered, *shown, _CHECK, _IMPORT, _DAG, _DOCTOR, _GC, env, portal, runtime)
    return [GroupCommand(name="tony", help="Run and inspect distributed training on YARN", subcommands=commands)]
