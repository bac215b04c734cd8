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
    _arg("--conn-id", help="Connection of type tony (default: %(default)s)", default="tony_default"),
    _arg("--proxy-user", help="User to impersonate (default: none)"),
    ARG_VERBOSE,
)
_APPLICATION = _arg("application_id", nargs="?", help="Application ID, such as application_1700000000000_0001")
_TAG = _arg("--tag", help="Tag of a training (tony-…), instead of an ID: selects its newest application")
_WHICH = (_APPLICATION, _TAG, *_CONNECTION)
_JOB = _arg("job", metavar="JOB.tony.yaml", help="Job file, in YAML or JSON")
_SET = _arg(
    "--set",
    action="append",
    metavar="KEY=VALUE",
    help="Override a value of the job, such as tasks.worker.instances=4; may be given several times",
)
_PARAM = _arg(
    "--param",
    action="append",
    metavar="NAME=VALUE",
    help="Value of a parameter of the job file, such as workers=4; may be given several times",
)
_FORCE = _arg("--force", action="store_true", help="Replace an existing file")
_QUEUE = _arg("--queue", help="YARN queue (default: the queue of the job or of the connection)")

_SUBMIT = ActionCommand(
    name="submit",
    help="Run a job without a DAG",
    description=(
        "Submit a job. Paths of its files are relative to the directory of the job file. With the name and --run-id of "
        "an earlier job, the job resumes that training from its newest checkpoint."
    ),
    func=lazily("tony_provider.cli.submit.submit"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _SET,
        _QUEUE,
        _arg("--name", help="Job name (default: the name in the job file)"),
        _arg("--run-id", help="Run ID: with the job name, it identifies your training (default: the current time)"),
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="Secret of the job, with the value of this environment variable; may be given several times",
        ),
        _arg("--wait", "--follow", action="store_true", help="Follow the job until it ends; exit with 1 if it fails"),
        _arg("-q", "--quiet", action="store_true", help="Print only the application ID"),
    ),
)
_STATUS = ActionCommand(
    name="status",
    help="Show the state and progress of a job",
    description="Show a job and its tasks. --output plain prints a line for each task, json and yaml print all data.",
    func=lazily("tony_provider.cli.show_status.status"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("-w", "--watch", action="store_true", help="Follow the job until it ends; exit with 1 if it fails"),
        _arg(
            "--story",
            metavar="TASK",
            help="Show the state transitions of a task, such as worker:3, with reasons (of an ended job: its events)",
        ),
    ),
)
_LOGS = ActionCommand(
    name="logs",
    help="Show the output of a job's tasks",
    description="Show the stored logs of an ended job, or the end of the output of a running job's tasks.",
    func=lazily("tony_provider.cli.logs.logs"),
    args=(
        *_WHICH,
        _arg("-t", "--task", help="Task, such as worker:0, or `am` for the application master (default: all tasks)"),
        _arg("-f", "--follow", action="store_true", help="Follow the output until the job ends"),
    ),
)
_KILL = ActionCommand(
    name="kill",
    help="Kill a job after a grace period",
    description="Stop the job's tasks with SIGTERM, store its last checkpoints and logs, and kill the job.",
    func=lazily("tony_provider.cli.job_actions.kill"),
    args=(
        *_WHICH,
        _arg("--reason", help="Reason, for the job's diagnostics and for the log of a task that watches the job"),
        _arg(
            "--grace",
            help="Time between SIGTERM and SIGKILL of the tasks, such as 30s (default: as the job specifies)",
        ),
    ),
)
_REASON = _arg("--reason", help="Reason, for the job's log, events and page")
_SUSPEND = ActionCommand(
    name="suspend",
    help="Suspend a job: save a checkpoint and release all containers",
    description=(
        "Stop the job's tasks after a checkpoint, and release all containers except the application master's, until "
        "`airflow tony resume`. The job's task in Airflow continues to wait."
    ),
    func=lazily("tony_provider.cli.job_actions.suspend"),
    args=(*_WHICH, _REASON),
)
_RESUME = ActionCommand(
    name="resume",
    help="Resume a suspended job",
    description="Request the job's containers again, and resume from its newest checkpoint.",
    func=lazily("tony_provider.cli.job_actions.resume"),
    args=(*_WHICH, _REASON),
)
_RESIZE = ActionCommand(
    name="resize",
    help="Change the number of tasks of a type",
    description=(
        "Set the number of tasks of a type, from its min_instances to its max_instances. The job requests more "
        "containers while it trains, and continues with the new number from its next checkpoint. The command rejects a "
        "number that can never fit the cluster."
    ),
    func=lazily("tony_provider.cli.job_actions.resize"),
    args=(
        *_WHICH,
        _arg("counts", nargs="+", metavar="TYPE=NUMBER", help="New number of tasks, such as worker=4"),
        _REASON,
    ),
)
_CHECKPOINT = ActionCommand(
    name="checkpoint",
    help="Copy a checkpoint of a job to a local directory",
    description="Restore and verify the files of the job's newest checkpoint, or of an older, kept checkpoint.",
    func=lazily("tony_provider.cli.job_actions.checkpoint"),
    args=(
        *_WHICH,
        _arg("directory", help="Local directory that the command creates"),
        _arg("--snapshot", type=int, help="Number of the checkpoint in `airflow tony status` (default: newest)"),
        _arg("--rank", type=int, default=0, help="Rank of the task whose files take precedence (default: %(default)s)"),
    ),
)
_EXPORT = ActionCommand(
    name="export",
    help="Export the model of a running job",
    description=(
        "Request the present model from the program, and print its URI on the store. The job continues. If the program "
        "does not check for such requests, the command names the newest checkpoint instead."
    ),
    func=lazily("tony_provider.cli.job_actions.export"),
    args=(
        *_WHICH,
        _arg("--reason", help="Reason, for the job's log and events"),
        _arg(
            "--timeout",
            default="5m",
            help="Time to wait for the export, such as 30s; 0s: only request it (default: %(default)s)",
        ),
    ),
)
_RENEW = ActionCommand(
    name="renew",
    help="Send running jobs new HDFS tokens",
    description=(
        "Replace the HDFS tokens of jobs on a Kerberos cluster. A task that waits for its job sends tokens itself. "
        "For tasks with wait_for_completion=False, run this command regularly, such as hourly. A job receives a new "
        "token after half the lifetime of its present token."
    ),
    func=lazily("tony_provider.cli.maintenance.renew"),
    args=(
        _arg("application_ids", nargs="*", metavar="application_id", help="Applications (default: all running ones)"),
        *_CONNECTION,
        _arg("--now", action="store_true", help="Send a token even if the present token is still new"),
    ),
)
_TENSORBOARD = ActionCommand(
    name="tensorboard",
    help="Show running and ended jobs in TensorBoard",
    description=(
        "Copy the jobs' event files from the store into a private directory, and show them in TensorBoard on this "
        "machine, until Ctrl-C. Requires the package tensorboard on this machine."
    ),
    func=lazily("tony_provider.cli.local_tensorboard.tensorboard"),
    args=(
        _arg("application_ids", nargs="*", metavar="application_id", help="Such as application_1700000000000_0001"),
        _arg("--tag", action="append", help="Tag of a training (tony-…): selects its newest application"),
        _arg("--dag-id", help="DAG; with --task-id and --run-id, selects the newest application of that training"),
        _arg("--task-id", help="Task of the DAG that trains"),
        _arg("--run-id", action="append", help="Run of the DAG; may be given several times, as may --tag"),
        _arg("--map-index", type=int, default=-1, help="Map index of a mapped task (default: not mapped)"),
        *_CONNECTION,
        _arg("--port", type=int, help="Local port (default: the first free port from 6006)"),
        _arg("--refresh", default="30s", help="Interval between checks for new data (default: %(default)s)"),
        _arg("--most", default="8GiB", help="Size limit of the local copies (default: %(default)s)"),
        _arg("--open", action="store_true", help="Open a browser"),
    ),
)
_TUNNEL = ActionCommand(
    name="tunnel",
    help="Forward a local port to a server of a running job",
    description=(
        "Forward a port of this machine's loopback to a port on which a task's program listens, such as a notebook or "
        "a dashboard, through the application's master, until Ctrl-C."
    ),
    func=lazily("tony_provider.cli.open_tunnel.tunnel"),
    args=(
        _arg("application_id", help="Application ID, such as application_1700000000000_0001"),
        _arg("task", metavar="TASK[:PORT]", help="Task and port, such as worker:0:20888 (default port: TONY_PORT)"),
        *_CONNECTION,
        _arg("--local-port", type=int, default=0, help="Local port (default: any free port)"),
    ),
)
_NOTEBOOK = ActionCommand(
    name="notebook",
    help="Open a notebook in the environment of a job's task",
    description=(
        "Run Jupyter in one container with the environment, files, inputs and resources of a job's task, and connect "
        "to it until Ctrl-C. The notebook continues to run. Use the same name to reconnect, or to reopen its work "
        "later. With --of, the notebook has the newest checkpoint of a training."
    ),
    func=lazily("tony_provider.cli.notebook.notebook"),
    args=(
        _arg("job", nargs="?", metavar="JOB.tony.yaml", help="Job file whose task the notebook copies"),
        *_CONNECTION,
        _arg("--of", metavar="APPLICATION", help="Application whose task and newest checkpoint the notebook copies"),
        _arg("--tag", help="Tag of a training (tony-…), instead of --of: selects its newest application"),
        _arg("--dag-id", help="DAG; with --task-id and --run-id, selects the newest application of that training"),
        _arg("--task-id", help="Task of the DAG that trains"),
        _arg("--run-id", help="Run of the DAG"),
        _arg("--map-index", type=int, default=-1, help="Map index of a mapped task (default: not mapped)"),
        _arg(
            "-y",
            "--yes",
            action="store_true",
            help="Allow objects outside of the staging directory's cache that the application's history names",
        ),
        _arg("--task", metavar="TYPE", help="Task type to copy (default: the leading type)"),
        _arg("--name", help="Name that identifies your notebook (default: the job name)"),
        _PARAM,
        _arg(
            "--set",
            action="append",
            metavar="KEY=VALUE",
            help="Override a value of its job, such as tasks.notebook.memory=8GiB; may be given several times",
        ),
        _QUEUE,
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="Secret of the job, with the value of this environment variable; may be given several times",
        ),
        _arg("--idle", default="1h", help="End the notebook after this idle time; 0s: never (default: %(default)s)"),
        _arg("--lifetime", help="End the notebook after this time (default: 12h, or the connection's limit)"),
        _arg("--keep", default="1GiB", help="Size limit of the stored work (default: %(default)s)"),
        _arg("--local-port", type=int, default=0, help="Local port (default: any free port)"),
        _arg("--open", action="store_true", help="Open a browser"),
        _arg("-d", "--detach", action="store_true", help="Submit the notebook and exit"),
    ),
)
_ADVISE = ActionCommand(
    name="advise",
    help="Recommend changes to a job",
    description="Print at most three recommendations, based on requested and used resources and on earlier runs.",
    func=lazily("tony_provider.cli.diagnose.advise"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("--explain", action="store_true", help="Also print the documentation of each rule"),
        _arg("--patch", action="store_true", help="Print only the changes, as JSON for `overrides`"),
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
        _arg("--all", action="store_true", help="Also list ended jobs of which the cluster has a record"),
        _arg("--ended", action="store_true", help="List only ended jobs"),
    ),
)
_CHECK = ActionCommand(
    name="check",
    help="Check a job specification against a cluster",
    description=(
        "Check whether the job can run: syntax, files, the connection's limits, and the queue, labels and sizes "
        "of the live cluster. Prints the origin of each key: the job, its preset, the connection, or the command "
        "line."
    ),
    func=lazily("tony_provider.cli.submit.check"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _SET,
        _QUEUE,
        _arg("--explain", action="store_true", help="Also print the keys with a default value"),
    ),
)
_DOCTOR = ActionCommand(
    name="doctor",
    help="Check a connection",
    description=(
        "Check everything that jobs need, from this host and within 10 seconds: ResourceManagers, NameNodes, "
        "Kerberos, the queue, the staging directory. Exits with 1 if there is a problem."
    ),
    func=lazily("tony_provider.cli.diagnose.doctor"),
    args=(*_CONNECTION, ARG_OUTPUT),
)
_GC = ActionCommand(
    name="gc",
    help="Remove files of old trainings from the staging directory",
    description=(
        "List old chains (checkpoints), application directories (models, logs) and built Python environments, and with "
        "--yes remove them. Keeps files of running trainings, and files that a published model or another checkpoint "
        "chain names."
    ),
    func=lazily("tony_provider.cli.maintenance.gc"),
    args=(
        *_CONNECTION,
        ARG_OUTPUT,
        _arg("--older-than", default="30d", help="Minimum time without changes, such as 12h (default: %(default)s)"),
        _arg("--keep-history", help="Time to keep the history of jobs, such as 365d (default: as --older-than)"),
        _arg(
            "--models",
            action="append",
            metavar="URI",
            help=(
                "Directory outside the staging directory with published models (versions/<any>/version.json); may be "
                "given several times"
            ),
        ),
        _arg("--dry-run", action="store_true", help="List the files and remove none (default)"),
        _arg("-y", "--yes", action="store_true", help="Remove the listed files"),
    ),
)
_IMPORT = ActionCommand(
    name="import",
    help="Convert a job of another system",
    description=(
        "Read the input of TonY, Skein, YARN services, Hbox, tf-yarn or TorchX, and write the job, and a DAG with "
        "it. Lists all settings that are not carried over, with the reason. Executes no code of the input."
    ),
    func=lazily("tony_provider.cli.job_file.import_job"),
    args=(
        _arg(
            "words",
            nargs="+",
            metavar="FILE or CALL",
            help="File of the other system, or its whole command line after --",
        ),
        _arg(
            "--from",
            dest="system",
            choices=("tony", "skein", "yarn-service", "hbox", "tf-yarn", "torchx"),
            help="Other system (default: detected from the input)",
        ),
        _arg("--command", help="Command of the tasks for which the input has none, such as 'python train.py'"),
        _SET,
        _arg("-o", "--output", metavar="JOB.tony.yaml", help="Job file to write (default: print the job)"),
        _arg("--dag", metavar="DAG.py", help="DAG file to write, with the job in it"),
        _arg("--dag-id", help="DAG ID (default: derived from the job name)"),
        _FORCE,
        ARG_VERBOSE,
    ),
)
_DAG = ActionCommand(
    name="dag",
    help="Write a DAG that runs a job",
    description=(
        "Write a DAG file that contains the job, for editing. Its parameters become params of the DAG, with their "
        "types and limits, and appear in its trigger form."
    ),
    func=lazily("tony_provider.cli.job_file.dag"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _arg("-o", "--output", metavar="DAG.py", help="DAG file to write (default: print the DAG)"),
        _arg("--dag-id", help="DAG ID (default: derived from the job name)"),
        _arg("--schedule", help="Schedule of the DAG, such as @daily (default: none, only triggered runs)"),
        _arg("--retries", type=int, help="Number of retries of the DAG's task (default: as Airflow specifies)"),
        _FORCE,
    ),
)
_RUNTIME_BUILD = ActionCommand(
    name="build",
    help="Build a runtime archive for nodes whose Python differs from the worker's",
    description=(
        "Download the runtime's dependencies for the given versions of Python, and pack them with the runtime "
        "into one archive. Set it as `runtime_archive` in the tony connection: a path on the workers, or the URI "
        "of a copy on HDFS."
    ),
    func=lazily("tony_provider.cli.maintenance.build_runtime"),
    args=(
        _arg("--python", required=True, help="Python versions of the nodes, separated by commas, such as 3.9,3.12"),
        _arg("--platform", help="Wheel platforms of the nodes, separated by commas (default: Linux on x86_64)"),
        _arg("--output", default="tony-runtime.zip", help="Archive to write (default: %(default)s)"),
    ),
)
_ENV_BUILD = ActionCommand(
    name="build",
    help="Build a Python environment for jobs from a requirements file",
    description=(
        "Install requirements for the Python of the nodes, pack them, and store them in the staging directory's cache. "
        "Another call with the same requirements builds nothing. Prints the URI for the job's key python_env."
    ),
    func=lazily("tony_provider.cli.maintenance.build_env"),
    args=(
        _arg("requirements", help="Requirements file of pip, with or without hashes, or a pylock.toml"),
        *_CONNECTION,
        _arg("--python", help="Python version of the nodes, such as 3.12 (default: the version of this Python)"),
        _arg(
            "--platform",
            help="Platform of the nodes, as in wheel names, such as manylinux_2_28_x86_64 (default: this machine's)",
        ),
        _arg("--shared", action="store_true", help="Store it in the connection's shared_cache, for all users"),
        _arg("--installer", choices=("uv", "pip"), help="Installer (default: uv if installed, otherwise pip)"),
    ),
)
_PORTAL_REBUILD = ActionCommand(
    name="rebuild",
    help="Restore the portal's list of jobs from the store",
    description=(
        "Read the staging directory, and write the summaries of jobs to Airflow's database if it has no summary or no "
        "final one. Airflow versions after 3.3 discard summaries when a task is cleared. Writes at most 20 jobs for "
        "each task instance, and only jobs whose DAG run Airflow has."
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
