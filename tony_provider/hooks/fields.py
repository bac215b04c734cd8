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
        "Of every NameNode, with commas between, such as http://nn1:9870,http://nn2:9870. Needed on YARN, here or in a "
        "WebHDFS connection.",
        "texts",
    ),
    "webhdfs_conn_id": Field(
        "WebHDFS connection",
        "Instead of the addresses: a connection of type webhdfs, whose hosts, port, path, TLS and user are taken. "
        "Default: webhdfs_default.",
    ),
    "staging_dir": Field(
        "Staging directory",
        "Where jobs keep their files: a path or URI on HDFS; for the local backend a directory of this machine, which "
        "is needed. Default: /user/<whom the job runs as>/.tony.",
    ),
    "queue": Field("Queue", "YARN queue of jobs that name none. Default: YARN's own placement."),
    **_group(
        "Security",
        kerberos=Field("Kerberos", "The cluster asks for Kerberos. Default: as [core] security says.", "flag"),
        insecure_http=Field(
            "Insecure HTTP",
            "With Kerberos, submit jobs over plain http, too: whoever listens on the way reads their keys, secrets and "
            "HDFS tokens. Default: no, https only.",
            "flag",
        ),
        rm_principal=Field(
            "ResourceManager's principal",
            "The principal that renews HDFS tokens. Default: as the ResourceManager's own configuration says.",
        ),
        master_keytab=Field(
            "Keytab of masters",
            "A keytab on the worker that each application master gets, to fetch newer HDFS tokens by itself. It then "
            "lies on a node and in YARN's state store. Default: whoever waits for a job brings it tokens.",
        ),
        master_principal=Field("Its principal", "Whom the keytab is of, such as alice@EXAMPLE.COM: whom jobs run as."),
        tokens_renewed=Field(
            "Tokens are renewed",
            "`airflow tony renew` runs regularly, so jobs that nobody waits for may outlive their HDFS tokens. "
            "Default: no.",
            "flag",
        ),
        network=Field(
            "Network",
            "Who can reach the ports of jobs' processes, where a job does not say it (its key network). isolated: only "
            "processes of the same job; trusted: others, too, who may do what its user may. Default: nobody has "
            "looked, and jobs whose framework serves anybody get a warning.",
            "network",
        ),
        key_server=Field(
            "Key server",
            "The server with the keys of HDFS's encryption zones, such as kms://https@kms.example.com:9600/kms; none: "
            "jobs get no token of it. Default: as HDFS says.",
        ),
        verify=Field(
            "Verify TLS",
            "true, false, or the PEM file that https servers are checked against on the worker. Default: true.",
            "flag_or_text",
        ),
        nodes_ca_file=Field("CA file on the nodes", "PEM file on the nodes that https NameNodes are checked against."),
    ),
    **_group(
        "Nodes and jobs",
        other_hdfs=Field(
            "Other HDFS",
            "What jobs may name beside the staging directory's HDFS: of each, what its URIs name it by and its WebHDFS "
            "addresses, such as archive=http://nn3:9870,http://nn4:9870; backup.example.com:8020=http://backup:9870. "
            "In JSON an object does as well. Default: nothing else.",
            "named_texts",
        ),
        python=Field(
            "Python on the nodes",
            "Interpreters to try first, after the job's python_env, with commas between, such as /usr/bin/python3.11.",
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
            "administrator owns and nobody else may write to. Default: none.",
        ),
        log_size=Field(
            "Log size",
            "How much of its container's log directory a task's output may fill, in jobs that do not say it "
            f"(logs.max_size). Default: {contract.LOG_SIZE}MiB.",
            "memory",
        ),
        deal_gpus=Field(
            "Deal GPUs",
            "The nodes do not isolate GPUs: each task takes as many as it has asked for, by locks on its node, and "
            "finds them in CUDA_VISIBLE_DEVICES. Default: no.",
            "flag",
        ),
        gpu_devices=Field(
            "GPUs of a node",
            "Those to be dealt, as CUDA_VISIBLE_DEVICES has them, with commas between, such as 0,1,2,3. Default: those "
            "that nvidia-smi -L lists on the node.",
            "texts",
        ),
        namespace=Field(
            "Namespace",
            "Keeps several Airflow installations on one cluster apart, being part of every training's identity. "
            f"Default: {defaults.NAMESPACE}.",
        ),
    ),
    **_group(
        "What may be asked for",
        proxy_users=Field(
            "Users",
            "Whom proxy_user may name, with commas between; * stands for anything, as in ml-*, and none alone for "
            "nobody. Default: whom the cluster lets be impersonated.",
            "limits",
        ),
        queues=Field(
            "Queues",
            "YARN queues that jobs may name, as they write them, likewise, such as ml,root.ml.*. Default: any.",
            "limits",
        ),
        images=Field(
            "Images",
            "Docker images that jobs may name, likewise, such as registry.example.com/ml/*. Default: any.",
            "limits",
        ),
        file_roots=Field(
            "File roots",
            "Directories of the worker in which files of jobs may lie after links are followed, separated by commas. "
            "The list replaces the default, so include the DAGs' folder; / allows all files. Default: the DAG's bundle "
            "and its template search path.",
            "limits",
        ),
        allowed_overrides=Field(
            "Overrides",
            "Keys that overrides may touch at most, whatever a DAG allows, with commas between, such as "
            "tasks.*.memory. Default: as the DAG says.",
            "limits",
        ),
        presets=Field(
            "Presets",
            "Named parts of jobs, which a job lies over that names one as its preset: an object, such as "
            '{"small": {"tasks": {"worker": {"memory": "2GiB"}}}}. Default: none.',
            "mapping",
        ),
        max_tasks=Field("Most tasks", "Tasks of a job at most. Default: no limit.", "number", minimum=1),
        max_memory=Field(
            "Most memory",
            "That all containers of a job may have together, its master's included, such as 512GiB. Default: no limit.",
            "memory",
        ),
        max_vcores=Field("Most vcores", "Of all containers of a job together. Default: no limit.", "number", minimum=1),
        max_gpus=Field("Most GPUs", "Of all containers of a job together. Default: no limit.", "number", minimum=0),
        max_container_memory=Field("Memory of a container", "At most, such as 64GiB. Default: no limit.", "memory"),
        max_container_vcores=Field("Vcores of a container", "At most. Default: no limit.", "number", minimum=1),
        max_container_gpus=Field("GPUs of a container", "At most. Default: no limit.", "number", minimum=0),
        max_lifetime=Field(
            "Longest lifetime",
            "timeouts.lifetime at most, such as 2d; jobs that give none get this one. Default: no limit.",
            "duration",
        ),
        max_priority=Field("Highest priority", "At most. Default: no limit.", "number", minimum=0),
    ),
    **_group(
        "YARN",
        scheduler_address=Field(
            "Scheduler addresses",
            "host:port that application masters reach the ResourceManagers at, with commas between. Default: as the "
            "ResourceManager's own configuration says.",
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
            "Use proxy variables", "Reach the ResourceManager by HTTPS_PROXY and the like. Default: no.", "flag"
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
            "How many vcores one job may use. Default: 8, or the processors when these are more.",
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
        "port": "where addresses have none; Airflow's test asks for one",
        "login": "whom jobs run as on a cluster without Kerberos",
    },
}
