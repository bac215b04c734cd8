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
    _arg("--proxy-user", help="Cluster user to impersonate (default: the connection's user)"),
    ARG_VERBOSE,
)
_APPLICATION = _arg(
    "application_id", nargs="?", help="Application ID of the job, such as application_1700000000000_0001"
)
_BY_TASK = (
    _arg(
        "--tag",
        action="append",
        help="Tag of a training (tony-…), to select its newest application. Some commands accept several tags.",
    ),
    _arg("--dag-id", help="ID of the job's DAG. Use it with --task-id instead of an application ID or tag."),
    _arg("--task-id", help="ID of the job's task in the DAG"),
    _arg(
        "--run-id",
        action="append",
        help="ID of the DAG run (default: the run with the newest job). Some commands accept several runs.",
    ),
    _arg("--map-index", type=int, help="Map index of the task, if the task is mapped"),
    _arg("--try", dest="try_number", type=int, help="Number of the try that submitted the job (default: the last)"),
)
_WHICH = (_APPLICATION, *_BY_TASK, *_CONNECTION)
_SEVERAL = (_arg("application_id", nargs="*", help="Application IDs of the jobs"), *_BY_TASK, *_CONNECTION)
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
        "Submit a job. Paths in the job are relative to the directory of the job file. If you give the name and "
        "--run-id of an earlier job, the new job resumes from that job's newest checkpoint."
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
            help="Run ID. Together with the job name, it identifies your training (default: the current time)",
        ),
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="Name of a secret and of the environment variable with its value. You can repeat this option.",
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
                "Show the state transitions of a task, such as worker:3, with their reasons. If the job has ended, "
                "show the task's events."
            ),
        ),
    ),
)
_LOGS = ActionCommand(
    name="logs",
    help="Show the output of a job's tasks",
    description="Show the stored logs of an ended job, or the latest output of a running job's tasks.",
    func=lazily("tony_provider.cli.logs.logs"),
    args=(
        *_WHICH,
        _arg(
            "-t",
            "--task",
            help=(
                "Task whose output is shown, such as worker:0, or `am` for the application master (default: all tasks)"
            ),
        ),
        _arg("-f", "--follow", action="store_true", help="Follow the output until the job ends"),
    ),
)
_REASON = _arg("--reason", help="Reason to show in the job's log, in its events and on its page")
_KILL = ActionCommand(
    name="kill",
    help="Kill a job after a grace period",
    description="Stop the tasks of a job with SIGTERM, store the last checkpoints and logs, and then kill the job. "
    "Airflow then retries the task if retries are left.",
    func=lazily("tony_provider.cli.job_actions.kill"),
    args=(
        *_WHICH,
        _REASON,
        _arg(
            "--grace",
            help="Time between SIGTERM and SIGKILL, such as 30s (default: the job's own grace period)",
        ),
    ),
)
_SAVE = ActionCommand(
    name="save",
    help="Ask a running job to save a checkpoint",
    description="Ask the programs of a running job to save a checkpoint now. The job continues.",
    func=lazily("tony_provider.cli.job_actions.save"),
    args=(*_WHICH, _REASON),
)
_SUSPEND = ActionCommand(
    name="suspend",
    help="Suspend a job: save a checkpoint and release all containers",
    description=(
        "Save a checkpoint, stop the tasks of a job, and release all containers except the application master's. The "
        "job stays suspended until you run `airflow tony resume`. The Airflow task of the job continues to wait."
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
        "Change the number of tasks of a type, between its min_instances and max_instances. The job continues to train "
        "while it requests containers. It changes to the new number of tasks at its next checkpoint. The command "
        "rejects a number of tasks that can never run on the cluster."
    ),
    func=lazily("tony_provider.cli.job_actions.resize"),
    args=(
        *_WHICH,
        _arg("counts", nargs="+", metavar="TYPE=NUMBER", help="Task type and new number of tasks, such as worker=4"),
        _REASON,
    ),
)
_CHECKPOINT = ActionCommand(
    name="checkpoint",
    help="Copy a checkpoint of a job to a local directory",
    description="Restore a job's checkpoint to a local directory, and verify the files.",
    func=lazily("tony_provider.cli.job_actions.checkpoint"),
    args=(
        *_WHICH,
        _arg("directory", help="Path of the local directory that the command creates"),
        _arg(
            "--snapshot",
            type=int,
            help="Number of a stored checkpoint, as shown by `airflow tony status` (default: the newest checkpoint)",
        ),
        _arg(
            "--rank",
            type=int,
            default=0,
            help="Rank of the task to restore from if several tasks stored the same path (default: %(default)s)",
        ),
    ),
)
_EXPORT = ActionCommand(
    name="export",
    help="Export the model of a running job",
    description=(
        "Ask a job's program to export its current model, and print the model's URI on the store. The job continues. "
        "If the program does not check for export requests, the error message names the newest checkpoint."
    ),
    func=lazily("tony_provider.cli.job_actions.export"),
    args=(
        *_WHICH,
        _arg("--reason", help="Reason to show in the job's log and events"),
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
        "Replace the HDFS tokens of running jobs on a Kerberos cluster. Airflow tasks that wait for their job send new "
        "tokens themselves. For tasks with wait_for_completion=False, run this command regularly, for example hourly. "
        "A job receives a new token after half the lifetime of its current token. If no job is named, the command "
        "sends tokens to all running jobs."
    ),
    func=lazily("tony_provider.cli.maintenance.renew"),
    args=(
        *_SEVERAL,
        _arg("--now", action="store_true", help="Send each job a new token, even if the current token is still new"),
    ),
)
_TENSORBOARD = ActionCommand(
    name="tensorboard",
    help="Show running and ended jobs in TensorBoard",
    description=(
        "Copy the event files of jobs from the store to a private local directory, and show them in TensorBoard on "
        "this machine. The command runs until you press Ctrl-C. It requires the package tensorboard."
    ),
    func=lazily("tony_provider.cli.local_tensorboard.tensorboard"),
    args=(
        *_SEVERAL,
        _arg("--port", type=int, help="Local port of TensorBoard (default: the first free port from 6006)"),
        _arg("--refresh", default="30s", help="Time between two checks for new data (default: %(default)s)"),
        _arg("--most", default="8GiB", help="Maximum total size of the local copies (default: %(default)s)"),
        _arg("--open", action="store_true", help="Open a browser"),
    ),
)
_TUNNEL = ActionCommand(
    name="tunnel",
    help="Forward a local port to a server of a running job",
    description=(
        "Forward a port of this machine's loopback interface to a server in a task, such as a notebook or a dashboard. "
        "All data passes through the application master. The command runs until you press Ctrl-C."
    ),
    func=lazily("tony_provider.cli.open_tunnel.tunnel"),
    args=(
        *_WHICH,
        _arg(
            "task",
            metavar="TASK[:PORT]",
            help="Task and port of the server, such as worker:0:20888 (default port: the task's TONY_PORT)",
        ),
        _arg("--local-port", type=int, default=0, help="Local port of the tunnel (default: any free port)"),
    ),
)
_NOTEBOOK = ActionCommand(
    name="notebook",
    help="Open a notebook in the environment of a job's task",
    description=(
        "Run Jupyter in a container with the environment, files, inputs and resources of a job's task. If you press "
        "Ctrl-C, the command disconnects, but the notebook continues to run. To reconnect, or to reopen the stored "
        "work later, use the same name. With --of, the notebook also contains the newest checkpoint of a training."
    ),
    func=lazily("tony_provider.cli.notebook.notebook"),
    args=(
        _arg("job", nargs="?", metavar="JOB.tony.yaml", help="Path of the job file that provides the task"),
        *_CONNECTION,
        _arg(
            "--of",
            dest="application_id",
            metavar="APPLICATION",
            help="ID of the application that provides the task and the newest checkpoint",
        ),
        *_BY_TASK,
        _arg(
            "-y",
            "--yes",
            action="store_true",
            help="Accept objects in the application's history, even if they are outside the staging directory's cache",
        ),
        _arg("--task", metavar="TYPE", help="Task type to copy (default: the type of the leader)"),
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
            help="Name of a secret and of the environment variable with its value. You can repeat this option.",
        ),
        _arg(
            "--idle",
            default="1h",
            help="Idle time after which the notebook ends. 0s disables this limit (default: %(default)s).",
        ),
        _arg("--lifetime", help="Time after which the notebook ends (default: 12h, or the connection's lower limit)"),
        _arg("--keep", default="1GiB", help="Maximum size of the notebook's stored work (default: %(default)s)"),
        _arg("--local-port", type=int, default=0, help="Local port of the tunnel (default: any free port)"),
        _arg("--open", action="store_true", help="Open a browser"),
        _arg("-d", "--detach", action="store_true", help="Submit the notebook and exit, without connecting to it"),
    ),
)
_ADVISE = ActionCommand(
    name="advise",
    help="Recommend changes to a job",
    description=(
        "Print at most three recommendations for a job. The recommendations are based on requested and used resources, "
        "and on earlier runs."
    ),
    func=lazily("tony_provider.cli.diagnose.advise"),
    args=(
        *_WHICH,
        ARG_OUTPUT,
        _arg("--explain", action="store_true", help="Also explain the rule behind each recommendation"),
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
        "Check whether a job can run. The command checks the syntax, the files and the connection's limits. It "
        "compares the queue, labels and sizes with the live cluster. It also prints the origin of each key: the job, "
        "its preset, the connection, or the command line."
    ),
    func=lazily("tony_provider.cli.submit.check"),
    args=(
        _JOB,
        *_CONNECTION,
        _PARAM,
        _SET,
        _QUEUE,
        _arg("--explain", action="store_true", help="Also print keys with default values"),
    ),
)
_DOCTOR = ActionCommand(
    name="doctor",
    help="Check a connection",
    description=(
        "Check everything that jobs need: ResourceManagers, NameNodes, Kerberos, the queue and the staging directory. "
        "The command runs on this host, and takes at most 10 seconds. It exits with 1 if it finds a problem."
    ),
    func=lazily("tony_provider.cli.diagnose.doctor"),
    args=(*_CONNECTION, ARG_OUTPUT),
)
_NODES = ActionCommand(
    name="nodes",
    help="List nodes that lost containers",
    description=(
        "List the nodes that lost containers, or failed a preflight, in the last 7 days. The "
        "list covers the jobs of the staging directory. The connection field avoid_nodes_after makes new jobs avoid "
        "such nodes."
    ),
    func=lazily("tony_provider.cli.diagnose.nodes"),
    args=(*_CONNECTION, ARG_OUTPUT),
)
_REPLAY = ActionCommand(
    name="replay",
    help="Run one task of an earlier job again on this machine",
    description=(
        "Run one start of a task on this machine, with the same code, Python environment, checkpoint and shards. The "
        "command prints what it copies, and how the process differs from the original one. It uploads nothing."
    ),
    func=lazily("tony_provider.cli.diagnose.replay"),
    args=(
        *_WHICH,
        _arg("-t", "--task", help="Task to run, such as worker:3 (default: the task that failed)"),
        _arg("--start", type=int, help="Number of the start of the task's process (default: the last one)"),
        _arg("--debug", action="store_true", help="Open Python's debugger at an exception that ends the program"),
        _arg(
            "--with-peers",
            action="store_true",
            help="Keep rank and world size also for frameworks that then wait for the other processes",
        ),
        _arg(
            "--secret",
            action="append",
            metavar="NAME",
            help="Name of a secret, or of another masked variable, whose value is in the environment",
        ),
        _arg("--directory", help="New directory for the copies, which is kept (default: a temporary directory)"),
    ),
)
_STALE = ActionCommand(
    name="stale",
    help="List models whose training data has changed, and train them again",
    description=(
        "Compare the newest model of each training with the files that the training read, and with the models that it "
        "started from. With --retrain, the command clears the DAG runs of stale models in Airflow, ancestors "
        "first, and waits for them."
    ),
    func=lazily("tony_provider.cli.stale.stale"),
    args=(
        *_CONNECTION,
        ARG_OUTPUT,
        _arg("--dag-id", action="append", help="Only models of this DAG. You can repeat this option."),
        _arg("--since", metavar="TIME", help="Only models that were trained in this time, such as 90d"),
        _arg("--model", metavar="URI", help="Only the training of the model at this URI"),
        _arg("--all", action="store_true", help="Also list current models"),
        _arg("--retrain", action="store_true", help="Clear the DAG runs of stale models, and wait for them"),
        _arg(
            "--max-active-runs",
            type=int,
            default=10,
            help="Maximum number of runs that --retrain repeats at a time (default: %(default)s)",
        ),
        _arg("--api-url", help="Address of Airflow's API server (default: [api] base_url)"),
    ),
)
_GC = ActionCommand(
    name="gc",
    help="Remove files of old trainings from the staging directory",
    description=(
        "List old checkpoint chains, application directories (models and logs) and built Python environments. With "
        "--yes, the command also removes the listed files. It keeps all files that are used by a running training, a "
        "published model or another checkpoint chain."
    ),
    func=lazily("tony_provider.cli.maintenance.gc"),
    args=(
        *_CONNECTION,
        ARG_OUTPUT,
        _arg(
            "--older-than",
            default="30d",
            help="Minimum time since the files last changed, such as 12h (default: %(default)s)",
        ),
        _arg(
            "--keep-history",
            help="Minimum time to keep job histories, such as 365d (default: the time of --older-than)",
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
        "Convert a job of TonY, Skein, YARN services, Hbox, tf-yarn or TorchX to a job file, a DAG, or both. The "
        "command lists all settings that it does not carry over, with the reasons. It does not execute code from the "
        "input."
    ),
    func=lazily("tony_provider.cli.job_file.import_job"),
    args=(
        _arg(
            "words",
            nargs="+",
            metavar="FILE or CALL",
            help="File of the other system, or its complete command line after --",
        ),
        _arg(
            "--from",
            dest="system",
            choices=("tony", "skein", "yarn-service", "hbox", "tf-yarn", "torchx"),
            help="System to convert from (default: detected from the input)",
        ),
        _arg("--command", help="Command for tasks that have no command in the input, such as 'python train.py'"),
        _SET,
        _arg("-o", "--output", metavar="JOB.tony.yaml", help="Job file to write (default: the job is printed)"),
        _arg("--dag", metavar="DAG.py", help="DAG file to write. It contains the job."),
        _arg("--dag-id", help="ID of the new DAG (default: an ID derived from the job name)"),
        _FORCE,
        ARG_VERBOSE,
    ),
)
_DAG = ActionCommand(
    name="dag",
    help="Write a DAG that runs a job",
    description=(
        "Write an editable DAG file that contains a job. The parameters of the job file become params of the DAG. "
        "These params keep their types and limits, and appear in the DAG's trigger form."
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
        "Download the runtime's dependencies for the given Python versions, and pack them with the runtime into one "
        "archive. In the tony connection, set `runtime_archive` to the archive's path on the workers, or to the URI of "
        "a copy on HDFS."
    ),
    func=lazily("tony_provider.cli.maintenance.build_runtime"),
    args=(
        _arg(
            "--python",
            action="append",
            required=True,
            help="Comma-separated Python versions of the nodes, such as 3.9,3.12",
        ),
        _arg(
            "--platform",
            help="Comma-separated platforms of the nodes, as in wheel names (default: Linux on x86_64)",
        ),
        _arg("--output", default="tony-runtime.zip", help="Path of the archive to write (default: %(default)s)"),
        _arg("--object-stores", action="store_true", help="Include the library for inputs and outputs on S3"),
    ),
)
_ENV_BUILD = ActionCommand(
    name="build",
    help="Build a Python environment for jobs from a requirements file",
    description=(
        "Install requirements for the nodes' Python, and store the packed environment in the staging directory's "
        "cache. Another call with the same requirements reuses this environment. The command prints the URI for the "
        "job's key python_env."
    ),
    func=lazily("tony_provider.cli.maintenance.build_env"),
    args=(
        _arg("requirements", help="Requirements file for pip (with or without hashes), or a pylock.toml file"),
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
            help="Store the environment for all users, in the connection's shared_cache",
        ),
        _arg(
            "--installer",
            choices=("uv", "pip"),
            help="Package installer (default: uv if it is installed, otherwise pip)",
        ),
    ),
)
_PORTAL_REBUILD = ActionCommand(
    name="rebuild",
    help="Restore the portal's list of jobs from the store",
    description=(
        "Read job summaries from the staging directory, and write them to Airflow's database. The command skips jobs "
        "with a final summary in the database, and jobs whose DAG run does not exist in Airflow. It writes at most 20 "
        "jobs for each task instance. Airflow versions after 3.3 discard summaries when a task is cleared."
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
    steered = (_KILL, _SAVE, _SUSPEND, _RESUME, _RESIZE, _EXPORT, _RENEW)
    commands = (
        _SUBMIT,
        *steered,
        *shown,
        _CHECK,
        _IMPORT,
        _DAG,
        _DOCTOR,
        _NODES,
        _STALE,
        _REPLAY,
        _GC,
        env,
        portal,
        runtime,
    )
    return [GroupCommand(name="tony", help="Run and inspect distributed training on YARN", subcommands=commands)]
