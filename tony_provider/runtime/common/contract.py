"""Exit codes, and names that Airflow, containers and user programs share: variables, files, directories, secrets.

The variables and the metrics file are the whole contract with user code, which need not import any module.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Optional

# Exit codes of the runtime's programs in a container, and of shells (POSIX, Shell & Utilities, 2.8.2). These codes
# never describe a user process: the executor reports in a message how that process ended. 65 to 78 are the codes of
# sysexits.h for errors of input and environment. YARN's exit codes are negative or above 127.
EXIT_OK = 0
EXIT_NO_PYTHON = 65  # launcher.sh found no Python that the runtime archive supports; launcher.sh repeats this number
EXIT_BAD_CONTAINER = 66  # description, credentials or variables are missing or malformed, or no port is free
EXIT_REFUSED = 67  # the application master does not accept this executor: it was replaced, or its token is wrong
EXIT_MASTER_LOST = 68  # the application master was unreachable for too long
EXIT_INTERNAL = 70  # internal error of the runtime
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_TERMINATED = 143  # ended by SIGTERM
_SIGNAL_BASE = 128


def killing_signal(exit_code: int) -> Optional[int]:
    """Return the signal that killed the command, or None if the exit code does not name a signal."""
    number = exit_code - _SIGNAL_BASE
    return number if 0 < number <= signal.SIGRTMAX else None


def exit_code(signal_number: int) -> int:
    """Return the exit code of a command that this signal killed."""
    return _SIGNAL_BASE + signal_number


OWN_ENV_PREFIX = "TONY_"  # prefix of the runtime's variables; users' variables must not have this prefix
NAMESPACE = "airflow"  # default part of a training's identity, which keeps several Airflow installations apart
CALL_SECONDS = 60.0  # default limit for one call to the ResourceManagers, including all retries and failovers
TAG_PREFIX = "tony-"  # prefix of the YARN tag that names a training; users' tags must not have this prefix

# Environment variables of a user process. The framework adds its variables (TF_CONFIG, …).
ENV_APPLICATION_ID = "TONY_APPLICATION_ID"
ENV_JOB_NAME = "TONY_JOB_NAME"
ENV_TRAINING_ID = "TONY_TRAINING_ID"  # ID of the training; stays the same over all attempts and restarts
ENV_TASK_TYPE = "TONY_TASK_TYPE"
ENV_TASK_INDEX = "TONY_TASK_INDEX"
ENV_RANK = "TONY_RANK"  # rank among all processes: chief first, then workers, then other types in the job's order
ENV_WORLD_SIZE = "TONY_WORLD_SIZE"
ENV_LOCAL_RANK = "TONY_LOCAL_RANK"  # index of the process in its container, from 0
ENV_LOCAL_WORLD_SIZE = "TONY_LOCAL_WORLD_SIZE"  # number of processes in this container
ENV_GENERATION = "TONY_GENERATION"
ENV_ATTEMPT = "TONY_ATTEMPT"
ENV_PORT = "TONY_PORT"  # port on which this process should listen for the other processes
ENV_LISTEN_ADDRESS = "TONY_LISTEN_ADDRESS"  # this node's address as other nodes know it; unset: listen on all addresses
ENV_RENDEZVOUS = "TONY_RENDEZVOUS"  # host:port of rank 0, for programs that need a rendezvous
ENV_CLUSTER_SPEC = "TONY_CLUSTER_SPEC"  # JSON {type: ["host:port", …]}; unset if longer than MAX_ENV_STRING
ENV_CLUSTER_SPEC_FILE = "TONY_CLUSTER_SPEC_FILE"  # file with the same JSON; always set
ENV_METRICS_FILE = "TONY_METRICS_FILE"  # the process appends JSON lines: {"step": 10, "total_steps": 100, "loss": 0.1}
ENV_MODEL_DIR = "TONY_MODEL_DIR"  # local directory; the chief (or rank 0) leaves the job's model there
ENV_RESULT_FILE = "TONY_RESULT_FILE"  # path; the chief (or rank 0) writes the job's return value there as JSON
ENV_CHECKPOINT_DIR = "TONY_CHECKPOINT_DIR"  # local directory; at first, it holds only the checkpoint to resume from
ENV_CHECKPOINT_URI = (
    "TONY_CHECKPOINT_URI"  # the checkpoint chain's own directory on the store, for programs that write there
)
ENV_CHECKPOINT_REQUEST = "TONY_CHECKPOINT_REQUEST"  # file that appears when the master requests a checkpoint
ENV_EXPORT_DIR = "TONY_EXPORT_DIR"  # local directory; each directory step-<n> in it is an export of the model
ENV_EXPORT_REQUEST = "TONY_EXPORT_REQUEST"  # file that appears when the master requests an export of the model
ENV_RESUME_FROM = "TONY_RESUME_FROM"  # checkpoint in TONY_CHECKPOINT_DIR to resume from; unset: start at step 0
ENV_RESUME_STEP = "TONY_RESUME_STEP"  # step of that checkpoint; unset if the step is unknown
ENV_CONTAINER = "TONY_CONTAINER_ID"  # YARN's ID of the container that the process runs in
ENV_DEBUG_DIR = "TONY_DEBUG_DIR"  # local directory for files that explain a failure; kept next to the logs
ENV_POST_MORTEM = "TONY_POST_MORTEM"  # set in a replay whose user wants a debugger at the exception
ENV_TENSORBOARD_DIR = "TONY_TENSORBOARD_DIR"  # local directory for event files, which are kept on the store
ENV_WARM_START = "TONY_WARM_START"  # local directory with an earlier model's files, for initial weights
ENV_INPUT_PREFIX = "TONY_INPUT_"  # + NAME: a file with this task's part of the input, a JSON line for each shard
ENV_INPUT_QUEUES = "TONY_INPUT_QUEUES"  # comma-separated names of inputs whose shards are requested one at a time
ENV_INPUT_SOCKET = "TONY_INPUT_SOCKET"  # Unix socket from which processes request the shards of these inputs
ENV_OUTPUT_PREFIX = "TONY_OUTPUT_"  # + NAME: local directory; files left there become part of the output

# For the tensorflow framework, next to TF_CONFIG: values that classic scripts take as arguments.
ENV_TF_CONFIG_FILE = "TONY_TF_CONFIG_FILE"  # file with TF_CONFIG; always set, unlike TF_CONFIG, which may be too long
ENV_TF_TASK_TYPE = "TONY_TF_TASK_TYPE"  # --job_name: chief, worker, ps or evaluator, as in TF_CONFIG
ENV_TF_TASK_INDEX = "TONY_TF_TASK_INDEX"  # --task_index, as in TF_CONFIG
ENV_CHIEF_HOSTS = "TONY_CHIEF_HOSTS"  # host:port, comma-separated, by index; the next two have the same form
ENV_WORKER_HOSTS = "TONY_WORKER_HOSTS"
ENV_PS_HOSTS = "TONY_PS_HOSTS"

ENV_JAX = "TONY_JAX"  # for the jax framework: if set, sitecustomize passes the cluster's layout to JAX
ENV_MPI_SECRET = "TONY_MPI_SECRET"  # for the mpi framework: shared secret of its processes
ENV_REMOTE_SHELL = "TONY_REMOTE_SHELL"  # for the mpi framework: path of the program that launchers use as ssh
ENV_HOST_FILE = "TONY_HOSTFILE"  # for the mpi framework: path of the list of containers and their slots
ENV_RAY_ARGUMENTS = "TONY_RAY_ARGUMENTS"  # for the ray framework: arguments of `ray start` that describe the container

# Additional variable of the TensorBoard sidecar. There, TONY_TENSORBOARD_DIR holds the event files of all tasks.
ENV_TENSORBOARD_PATH = "TONY_TENSORBOARD_PATH"  # secret; TensorBoard serves only below this path

LOG_SIZE = 64  # MiB for a task's stdout and stderr together, if neither the job nor the connection sets a limit
MAX_RESULT = 1 << 20  # bytes in TONY_RESULT_FILE; larger results belong in the model's directory
_MOST_DIGITS = 18  # digits in the step number of an export
MAX_ENV_STRING = 128 * 1024  # bytes of NAME=value with its closing NUL: MAX_ARG_STRLEN of Linux

# Variables of a container, set by the process that launches it. The user process receives none of them.
ENV_AM_ADDRESS = "TONY_AM_ADDRESS"  # host:port of the application master's gRPC server
ENV_TASK = "TONY_TASK"  # such as worker:0
ENV_TASK_ATTEMPT = "TONY_TASK_ATTEMPT"
ENV_CONTAINER_ID = "CONTAINER_ID"  # as YARN sets it
ENV_NODE_HOST = "NM_HOST"  # as YARN sets it
ENV_NODE_PORT = "NM_PORT"  # as YARN sets it
ENV_USER = "USER"  # owner of the container, as YARN sets it
ENV_LOCAL_DIRS = "LOCAL_DIRS"  # as YARN sets it
ENV_LOG_DIR = "TONY_LOG_DIR"  # directory of the container's stdout and stderr and of the user's output
ENV_TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"  # as YARN sets it; the local backend writes the same format
ENV_TICKET = "KRB5CCNAME"  # location of the Kerberos ticket, on the local backend
ENV_PYTHON_CANDIDATES = "TONY_PYTHON_CANDIDATES"  # colon-separated interpreters that the launcher tries first

# Files in a container's working directory.
WORK_DIR = "tony-work"  # the provider's files, HOME and TMPDIR; created by launcher.sh
TENSORBOARD_PROGRAM = f"{WORK_DIR}/show_tensorboard.py"  # program that the key ``tensorboard`` of a job runs
NOTEBOOK_MODULE = "tony_notebook"  # module that a notebook's container runs by `python -m`
RUNTIME_FILE = "tony-runtime.zip"  # the node's copy of the runtime archive, not verified yet
RUNTIME_DIR = "tony"  # the verified runtime
FILES_DIR = "tony-files"  # the job's files under generated names, see runtime/launch/launch_context.py
UNPACKED_DIR = "tony-unpacked"  # unpacked archives of an application, next to its containers' directories
PYTHON_ENV_DIR = "python_env"  # unpacked environment archive, or an environment in parts, such as a PEX or wheels
ENVIRONMENT_FILE = "tony-environment.json"  # record of `airflow tony env build`, in an archive and next to it
CLUSTER_SPEC_FILE = "tony-cluster.json"
TF_CONFIG_FILE = "tony-tf-config.json"

# Files in the application's directory on the store.
STATUS_FILE = "status.json"
RESULT_FILE = "result.json"
MASTER_FILE = "master.json"  # address of the current application master, signed
DELIVERED_FILE = "delivered.json"  # marks that the result has reached Airflow
LOGS_DIR = "logs"
MODEL_DIR = "model"
RETURN_VALUE_FILE = "return_value.json"  # copy of TONY_RESULT_FILE of the chief (or rank 0); valid if the job succeeded
SUCCESS_FILE = "_SUCCESS"  # written last in an output; holds the writer, the time and the amount of data
OUTPUT_MARK_FILE = "_tony.json"  # identifies the writer of an output that is written in place
EXPORTS_DIR = "exports"  # models that the training exports while it runs, each in a directory, see export_name
INPUTS_DIR = "inputs"  # description of each input, and the committed shards of each queue
HISTORY_DIR = "history"  # specification, and numbered segments of events and samples
SPECIFICATION_FILE = "specification.json"  # in HISTORY_DIR
LOST_NODES_DIR = "nodes"  # in the staging directory: nodes that lost containers, by day and application
LOST_NODES_DAYS = 7  # records of older losses are removed
LAUNCH_DIR = "launch"  # removed when the application ends
APPLICATION_FILE = "tony-application.json"  # in LAUNCH_DIR: the ApplicationDescription, for clients
NOTEBOOK_FILE = "notebook.json"  # in LAUNCH_DIR of a notebook; contains its token

# Files in a checkpoint chain's directory on the store.
CHAIN_FILE = "chain.json"  # fingerprint of the chain, and the name of an older chain that it continues
TABLES_DIR = "tables"  # lists of the files or partitions of tables that inputs read
CHECKPOINTS_DIR = "checkpoints"
OBJECTS_DIR = "objects"  # contents of the files of all checkpoints
BROKEN_DIR = "broken"  # checkpoints that were set aside as broken
FAILED_RESUMES_FILE = "failed-resumes.json"  # for each checkpoint, failures of processes that resumed from it
PINS_DIR = "pins"  # a file for each checkpoint that a reader is copying, see checkpoint/catalog.py
TENSORBOARD_DIR = "tensorboard"  # a directory of event files for each task, over all applications
USER_CHECKPOINTS_DIR = "user"  # checkpoints that programs write directly to the store


def export_name(step: int) -> str:
    """Return the name of this step's export in TONY_EXPORT_DIR and in EXPORTS_DIR."""
    return f"step-{step}"


def step_of_export(name: str) -> Optional[int]:
    """Return the step of the export with this name, or None if no export has such a name."""
    digits = name[len(export_name(0)) - 1 :]
    step = int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else 0
    return step if name == export_name(step) else None


def log_name(task: str, attempt: int) -> str:
    """Return the name, in LOGS_DIR, of the log of this attempt of a task such as worker:0."""
    return f"{log_prefix(task)}attempt-{attempt}.log" if attempt > 1 else f"{log_prefix(task)}log"


def task_of_log(name: str) -> tuple[str, int]:
    """Return the task and the attempt that ``log_name`` has combined to this name."""
    task, _, rest = name.partition(".")
    task_type, _, index = task.rpartition("-")
    attempt = re.match(r"attempt-(\d+)\.", rest)
    return f"{task_type}:{index}", int(attempt[1]) if attempt else 1


BUNDLE_ENDING = ".zip"  # of files in LOGS_DIR that contain several logs


def log_prefix(task: str) -> str:
    """Return the common prefix of the names of a task's logs. Names of other tasks' logs do not start with it."""
    return path_of_task(task) + "."


def path_of_task(task: str) -> str:
    """Return a task's name in a form for file names and URLs, unique for each task: ``worker-0`` for ``worker:0``."""
    return task.replace(":", "-")


# Names of secrets in the credentials of containers (Hadoop's secret keys).
SECRET_DESCRIPTION = "tony.description"  # the ApplicationDescription, for containers: JSON, compressed by zlib
SECRET_CA = "tony.ca"  # PEM certificate of the job's authority, whose private key is discarded
SECRET_AM_CERTIFICATE = "tony.am.certificate"
SECRET_AM_KEY = "tony.am.key"
SECRET_CLIENT_CERTIFICATE = "tony.client.certificate"
SECRET_CLIENT_KEY = "tony.client.key"
SECRET_TASK_KEY = "tony.task-key"  # only for the application master, which derives each task's HMAC from it
SECRET_TASK_TOKEN = "tony.task-token"  # only for the executor of one container
SECRET_ADDRESS_KEY = "tony.address-key"  # for the signature of MASTER_FILE: the master signs, executors verify
SECRET_JOB_KEY = "tony.job-key"  # executors derive from it the secrets that user processes share
SECRET_STORE_TOKEN = "tony.store-token"  # URL-safe WebHDFS delegation token, on secure clusters
SECRET_OTHER_TOKEN_PREFIX = "tony.other-token."  # + name: token for another HDFS or a key server, see OtherToken
SECRET_KEYTAB = "tony.keytab"  # only for the application master, which fetches tokens with it; optional
SECRET_PRINCIPAL = "tony.principal"  # Kerberos principal of SECRET_KEYTAB
SECRET_USER_PREFIX = "tony.user."  # + name: the user's own secrets


def user_secret(name: str) -> str:
    """Return the key of the user's secret ``name`` among the secrets of an application."""
    return SECRET_USER_PREFIX + name


def user_secrets(secrets: Mapping[str, bytes]) -> dict[str, str]:
    """Return only the user's secrets from the secrets of an application, as {environment variable: value}."""
    return {
        name[len(SECRET_USER_PREFIX) :]: value.decode("utf-8", "surrogateescape")
        for name, value in secrets.items()
        if name.startswith(SECRET_USER_PREFIX)
    }
