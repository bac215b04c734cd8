"""Fields of a tony connection: the single definition for Airflow's form and for the accepted keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from tony_provider.cluster import defaults
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
        "Backend",
        "yarn: a Hadoop cluster. local: the Airflow worker's own machine. Default: yarn.",
        "backend",
    ),
    "webhdfs": Field(
        "WebHDFS addresses",
        "Of every NameNode, separated by commas, such as http://nn1:9870,http://nn2:9870. Needed on YARN, here or in a "
        "WebHDFS connection.",
        "texts",
    ),
    "webhdfs_conn_id": Field(
        "WebHDFS connection",
        "Instead of the addresses: a connection of type webhdfs, which gives the hosts, port, path, TLS and user. "
        "Default: webhdfs_default.",
    ),
    "staging_dir": Field(
        "Staging directory",
        "Where jobs keep their files: a path or URI on HDFS; for the local backend a directory of this machine, which "
        "is required. Default: /user/<user of the job>/.tony.",
    ),
    "queue": Field("Queue", "YARN queue of jobs that name no queue. Default: YARN's own placement."),
    **_group(
        "Security",
        kerberos=Field("Kerberos", "The cluster requires Kerberos. Default: as [core] security specifies.", "flag"),
        insecure_http=Field(
            "Insecure HTTP",
            "With Kerberos, also submit jobs over plain http: their keys, secrets and HDFS tokens are readable on the "
            "network. Default: no, https only.",
            "flag",
        ),
        rm_principal=Field(
            "ResourceManager's principal",
            "The principal that renews HDFS tokens. Default: from the ResourceManager's configuration.",
        ),
        master_keytab=Field(
            "Keytab of masters",
            "A keytab on the worker. Each application master gets a copy, to fetch new HDFS tokens by itself. The copy "
            "is on a node and in YARN's state store. Default: the task that waits for a job sends it tokens.",
        ),
        master_principal=Field("Keytab's principal", "Such as alice@EXAMPLE.COM: the user that jobs run as."),
        tokens_renewed=Field(
            "Tokens are renewed",
            "`airflow tony renew` runs regularly, so jobs without a waiting task may outlive their HDFS tokens. "
            "Default: no.",
            "flag",
        ),
        network=Field(
            "Network",
            "Who can reach the ports of jobs' processes, unless a job sets its key network. isolated: only "
            "processes of the same job; trusted: also others, who can do what the job's user may. Default: unknown, "
            "and jobs whose framework does not authenticate clients get a warning.",
            "network",
        ),
        key_server=Field(
            "Key server",
            "The server with the keys of HDFS's encryption zones, such as kms://https@kms.example.com:9600/kms; none: "
            "jobs get no token of a key server. Default: the server that HDFS names.",
        ),
        verify=Field(
            "Verify TLS",
            "true, false, or the PEM file with which the worker verifies https servers. Default: true.",
            "flag_or_text",
        ),
        nodes_ca_file=Field("CA file on the nodes", "PEM file on the nodes for verifying https NameNodes."),
    ),
    **_group(
        "Nodes and jobs",
        other_hdfs=Field(
            "Other HDFS",
            "HDFS that jobs may use next to the staging directory's. For each: the name in its URIs, and its WebHDFS "
            "addresses, such as archive=http://nn3:9870,http://nn4:9870; backup.example.com:8020=http://backup:9870. "
            "In JSON, also an object. Default: none.",
            "named_texts",
        ),
        python=Field(
            "Python on the nodes",
            "Interpreters to try first, after the job's python_env, separated by commas, such as /usr/bin/python3.11.",
            "texts",
        ),
        runtime_archive=Field(
            "Runtime archive",
            "Made by `airflow tony runtime build`, for nodes whose Python is not the worker's: a file on the worker or "
            "a URI such as hdfs:///apps/tony/tony-runtime.zip.",
        ),
        shared_dir=Field(
            "Shared directory",
            "A directory that all nodes have mounted at this path, such as /mnt/tony, for jobs with checkpoint.shared. "
            "Users must be able to create a directory in it. Default: none; for the local backend its State directory.",
        ),
        shared_cache=Field(
            "Shared cache",
            "A directory of the store with Python environments for all users, such as hdfs:///apps/tony, that an "
            "administrator owns and no other user may write to. Default: none.",
        ),
        log_size=Field(
            "Log size",
            "Size limit of a task's output in its container's log directory, for jobs that do not set it "
            f"(logs.max_size). Default: {contract.LOG_SIZE}MiB.",
            "memory",
        ),
        deal_gpus=Field(
            "Assign GPUs",
            "The nodes do not isolate GPUs: each task locks its requested number of GPUs on its node, and "
            "finds them in CUDA_VISIBLE_DEVICES. Default: no.",
            "flag",
        ),
        gpu_devices=Field(
            "GPUs of a node",
            "GPUs to assign, as in CUDA_VISIBLE_DEVICES, separated by commas, such as 0,1,2,3. Default: the GPUs "
            "that nvidia-smi -L lists on the node.",
            "texts",
        ),
        namespace=Field(
            "Namespace",
            "Separates several Airflow installations on one cluster: it is a part of every training's identity. "
            f"Default: {defaults.NAMESPACE}.",
        ),
    ),
    **_group(
        "Limits of jobs",
        proxy_users=Field(
            "Users",
            "Users that proxy_user may name, separated by commas; * matches any text, as in ml-*. The single word none "
            "allows no user. Default: all users that the cluster allows to impersonate.",
            "limits",
        ),
        queues=Field(
            "Queues",
            "YARN queues that jobs may name, as written there, listed like Users, such as ml,root.ml.*. Default: any.",
            "limits",
        ),
        images=Field(
            "Images",
            "Docker images that jobs may name, listed like Users, such as registry.example.com/ml/*. Default: any.",
            "limits",
        ),
        file_roots=Field(
            "File roots",
            "Directories of the worker that may contain files of jobs (after following links), separated by commas. "
            "The list replaces the default, so include the DAGs' folder; / allows all files. Default: the DAG's bundle "
            "and its template search path.",
            "limits",
        ),
        allowed_overrides=Field(
            "Overrides",
            "The only keys that overrides may change, even if a DAG allows more, separated by commas, such as "
            "tasks.*.memory. Default: as the DAG specifies.",
            "limits",
        ),
        presets=Field(
            "Presets",
            "Named base specifications, which a job extends if its key preset names one: an object, such as "
            '{"small": {"tasks": {"worker": {"memory": "2GiB"}}}}. Default: none.',
            "mapping",
        ),
        max_tasks=Field("Maximum tasks", "Of one job. Default: no limit.", "number", minimum=1),
        max_memory=Field(
            "Maximum memory",
            "Of all containers of a job together, including its master's, such as 512GiB. Default: no limit.",
            "memory",
        ),
        max_vcores=Field(
            "Maximum vcores", "Of all containers of a job together. Default: no limit.", "number", minimum=1
        ),
        max_gpus=Field("Maximum GPUs", "Of all containers of a job together. Default: no limit.", "number", minimum=0),
        max_container_memory=Field("Memory of a container", "Maximum, such as 64GiB. Default: no limit.", "memory"),
        max_container_vcores=Field("Vcores of a container", "Maximum. Default: no limit.", "number", minimum=1),
        max_container_gpus=Field("GPUs of a container", "Maximum. Default: no limit.", "number", minimum=0),
        max_lifetime=Field(
            "Longest lifetime",
            "Maximum timeouts.lifetime, such as 2d; it also applies to jobs that set no lifetime. Default: no limit.",
            "duration",
        ),
        max_priority=Field("Highest priority", "Maximum of a job's priority. Default: no limit.", "number", minimum=0),
    ),
    **_group(
        "YARN",
        scheduler_address=Field(
            "Scheduler addresses",
            "host:port at which application masters reach the ResourceManagers, separated by commas. Default: from the "
            "ResourceManager's configuration.",
            "texts",
        ),
        timeout=Field(
            "Timeout",
            "Seconds for one call to the ResourceManagers, with every retry and failover. "
            f"Default: {defaults.CALL_SECONDS:g}.",
            "number",
            minimum=1,
        ),
        trust_env=Field(
            "Use proxy variables",
            "Reach the ResourceManager through HTTPS_PROXY and similar variables. Default: no.",
            "flag",
        ),
        autoscaling=Field(
            "Autoscaling",
            "The cluster adds nodes when jobs wait for them: a job larger than the present cluster gets a warning, and "
            "is not refused. Default: no.",
            "flag",
        ),
    ),
    **_group(
        "Local backend",
        local_root=Field(
            "State directory", "Where the local cluster keeps its state. Default: cluster, in the staging directory."
        ),
        local_memory=Field(
            "Memory", "MiB that one job may use on this machine. Default: all of it.", "number", minimum=1
        ),
        local_vcores=Field(
            "Vcores",
            "How many vcores one job may use. Default: 8, or the number of processors if it is larger.",
            "number",
            minimum=1,
        ),
        local_gpus=Field("GPUs", "How many GPUs one job may use. Default: 0.", "number", minimum=0),
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
        "port": "if an address has none; required by Airflow's test",
        "login": "user of jobs on a cluster without Kerberos",
    },
}
