"""Fields of a tony connection: the single definition for Airflow's form and for the accepted keys."""

from __future__ import annotations

from typing import Any

from tony_provider.cluster import defaults
from tony_provider.runtime.common import contract


def _field(label: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": schema}


def _text(label: str, description: str) -> dict[str, Any]:
    """Define text without suggestions, because Airflow's form would show an empty list until a letter matches."""
    return _field(label, description, type=["string", "null"])


def _number(label: str, description: str, minimum: int) -> dict[str, Any]:
    return _field(label, description, type=["integer", "null"], minimum=minimum)


def _flag(label: str, description: str) -> dict[str, Any]:
    return _field(label, description, type=["boolean", "null"])


def _group(title: str, **fields: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Put fields into a separate, collapsed section."""
    for field in fields.values():
        field["schema"]["section"] = title
    return fields


# In the order of the form: required fields first, then optional ones.
CONNECTION_FIELDS: dict[str, dict[str, Any]] = {
    "backend": _field(
        "Backend",
        "yarn: a Hadoop cluster. local: the Airflow worker's own machine. Default: yarn.",
        type=["string", "null"],
        enum=["yarn", "local"],
        default="yarn",
    ),
    "webhdfs": _text(
        "WebHDFS addresses",
        "Of every NameNode, with commas between, such as http://nn1:9870,http://nn2:9870. Needed on YARN, here or in a "
        "WebHDFS connection.",
    ),
    "webhdfs_conn_id": _text(
        "WebHDFS connection",
        "Instead of the addresses: a connection of type webhdfs, whose hosts, port, path, TLS and user are taken. "
        "Default: webhdfs_default.",
    ),
    "staging_dir": _text(
        "Staging directory",
        "Where jobs keep their files: a path or URI on HDFS; for the local backend a directory of this machine, which "
        "is needed. Default: /user/<whom the job runs as>/.tony.",
    ),
    "queue": _text("Queue", "YARN queue of jobs that name none. Default: YARN's own placement."),
    **_group(
        "Security",
        kerberos=_flag("Kerberos", "The cluster asks for Kerberos. Default: as [core] security says."),
        insecure_http=_flag(
            "Insecure HTTP",
            "With Kerberos, submit jobs over plain http, too: whoever listens on the way reads their keys, secrets and "
            "HDFS tokens. Default: no, https only.",
        ),
        rm_principal=_text(
            "ResourceManager's principal",
            "The principal that renews HDFS tokens. Default: as the ResourceManager's own configuration says.",
        ),
        master_keytab=_text(
            "Keytab of masters",
            "A keytab on the worker that each application master gets, to fetch newer HDFS tokens by itself. It then "
            "lies on a node and in YARN's state store. Default: whoever waits for a job brings it tokens.",
        ),
        master_principal=_text("Its principal", "Whom the keytab is of, such as alice@EXAMPLE.COM: whom jobs run as."),
        tokens_renewed=_flag(
            "Tokens are renewed",
            "`airflow tony renew` runs regularly, so jobs that nobody waits for may outlive their HDFS tokens. "
            "Default: no.",
        ),
        network=_text(
            "Network",
            "Who can reach the ports of jobs' processes, where a job does not say it (its key network). isolated: only "
            "processes of the same job; trusted: others, too, who may do what its user may. Default: nobody has "
            "looked, and jobs whose framework serves anybody get a warning.",
        ),
        key_server=_text(
            "Key server",
            "The server with the keys of HDFS's encryption zones, such as kms://https@kms.example.com:9600/kms; none: "
            "jobs get no token of it. Default: as HDFS says.",
        ),
        verify=_text(
            "Verify TLS",
            "true, false, or the PEM file that https servers are checked against on the worker. Default: true.",
        ),
        nodes_ca_file=_text("CA file on the nodes", "PEM file on the nodes that https NameNodes are checked against."),
    ),
    **_group(
        "Nodes and jobs",
        other_hdfs=_text(
            "Other HDFS",
            "What jobs may name beside the staging directory's HDFS: of each, what its URIs name it by and its WebHDFS "
            "addresses, such as archive=http://nn3:9870,http://nn4:9870; backup.example.com:8020=http://backup:9870. "
            "In JSON an object does as well. Default: nothing else.",
        ),
        python=_text(
            "Python on the nodes",
            "Interpreters to try first, after the job's python_env, with commas between, such as /usr/bin/python3.11.",
        ),
        runtime_archive=_text(
            "Runtime archive",
            "Made by `airflow tony runtime build`, for nodes whose Python is not the worker's: a file on the worker or "
            "a URI such as hdfs:///apps/tony/tony-runtime.zip.",
        ),
        shared_dir=_text(
            "Shared directory",
            "A directory that all nodes have mounted at this path, such as /mnt/tony, for jobs with checkpoint.shared. "
            "Users must be able to create a directory in it. Default: none; for the local backend its State directory.",
        ),
        shared_cache=_text(
            "Shared cache",
            "A directory of the store with Python environments for all users, such as hdfs:///apps/tony, that an "
            "administrator owns and nobody else may write to. Default: none.",
        ),
        log_size=_text(
            "Log size",
            "How much of its container's log directory a task's output may fill, in jobs that do not say it "
            f"(logs.max_size). Default: {contract.LOG_SIZE}MiB.",
        ),
        deal_gpus=_flag(
            "Deal GPUs",
            "The nodes do not isolate GPUs: each task takes as many as it has asked for, by locks on its node, and "
            "finds them in CUDA_VISIBLE_DEVICES. Default: no.",
        ),
        gpu_devices=_text(
            "GPUs of a node",
            "Those to be dealt, as CUDA_VISIBLE_DEVICES has them, with commas between, such as 0,1,2,3. Default: those "
            "that nvidia-smi -L lists on the node.",
        ),
        namespace=_text(
            "Namespace",
            "Keeps several Airflow installations on one cluster apart, being part of every training's identity. "
            f"Default: {defaults.NAMESPACE}.",
        ),
    ),
    **_group(
        "What may be asked for",
        proxy_users=_text(
            "Users",
            "Whom proxy_user may name, with commas between; * stands for anything, as in ml-*, and none alone for "
            "nobody. Default: whom the cluster lets be impersonated.",
        ),
        queues=_text(
            "Queues",
            "YARN queues that jobs may name, as they write them, likewise, such as ml,root.ml.*. Default: any.",
        ),
        images=_text(
            "Images", "Docker images that jobs may name, likewise, such as registry.example.com/ml/*. Default: any."
        ),
        file_roots=_text(
            "File roots",
            "Directories of the worker in which files of jobs may lie after links are followed, separated by commas. "
            "The list replaces the default, so include the DAGs' folder; / allows all files. Default: the DAG's bundle "
            "and its template search path.",
        ),
        allowed_overrides=_text(
            "Overrides",
            "Keys that overrides may touch at most, whatever a DAG allows, with commas between, such as "
            "tasks.*.memory. Default: as the DAG says.",
        ),
        presets=_field(
            "Presets",
            "Named parts of jobs, which a job lies over that names one as its preset: an object, such as "
            '{"small": {"tasks": {"worker": {"memory": "2GiB"}}}}. Default: none.',
            type=["object", "null"],
        ),
        max_tasks=_number("Most tasks", "Tasks of a job at most. Default: no limit.", minimum=1),
        max_memory=_text(
            "Most memory",
            "That all containers of a job may have together, its master's included, such as 512GiB. Default: no limit.",
        ),
        max_vcores=_number("Most vcores", "Of all containers of a job together. Default: no limit.", minimum=1),
        max_gpus=_number("Most GPUs", "Of all containers of a job together. Default: no limit.", minimum=0),
        max_container_memory=_text("Memory of a container", "At most, such as 64GiB. Default: no limit."),
        max_container_vcores=_number("Vcores of a container", "At most. Default: no limit.", minimum=1),
        max_container_gpus=_number("GPUs of a container", "At most. Default: no limit.", minimum=0),
        max_lifetime=_text(
            "Longest lifetime",
            "timeouts.lifetime at most, such as 2d; jobs that give none get this one. Default: no limit.",
        ),
        max_priority=_number("Highest priority", "At most. Default: no limit.", minimum=0),
    ),
    **_group(
        "YARN",
        scheduler_address=_text(
            "Scheduler addresses",
            "host:port that application masters reach the ResourceManagers at, with commas between. Default: as the "
            "ResourceManager's own configuration says.",
        ),
        timeout=_number(
            "Timeout",
            "Seconds for one call to the ResourceManagers, with every retry and failover. "
            f"Default: {defaults.CALL_SECONDS:g}.",
            minimum=1,
        ),
        trust_env=_flag("Use proxy variables", "Reach the ResourceManager by HTTPS_PROXY and the like. Default: no."),
        autoscaling=_flag(
            "Autoscaling",
            "The cluster adds nodes when jobs wait for them: a job larger than the present cluster gets a warning, and "
            "is not refused. Default: no.",
        ),
    ),
    **_group(
        "Local backend",
        local_root=_text(
            "State directory", "Where the local cluster keeps its state. Default: cluster, in the staging directory."
        ),
        local_memory=_number("Memory", "MiB that one job may use on this machine. Default: all of it.", minimum=1),
        local_vcores=_number(
            "Vcores", "How many vcores one job may use. Default: 8, or the processors when these are more.", minimum=1
        ),
        local_gpus=_number("GPUs", "How many GPUs one job may use. Default: 0.", minimum=0),
    ),
}

FIELD_BEHAVIOUR: dict[str, Any] = {
    # Addresses contain http or https. An existing schema of a connection is kept.
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
