"""Fields of a tony connection: the single definition for Airflow's form and for the accepted keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from tony_provider.runtime.common import contract

_TYPES = {"number": "integer", "flag": "boolean", "mapping": "object"}  # JSON types; fields of other kinds are strings

_CHOICES: dict[str, dict[str, Any]] = {  # fields for which the form offers a list
    "backend": {"enum": ["yarn", "local"], "default": "yarn"},
    "network": {"enum": ["isolated", "trusted"]},
    "gateway": {"enum": ["basic", "bearer", "cookie"]},
}


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
        schema |= _CHOICES.get(self.kind, {})
        optional = {"minimum": self.minimum, "section": self.section}
        schema |= {name: value for name, value in optional.items() if value is not None}
        return {"label": self.label, "description": self.description, "schema": schema}


def _group(title: str, **fields: Field) -> dict[str, Field]:
    """Put fields into a separate, collapsed section."""
    return {name: field._replace(section=title) for name, field in fields.items()}


# The form shows the fields in this order: required fields first, then optional ones.
FIELDS = {
    "backend": Field(
        "Backend",
        "System that runs jobs: a Hadoop cluster (yarn), or the Airflow worker (local). Default: yarn.",
        "backend",
    ),
    "webhdfs": Field(
        "WebHDFS addresses",
        "Comma-separated web addresses of all NameNodes, such as http://nn1:9870,http://nn2:9870. On YARN, set either "
        "this field or a WebHDFS connection.",
        "texts",
    ),
    "webhdfs_conn_id": Field(
        "WebHDFS connection",
        "ID of a webhdfs connection, as an alternative to the WebHDFS addresses. This connection provides hosts, "
        "port, path, TLS settings and user. Default: webhdfs_default.",
    ),
    "staging_dir": Field(
        "Staging directory",
        "Directory for job files. On YARN, give a path or URI on HDFS. For the local backend, give a directory on the "
        "worker. Default: /user/<user of the job>/.tony.",
    ),
    "queue": Field("Queue", "YARN queue for jobs that specify no queue. Default: YARN's queue placement."),
    **_group(
        "Security",
        kerberos=Field(
            "Kerberos",
            "Whether the cluster requires Kerberos. Default: yes if Airflow's option [core] security is kerberos.",
            "flag",
        ),
        insecure_http=Field(
            "Insecure HTTP",
            "Whether jobs may be submitted to a Kerberos cluster over plain http, and get tokens of a Hive metastore "
            "that does not encrypt. Their keys, secrets and tokens are then readable on the network. Default: no.",
            "flag",
        ),
        rm_principal=Field(
            "ResourceManager principal",
            "Kerberos principal that renews the HDFS tokens of jobs. Default: the principal in the ResourceManager's "
            "configuration.",
        ),
        master_keytab=Field(
            "Keytab for masters",
            "Path of a keytab on the worker. Each application master gets a copy of the keytab, and fetches new HDFS "
            "tokens itself. The copy is stored on a node and in YARN's state store. Default: none; the task that "
            "waits for a job sends new tokens.",
        ),
        master_principal=Field(
            "Keytab principal",
            "Kerberos principal in the keytab for masters, such as alice@EXAMPLE.COM. Jobs run as this user.",
        ),
        tokens_renewed=Field(
            "Tokens are refreshed",
            "Whether `airflow tony renew` runs regularly. If yes, jobs without a waiting task may outlive their HDFS "
            "tokens. Default: no.",
            "flag",
        ),
        network=Field(
            "Network",
            "Processes that can reach the ports of a job: only processes of the same job (isolated), or also other "
            "processes (trusted). If trusted, other processes can do everything that the job's user may do. A job's "
            "key network overrides this value. Default: unknown; a job gets a warning if its framework does not "
            "authenticate clients.",
            "network",
        ),
        key_server=Field(
            "Key server",
            "URI of the key server for HDFS encryption zones, such as kms://https@kms.example.com:9600/kms. With the "
            "value none, jobs get no token for a key server. Default: the key server that HDFS reports.",
        ),
        hive_principal=Field(
            "Hive metastore principal",
            "Kerberos principal of the Hive metastores; _HOST is the host in the address. Default: hive/_HOST.",
        ),
        verify=Field(
            "Verify TLS",
            "Whether the worker verifies the certificates of https servers: true, false, or the path of a PEM file "
            "with CA certificates. Default: true.",
            "flag_or_text",
        ),
        gateway=Field(
            "Gateway",
            "How Airflow logs in at a gateway such as Knox. With basic, Airflow sends the user and the password. With "
            "bearer, it sends the password field as a JSON Web Token (JWT). With cookie, it sends this JWT as a "
            "cookie. The host and the WebHDFS addresses are addresses of the gateway. Default: no gateway.",
            "gateway",
        ),
        nodes_webhdfs=Field(
            "WebHDFS addresses for nodes",
            "Comma-separated web addresses of all NameNodes, as containers reach them. Set this field if the WebHDFS "
            "addresses are those of a gateway or of HttpFS. Default: the WebHDFS addresses.",
            "texts",
        ),
        nodes_ca_file=Field(
            "CA file on the nodes",
            "Path of a PEM file on the nodes. Containers verify https NameNodes with the certificates in this file.",
        ),
    ),
    **_group(
        "Nodes and jobs",
        other_hdfs=Field(
            "Other HDFS",
            "Other HDFS clusters that jobs may use, in addition to the HDFS of the staging directory. For each "
            "cluster, give its name in HDFS URIs and its WebHDFS addresses, such as "
            "archive=http://nn3:9870,http://nn4:9870; backup.example.com:8020=http://backup:9870. In JSON, the value "
            "may also be an object. Default: none.",
            "named_texts",
        ),
        hive_metastore=Field(
            "Hive metastore",
            "Comma-separated addresses of one Hive metastore, such as thrift://hms1:9083, for inputs that are tables. "
            "Default: none.",
            "texts",
        ),
        python=Field(
            "Python on the nodes",
            "Comma-separated Python interpreters on the nodes, such as /usr/bin/python3.11. A container tries the "
            "job's python_env first, then these interpreters, and then other interpreters.",
            "texts",
        ),
        runtime_archive=Field(
            "Runtime archive",
            "Archive from `airflow tony runtime build`, for nodes whose Python differs from the worker's. Give a path "
            "on the worker, or a URI such as hdfs:///apps/tony/tony-runtime.zip. Default: an archive of the worker's "
            "packages.",
        ),
        avoid_nodes_after=Field(
            "Avoid nodes after",
            "New jobs avoid nodes that lost containers of at least this many applications in the last "
            f"{contract.LOST_NODES_DAYS} days; see `airflow tony nodes`. Default: new jobs avoid no node.",
            "number",
            minimum=1,
        ),
        aws_conn_id=Field(
            "AWS connection",
            "ID of an aws connection with the access to s3:// inputs and outputs: access key, and optionally session "
            "token, endpoint and region. Jobs with such inputs or outputs get these values in environment variables; "
            "keys are treated like secrets. Default: none; nodes use their own role.",
        ),
        shared_dir=Field(
            "Shared directory",
            "Directory for checkpoints of jobs with checkpoint.shared, such as /mnt/tony. All nodes must mount the "
            "directory at this path, and users must be able to create subdirectories. Default: none; for the local "
            "backend, the State directory.",
        ),
        shared_cache=Field(
            "Shared cache",
            "Directory on the store for Python environments that all users share, such as hdfs:///apps/tony. An "
            "administrator must own the directory, and no other user may write to it. Default: none.",
        ),
        log_size=Field(
            "Log size",
            "Maximum size of a task's output in its container's log directory. The limit applies to jobs without "
            "logs.max_size. "
            f"Default: {contract.LOG_SIZE}MiB.",
            "memory",
        ),
        deal_gpus=Field(
            "Assign GPUs",
            "Whether tasks lock GPUs themselves. Use this if the nodes do not isolate GPUs. Each task locks its "
            "requested number of GPUs, and finds their names in CUDA_VISIBLE_DEVICES. Default: no.",
            "flag",
        ),
        gpu_devices=Field(
            "GPUs of each node",
            "GPUs that tasks may lock on each node, in the format of CUDA_VISIBLE_DEVICES, such as 0,1,2,3. Default: "
            "the GPUs that nvidia-smi -L lists on the node.",
            "texts",
        ),
        namespace=Field(
            "Namespace",
            "Name that is part of each training's identity. Use different names if several Airflow installations share "
            "a cluster. "
            f"Default: {contract.NAMESPACE}.",
        ),
    ),
    **_group(
        "Limits of jobs",
        proxy_users=Field(
            "Proxy users",
            "Comma-separated users that are allowed as proxy_user. The character * matches any text, as in ml-*. The "
            "single word none allows no user. Default: all users that the cluster allows.",
            "limits",
        ),
        queues=Field(
            "Queues",
            "Comma-separated YARN queues that jobs may use, such as ml,root.ml.*. Write each queue exactly as jobs "
            "specify it. The character * and the word none have the same meaning as in the field Proxy users. "
            "Default: all queues.",
            "limits",
        ),
        images=Field(
            "Images",
            "Comma-separated Docker images that jobs may use, such as registry.example.com/ml/*. The character * and "
            "the word none have the same meaning as in the field Proxy users. Default: all images.",
            "limits",
        ),
        file_roots=Field(
            "File roots",
            "Comma-separated directories of the worker from which jobs may use files. Symbolic links are resolved "
            "before the check. This value replaces the default, so include the DAGs folder. The directory / allows "
            "all files. Default: the DAG's bundle and its template search path.",
            "limits",
        ),
        allowed_overrides=Field(
            "Overrides",
            "Comma-separated job keys that overrides may change, such as tasks.*.memory. Overrides may not change "
            "other keys, even if a DAG allows them. Default: the keys that the DAG allows.",
            "limits",
        ),
        presets=Field(
            "Presets",
            "Named base specifications, which jobs extend with the key preset. The value is an object, such as "
            '{"small": {"tasks": {"worker": {"memory": "2GiB"}}}}. Default: none.',
            "mapping",
        ),
        max_tasks=Field("Maximum tasks", "Maximum number of tasks of one job. Default: no limit.", "number", minimum=1),
        max_memory=Field(
            "Maximum memory",
            "Maximum total memory of a job's containers, such as 512GiB. The total includes the application master's "
            "container. Default: no limit.",
            "memory",
        ),
        max_vcores=Field(
            "Maximum vcores",
            "Maximum total number of vcores of a job's containers. Default: no limit.",
            "number",
            minimum=1,
        ),
        max_gpus=Field(
            "Maximum GPUs",
            "Maximum total number of GPUs of a job's containers. Default: no limit.",
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
            "Maximum value of timeouts.lifetime, such as 2d. The limit also applies to jobs that set no lifetime. "
            "Default: no limit.",
            "duration",
        ),
        max_priority=Field("Maximum priority", "Maximum priority of a job. Default: no limit.", "number", minimum=0),
    ),
    **_group(
        "YARN",
        scheduler_address=Field(
            "Scheduler addresses",
            "Comma-separated addresses (host:port) at which application masters reach the ResourceManagers. Default: "
            "the addresses in the ResourceManager's configuration.",
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
            "Whether Airflow connects to the ResourceManagers through the proxies in HTTPS_PROXY and similar "
            "environment variables. Default: no.",
            "flag",
        ),
        autoscaling=Field(
            "Autoscaling",
            "Whether the cluster adds nodes when jobs wait for nodes. If yes, a job that exceeds the current cluster "
            "size gets a warning, instead of being rejected. Default: no.",
            "flag",
        ),
    ),
    **_group(
        "Local backend",
        local_root=Field(
            "State directory",
            "Directory for the state of the local cluster. Default: the subdirectory cluster of the staging directory.",
        ),
        local_memory=Field(
            "Memory",
            "Maximum memory in MiB that one job may use on the worker. Default: all memory of the machine.",
            "number",
            minimum=1,
        ),
        local_vcores=Field(
            "Vcores",
            "Maximum number of vcores that one job may use on the worker. Default: the number of processors, but at "
            "least 8.",
            "number",
            minimum=1,
        ),
        local_gpus=Field(
            "GPUs", "Maximum number of GPUs that one job may use on the worker. Default: 0.", "number", minimum=0
        ),
    ),
}

CONNECTION_FIELDS = {name: field.form for name, field in FIELDS.items()}

FIELD_BEHAVIOUR: dict[str, Any] = {
    # The schema field is hidden because addresses contain http or https. An existing schema of a connection is kept.
    "hidden-fields": ["schema"],
    "relabeling": {
        "host": "ResourceManagers",
        "port": "Port",
        "login": "User",
        "password": "Password or JWT",
    },
    # Grey example texts. They must not look like entered values, and must be short enough to be fully visible.
    "placeholders": {
        "host": "on YARN, such as http://rm1:8088,http://rm2:8088",
        "port": "port of hosts without a port, or 0 for Airflow's test",
        "login": "user of jobs on a cluster without Kerberos",
        "password": "only for a gateway, such as Knox",
    },
}
