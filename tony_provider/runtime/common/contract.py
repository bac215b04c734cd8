"""Names that more than one side of a job must agree on: environment variables, files, credentials.

The variables and the metrics file are the whole contract with user code; there is nothing to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

OWN_ENV_PREFIX = "TONY_"  # of our variables; users' may not begin so
TAG_PREFIX = "tony-"  # of the YARN tag that names a training; users' may not begin so

# What a user process finds in its environment. The framework adds its own (TF_CONFIG, …).
ENV_APPLICATION_ID = "TONY_APPLICATION_ID"
ENV_JOB_NAME = "TONY_JOB_NAME"
ENV_TRAINING_ID = "TONY_TRAINING_ID"  # names the training, the same over all tries and restarts
ENV_TASK_TYPE = "TONY_TASK_TYPE"
ENV_TASK_INDEX = "TONY_TASK_INDEX"
ENV_RANK = "TONY_RANK"  # over the cluster's processes, chief first, then workers, then the others, as specified
ENV_WORLD_SIZE = "TONY_WORLD_SIZE"
ENV_LOCAL_RANK = "TONY_LOCAL_RANK"  # of the process in its container, from 0
ENV_LOCAL_WORLD_SIZE = "TONY_LOCAL_WORLD_SIZE"  # how many processes its container runs
ENV_GENERATION = "TONY_GENERATION"
ENV_ATTEMPT = "TONY_ATTEMPT"
ENV_PORT = "TONY_PORT"  # that this process should listen on, where the others look for it
ENV_LISTEN_ADDRESS = "TONY_LISTEN_ADDRESS"  # this node's, as the others know it: to listen at; unset: everywhere
ENV_RENDEZVOUS = "TONY_RENDEZVOUS"  # host:port of rank 0, for programs that meet there
ENV_CLUSTER_SPEC = "TONY_CLUSTER_SPEC"  # JSON {type: ["host:port", …]}; left out when longer than an environment string
ENV_CLUSTER_SPEC_FILE = "TONY_CLUSTER_SPEC_FILE"  # the same in a file, always
ENV_METRICS_FILE = "TONY_METRICS_FILE"  # the process appends JSON lines: {"step": 10, "total_steps": 100, "loss": 0.1}
ENV_MODEL_DIR = "TONY_MODEL_DIR"  # a local directory; what the chief (or rank 0) leaves here is the job's model
ENV_RESULT_FILE = "TONY_RESULT_FILE"  # a path: JSON that the chief (or rank 0) leaves here is what the job returns
ENV_CHECKPOINT_DIR = "TONY_CHECKPOINT_DIR"  # a local directory; holds exactly the resume point when the process starts
ENV_CHECKPOINT_URI = (
    "TONY_CHECKPOINT_URI"  # the checkpoint chain's own directory on the store, for programs that write there
)
ENV_CHECKPOINT_REQUEST = "TONY_CHECKPOINT_REQUEST"  # a file that appears when a checkpoint is wanted now
ENV_EXPORT_DIR = "TONY_EXPORT_DIR"  # a local directory; a directory step-<n> in it is an export of the model
ENV_EXPORT_REQUEST = "TONY_EXPORT_REQUEST"  # a file that appears when an export of the model is wanted now
ENV_RESUME_FROM = "TONY_RESUME_FROM"  # path of the checkpoint in TONY_CHECKPOINT_DIR to go on from; unset: from step 0
ENV_RESUME_STEP = "TONY_RESUME_STEP"  # its step; unset where nothing says one
ENV_CONTAINER = "TONY_CONTAINER_ID"  # the container that the process runs in, as YARN calls it
ENV_TENSORBOARD_DIR = "TONY_TENSORBOARD_DIR"  # a local directory for event files; what is written is kept on the store
ENV_WARM_START = "TONY_WARM_START"  # a local directory with an earlier model's files, to take initial weights from
ENV_INPUT_PREFIX = "TONY_INPUT_"  # + NAME: a file with this task's part of the input, a JSON line for each shard
ENV_INPUT_QUEUES = "TONY_INPUT_QUEUES"  # names of inputs that are taken shard by shard, comma-separated
ENV_INPUT_SOCKET = "TONY_INPUT_SOCKET"  # a Unix socket: whoever wants a shard of these asks there
ENV_OUTPUT_PREFIX = "TONY_OUTPUT_"  # + NAME: a local directory; what is left there becomes part of the output

# The tensorflow framework's, beside TF_CONFIG: the values that classic scripts take as arguments.
ENV_TF_CONFIG_FILE = "TONY_TF_CONFIG_FILE"  # TF_CONFIG in a file, always; the variable itself is left out when too long
ENV_TF_TASK_TYPE = "TONY_TF_TASK_TYPE"  # --job_name: chief, worker, ps or evaluator, as in TF_CONFIG
ENV_TF_TASK_INDEX = "TONY_TF_TASK_INDEX"  # --task_index, as in TF_CONFIG
ENV_CHIEF_HOSTS = "TONY_CHIEF_HOSTS"  # host:port, comma-separated, in the order of the indices; so the next two
ENV_WORKER_HOSTS = "TONY_WORKER_HOSTS"
ENV_PS_HOSTS = "TONY_PS_HOSTS"

ENV_JAX = "TONY_JAX"  # the jax framework's: sitecustomize then tells JAX which cluster this is
ENV_MPI_SECRET = "TONY_MPI_SECRET"  # the mpi framework's: what its processes know each other by
ENV_REMOTE_SHELL = "TONY_REMOTE_SHELL"  # the mpi framework's: the path of what launchers take for ssh
ENV_HOST_FILE = "TONY_HOSTFILE"  # the mpi framework's: the path of a list of the containers, with their slots
ENV_RAY_ARGUMENTS = "TONY_RAY_ARGUMENTS"  # the ray framework's: what `ray start` is told of the container

# What our own TensorBoard finds beside that; there TONY_TENSORBOARD_DIR holds the event files of all tasks.
ENV_TENSORBOARD_PATH = "TONY_TENSORBOARD_PATH"  # a secret: it answers below this path only

LOG_SIZE = 64  # MiB that a task's stdout and stderr may fill together, where neither job nor connection says it
MAX_RESULT = 1 << 20  # bytes in TONY_RESULT_FILE: what is larger is a file of the model's directory
_MOST_DIGITS = 18  # of an export's step
MAX_ENV_STRING = 128 * 1024  # bytes of NAME=value with its closing NUL: Linux's MAX_ARG_STRLEN

# What a container finds, set by whoever launches it; none of it reaches the user process.
ENV_AM_ADDRESS = "TONY_AM_ADDRESS"  # host:port of the application master's gRPC server
ENV_TASK = "TONY_TASK"  # such as worker:0
ENV_TASK_ATTEMPT = "TONY_TASK_ATTEMPT"
ENV_CONTAINER_ID = "CONTAINER_ID"  # as YARN sets it
ENV_NODE_HOST = "NM_HOST"  # as YARN sets it
ENV_NODE_PORT = "NM_PORT"  # as YARN sets it
ENV_USER = "USER"  # whose container it is, as YARN sets it
ENV_LOCAL_DIRS = "LOCAL_DIRS"  # as YARN sets it
ENV_LOG_DIR = "TONY_LOG_DIR"  # where the container's stdout, stderr and the user's output go
ENV_TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"  # as YARN sets it; the local backend writes the same format
ENV_TICKET = "KRB5CCNAME"  # where the Kerberos ticket is, on the local backend
ENV_PYTHON_CANDIDATES = "TONY_PYTHON_CANDIDATES"  # colon-separated interpreters that the launcher tries first

# Files in a container's working directory.
WORK_DIR = "tony-work"  # the provider's files, HOME and TMPDIR; created by launcher.sh
TENSORBOARD_PROGRAM = f"{WORK_DIR}/show_tensorboard.py"  # what the key ``tensorboard`` of a job runs
NOTEBOOK_MODULE = "tony_notebook"  # what `python -m` runs in a notebook's container
RUNTIME_FILE = "tony-runtime.zip"  # the node's copy of the runtime archive, not verified yet
RUNTIME_DIR = "tony"  # the verified runtime
FILES_DIR = "tony-files"  # the job's files under generated names, see runtime/launch/launch_context.py
UNPACKED_DIR = "tony-unpacked"  # unpacked archives of an application, next to its containers' directories
APPLICATION_FILE = "tony-application.json"  # the ApplicationDescription
PYTHON_ENV_DIR = "python_env"  # an archived environment, unpacked; or what one is made of: a PEX, wheels
ENVIRONMENT_FILE = "tony-environment.json"  # in an archive of `airflow tony env build`, and beside it
CLUSTER_SPEC_FILE = "tony-cluster.json"
TF_CONFIG_FILE = "tony-tf-config.json"

# Files in the application's directory on the store.
STATUS_FILE = "status.json"
RESULT_FILE = "result.json"
MASTER_FILE = "master.json"  # where the current application master listens, signed
DELIVERED_FILE = "delivered.json"  # the result has reached Airflow
EVENTS_FILE = "events.jsonl"  # of former releases, which kept all events in it
LOGS_DIR = "logs"
MODEL_DIR = "model"
RETURN_VALUE_FILE = (
    "return_value.json"  # what the chief, or rank 0, left in TONY_RESULT_FILE; counts when the job succeeded
)
SUCCESS_FILE = "_SUCCESS"  # in an output, the last that is written: by whom, when, how much
OUTPUT_MARK_FILE = "_tony.json"  # in an output that is being written in place: by whom
EXPORTS_DIR = "exports"  # models of the training on its way: a directory for each, see export_name
INPUTS_DIR = "inputs"  # what each input was, and which shards of a queue are committed
HISTORY_DIR = "history"  # the specification, and in numbered segments the events and the series of samples
SPECIFICATION_FILE = "specification.json"  # in HISTORY_DIR
LAUNCH_DIR = "launch"  # removed when the application ends
NOTEBOOK_FILE = "notebook.json"  # in LAUNCH_DIR of a notebook: its token

# Files in a checkpoint chain's directory on the store.
CHAIN_FILE = "chain.json"  # its fingerprint, and what it continues
CHECKPOINTS_DIR = "checkpoints"
OBJECTS_DIR = "objects"  # the bytes of all checkpoints
BROKEN_DIR = "broken"  # checkpoints that were set aside
FAILED_RESUMES_FILE = "failed-resumes.json"  # failures of processes that resumed from a checkpoint, by checkpoint
PINS_DIR = "pins"  # files of readers of other chains, see checkpoint/pins.py
TENSORBOARD_DIR = "tensorboard"  # a directory of event files for each task, over all applications
USER_CHECKPOINTS_DIR = "user"  # for programs that write there themselves


def export_name(step: int) -> str:
    """The name of the export of this step, in TONY_EXPORT_DIR and in EXPORTS_DIR."""
    return f"step-{step}"


def step_of_export(name: str) -> Optional[int]:
    """The step of the export with this name; None: it is the name of none."""
    digits = name[len(export_name(0)) - 1 :]
    step = int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else 0
    return step if name == export_name(step) else None


def log_name(task: str, attempt: int) -> str:
    """The name, in LOGS_DIR, of the log of this attempt of a task, such as worker:0."""
    return f"{log_prefix(task)}attempt-{attempt}.log" if attempt > 1 else f"{log_prefix(task)}log"


def log_prefix(task: str) -> str:
    """The beginning that the names of all logs of a task have, and nobody else's."""
    return path_of_task(task) + "."


def path_of_task(task: str) -> str:
    """The name of a task, such as worker:0, in files and in addresses. No two have the same."""
    return task.replace(":", "-")


# Secrets in the credentials' secret keys.
SECRET_DESCRIPTION = "tony.description"  # SHA-256 of APPLICATION_FILE: it lies where others of the user may write
SECRET_CA = "tony.ca"  # PEM, the authority's certificate; its key is thrown away
SECRET_AM_CERTIFICATE = "tony.am.certificate"
SECRET_AM_KEY = "tony.am.key"
SECRET_CLIENT_CERTIFICATE = "tony.client.certificate"
SECRET_CLIENT_KEY = "tony.client.key"
SECRET_TASK_KEY = "tony.task-key"  # of the application master: it makes each task's HMAC with it
SECRET_TASK_TOKEN = "tony.task-token"  # of one container's executor
SECRET_ADDRESS_KEY = "tony.address-key"  # of the executors: proves that MASTER_FILE is their master's
SECRET_JOB_KEY = "tony.job-key"  # of the executors: what user processes know each other by is made of it
SECRET_STORE_TOKEN = "tony.store-token"  # URL-safe WebHDFS delegation token, on secure clusters
SECRET_OTHER_TOKEN_PREFIX = "tony.other-token."  # + name: those of other HDFS and of key servers, see OtherToken
SECRET_KEYTAB = "tony.keytab"  # of the application master, where the connection names one: it fetches tokens by it
SECRET_PRINCIPAL = "tony.principal"  # whose keytab that is
SECRET_USER_PREFIX = "tony.user."  # + name: the user's own secrets


def user_secret(name: str) -> str:
    """The name, among an application's secrets, of the user's own with this name."""
    return SECRET_USER_PREFIX + name


def user_secrets(secrets: Mapping[str, bytes]) -> dict[str, str]:
    """The user's own of an application's secrets, by the names of the variables that they become."""
    return {
        name[len(SECRET_USER_PREFIX) :]: value.decode("utf-8", "surrogateescape")
        for name, value in secrets.items()
        if name.startswith(SECRET_USER_PREFIX)
    }
