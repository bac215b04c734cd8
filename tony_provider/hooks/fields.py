"""Fields of a tony connection: the single definition for Airflow's form and for the accepted keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from tony_provider.runtime.common import contract

_TYPES = {"number": "integer", "flag": "boolean", "mapping": "object"}  # JSON types; fields of other kinds are strings


class Field(NamedTuple):
    """A field of a connection: its texts in the form, and the kind of its value."""

    label: str
    description: str
    kind: str = "text"  # the method of ``_Extra`` in connection.py that reads it
    minimum: int | None = None
    section: str | None = None  # collapsed section of the form

    @property
    def form(self) -> dict[str, Any]:
        """Return the field for Airflow's form.

        Text fields offer no suggestions, because Airflow's form would show an empty list until the typed text matches
        one.
        """
        schema: dict[str, Any] = {"type": [_TYPES.get(self.kind, "string"), "null"]}
        if self.kind == "backend":
            schema |= {"enum": ["yarn", "local"], "default": "yarn"}
        optional = {"minimum": self.minimum, "section": self.section}
        schema |= {name: value for name, value in optional.items() if value is not None}
        return {"label": self.label, "description": self.description, "schema": schema}


def _group(title: str, **fields: Field) -> dict[str, Field]:
    """Put fields into a separate, collapsed section."""
    return {name: field._replace(section=title) for name, field in fields.items()}


# The form shows the fields in this order: required fields first, then optional ones.
FIELDS = {
    "backend": Field(
        "Backend", "Where jobs run. yarn: on a Hadoop cluster; local: on the Airflow worker. Default: yarn.", "backend"
    ),
    "webhdfs": Field(
        "WebHDFS addresses",
        "The address of each NameNode, separated by commas, such as http://nn1:9870,http://nn2:9870. Required on YARN, "
        "here or in a WebHDFS connection.",
        "texts",
    ),
    "webhdfs_conn_id": Field(
        "WebHDFS connection",
        "A connection of type webhdfs, instead of the addresses. It provides the hosts, port, path, TLS and user. "
        "Default: webhdfs_default.",
    ),
    "staging_dir": Field(
        "Staging directory",
        "Directory for the files of jobs: a path or URI on HDFS; for the local backend, a directory of the worker "
        "(required). Default: /user/<user of the job>/.tony.",
    ),
    "queue": Field("Queue", "YARN queue for jobs that name no queue. Default: YARN's queue placement."),
    **_group(
        "Security",
        kerberos=Field("Kerberos", "The cluster requires Kerberos. Default: as [core] security specifies.", "flag"),
        insecure_http=Field(
            "Insecure HTTP",
            "On a Kerberos cluster, also submit jobs over plain http. Their keys, secrets and HDFS tokens are then "
            "readable on the network. Default: no, only https.",
            "flag",
        ),
        rm_principal=Field(
            "ResourceManager principal",
            "Kerberos principal that renews HDFS tokens. Default: from the ResourceManager's configuration.",
        ),
        master_keytab=Field(
            "Keytab for masters",
            "Path of a keytab on the worker. Each application master gets a copy and fetches new HDFS tokens itself. "
            "The copy is on a node and in YARN's state store. Default: none; the task that waits for a job sends it "
            "new tokens.",
        ),
        master_principal=Field(
            "Keytab principal", "Principal in the keytab, such as alice@EXAMPLE.COM. Jobs run as this user."
        ),
        tokens_renewed=Field(
            "Tokens are refreshed",
            "`airflow tony renew` runs regularly, so jobs without a waiting task may outlive their HDFS tokens. "
            "Default: no.",
            "flag",
        ),
        network=Field(
            "Network",
            "Which processes can reach the ports of a job: isolated (only processes of the same job), or trusted (also "
            "others, which can then do what the job's user may do). A job's key network replaces this value. Default: "
            "unknown; jobs whose framework does not authenticate clients get a warning.",
            "network",
        ),
        key_server=Field(
            "Key server",
            "Server with the keys of HDFS encryption zones, such as kms://https@kms.example.com:9600/kms. none: jobs "
            "get no token of a key server. Default: the server that HDFS names.",
        ),
        verify=Field(
            "Verify TLS",
            "Verification of https servers by the worker: true, false, or the path of a PEM file with CA certificates. "
            "Default: true.",
            "flag_or_text",
        ),
        nodes_ca_file=Field("CA file on the nodes", "Path of a PEM file on the nodes, which verifies https NameNodes."),
    ),
    **_group(
        "Nodes and jobs",
        other_hdfs=Field(
            "Other HDFS",
            "Other HDFS clusters that jobs may use in addition to that of the staging directory. For each: the name in "
            "its URIs and its WebHDFS addresses, such as archive=http://nn3:9870,http://nn4:9870; "
            "backup.example.com:8020=http://backup:9870. In JSON, this may also be an object. Default: none.",
            "named_texts",
        ),
        python=Field(
            "Python on the nodes",
            "Python interpreters to try after the job's python_env and before others, separated by commas, such as "
            "/usr/bin/python3.11.",
            "texts",
        ),
        runtime_archive=Field(
            "Runtime archive",
            "Archive that `airflow tony runtime build` makes, for nodes whose Python differs from the worker's: a file "
            "on the worker, or a URI such as hdfs:///apps/tony/tony-runtime.zip. Default: built from the worker's "
            "packages.",
        ),
        shared_dir=Field(
            "Shared directory",
            "Directory that all nodes mount at this path, such as /mnt/tony, for jobs with checkpoint.shared. Users "
            "must be able to create a directory in it. Default: none; for the local backend, its State directory.",
        ),
        shared_cache=Field(
            "Shared cache",
            "Directory of the store with Python environments for all users, such as hdfs:///apps/tony. An "
            "administrator must own it, and no other user may write to it. Default: none.",
        ),
        log_size=Field(
            "Log size",
            "Size limit of a task's output in the log directory of its container, for jobs without logs.max_size. "
            f"Default: {contract.LOG_SIZE}MiB.",
            "memory",
        ),
        deal_gpus=Field(
            "Assign GPUs",
            "The nodes do not isolate GPUs: each task locks its requested number of GPUs on its node, and finds them "
            "in CUDA_VISIBLE_DEVICES. Default: no.",
            "flag",
        ),
        gpu_devices=Field(
            "GPUs of each node",
            "GPUs to assign, as in CUDA_VISIBLE_DEVICES, separated by commas, such as 0,1,2,3. Default: the GPUs that "
            "nvidia-smi -L lists on the node.",
            "texts",
        ),
        namespace=Field(
            "Namespace",
            "Part of the identity of each training, which separates several Airflow installations on one cluster. "
            f"Default: {contract.NAMESPACE}.",
        ),
    ),
    **_group(
        "Limits of jobs",
        proxy_users=Field(
            "Proxy users",
            "Users that proxy_user may name, separated by commas. * matches any text, as in ml-*; the single word none "
            "allows no user. Default: all users that the cluster allows.",
            "limits",
        ),
        queues=Field(
            "Queues",
            "YARN queues that jobs may name, as jobs write them, in the form of Proxy users, such as ml,root.ml.*. "
            "Default: all.",
            "limits",
        ),
        images=Field(
            "Images",
            "Docker images that jobs may name, in the form of Proxy users, such as registry.example.com/ml/*. "
            "Default: all.",
            "limits",
        ),
        file_roots=Field(
            "File roots",
            "Directories of the worker that may contain files of jobs, separated by commas. Symbolic links are "
            "followed first. The list replaces the default, so include the DAGs' folder; / allows all files. "
            "Default: the DAG's bundle and its template search path.",
            "limits",
        ),
        allowed_overrides=Field(
            "Overrides",
            "Keys that overrides may change, even if a DAG allows more, separated by commas, such as tasks.*.memory. "
            "Default: the keys that the DAG allows.",
            "limits",
        ),
        presets=Field(
            "Presets",
            "Named base specifications. A job extends a preset if its key preset names it. An object, such as "
            '{"small": {"tasks": {"worker": {"memory": "2GiB"}}}}. Default: none.',
            "mapping",
        ),
        max_tasks=Field("Maximum tasks", "Maximum number of tasks of one job. Default: no limit.", "number", minimum=1),
        max_memory=Field(
            "Maximum memory",
            "Maximum memory of all containers of a job together, including the application master's, such as 512GiB. "
            "Default: no limit.",
            "memory",
        ),
        max_vcores=Field(
            "Maximum vcores",
            "Maximum number of vcores of all containers of a job together. Default: no limit.",
            "number",
            minimum=1,
        ),
        max_gpus=Field(
            "Maximum GPUs",
            "Maximum number of GPUs of all containers of a job together. Default: no limit.",
            "number",
            minimum=0,
        ),
        max_container_memory=Field(
            "Maximum memory of a container",
            "Maximum memory of one container, such as 64GiB. Default: no limit.",
            "memory",
        ),
        max_container_vcores=Field(
            "Maximum vcores of a container",
            "Maximum number of vcores of one container. Default: no limit.",
            "number",
            minimum=1,
        ),
        max_container_gpus=Field(
            "Maximum GPUs of a container",
            "Maximum number of GPUs of one container. Default: no limit.",
            "number",
            minimum=0,
        ),
        max_lifetime=Field(
            "Maximum lifetime",
            "Maximum of timeouts.lifetime, such as 2d. It also applies to jobs that set no lifetime. "
            "Default: no limit.",
            "duration",
        ),
        max_priority=Field("Maximum priority", "Maximum priority of a job. Default: no limit.", "number", minimum=0),
    ),
    **_group(
        "YARN",
        scheduler_address=Field(
            "Scheduler addresses",
            "Addresses (host:port) at which application masters reach the ResourceManagers, separated by commas. "
            "Default: from the ResourceManager's configuration.",
            "texts",
        ),
        timeout=Field(
            "Timeout",
            "Time limit in seconds for one call to the ResourceManagers, including all retries and failovers. "
            f"Default: {contract.CALL_SECONDS:g}.",
            "number",
            minimum=1,
        ),
        trust_env=Field(
            "Use proxy variables",
            "Connect to the ResourceManager through the proxies in HTTPS_PROXY and similar variables. Default: no.",
            "flag",
        ),
        autoscaling=Field(
            "Autoscaling",
            "The cluster adds nodes when jobs wait for them: a job larger than the present cluster gets a warning, and "
            "is not rejected. Default: no.",
            "flag",
        ),
    ),
    **_group(
        "Local backend",
        local_root=Field(
            "State directory",
            "Directory for the state of the local cluster. Default: cluster, in the staging directory.",
        ),
        local_memory=Field(
            "Memory",
            "Memory in MiB that one job may use on this machine. Default: all memory of the machine.",
            "number",
            minimum=1,
        ),
        local_vcores=Field(
            "Vcores",
            "Number of vcores that one job may use. Default: 8, or the number of processors if it is larger.",
            "number",
            minimum=1,
        ),
        local_gpus=Field("GPUs", "Number of GPUs that one job may use. Default: 0.", "number", minimum=0),
    ),
}

CONNECTION_FIELDS = {name: field.form for name, field in FIELDS.items()}

FIELD_BEHAVIOUR: dict[str, Any] = {
    # The schema field is hidden because addresses contain http or https. An existing schema of a connection is kept.
    "hidden-fields": ["password", "schema"],
    "relabeling": {
        "host": "ResourceManagers",
        "port": "Port",
        "login": "User",
    },
    # Grey example texts. They must not look like entered values, and must be short enough to be fully visible.
    "placeholders": {
        "host": "on YARN, such as http://rm1:8088,http://rm2:8088",
        "port": "for addresses without one; required by Airflow's test",
        "login": "user of jobs on a cluster without Kerberos",
    },
}
