"""The fields of a tony connection: one definition, for the form in Airflow's pages and for what is accepted."""

from __future__ import annotations

from typing import Any

from tony_provider.cluster import defaults


def _text(label: str, description: str, *examples: str) -> dict[str, Any]:
    """The form proposes the examples."""
    schema: dict[str, Any] = {"type": ["string", "null"]}
    if examples:
        schema["examples"] = list(examples)
    return {"label": label, "description": description, "schema": schema}


def _number(label: str, description: str, minimum: int) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["integer", "null"], "minimum": minimum}}


def _flag(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["boolean", "null"]}}


CONNECTION_FIELDS: dict[str, dict[str, Any]] = {
    "backend": {
        "label": "Backend",
        "description": "yarn: a Hadoop cluster. local: the Airflow worker's own machine. Default: yarn.",
        "schema": {"type": ["string", "null"], "enum": ["yarn", "local"], "default": "yarn"},
    },
    "webhdfs_conn_id": _text(
        "WebHDFS connection",
        "Connection of type webhdfs whose NameNodes hold the staging directory; hosts, port, path, TLS and user are "
        "taken from it. Default: webhdfs_default.",
    ),
    "webhdfs": _text(
        "WebHDFS addresses",
        "Instead of a WebHDFS connection: http(s)://host:port of every NameNode, with commas between.",
        "http://nn1:9870,http://nn2:9870",
    ),
    "queue": _text("Queue", "YARN queue of jobs that name none. Default: YARN's own placement."),
    "log_size": _text(
        "Log size",
        "What each task may fill of its container's log directory with what it prints, in jobs that do not say it "
        f"(logs.max_size). Default: {defaults.LOG_SIZE}.",
        "64MiB",
    ),
    "namespace": _text(
        "Namespace",
        "Keeps several Airflow installations on one cluster apart, being part of every training's identity. Default: "
        f"{defaults.NAMESPACE}.",
    ),
    "staging_dir": _text(
        "Staging directory",
        "Where jobs keep their files: a path or URI on HDFS; for the local backend a directory of this machine, which "
        "is needed. Default: /user/<whom the job runs as>/.tony.",
        "/user/airflow/.tony",
    ),
    "scheduler_address": _text(
        "Scheduler addresses",
        "host:port that application masters reach the ResourceManagers at, with commas between. Default: the "
        "ResourceManager's own configuration says.",
        "rm1:8030,rm2:8030",
    ),
    "runtime_archive": _text(
        "Runtime archive",
        "Made by `airflow tony runtime build`, for nodes whose Python is not the worker's: a file on the worker or a "
        "URI on HDFS.",
        "hdfs:///apps/tony/tony-runtime.zip",
    ),
    "python": _text(
        "Python on the nodes",
        "Interpreters to try first, after the job's python_env, with commas between, such as /usr/bin/python3.11.",
        "/usr/bin/python3.11",
    ),
    "kerberos": _flag("Kerberos", "The cluster asks for Kerberos. Default: as [core] security says."),
    "rm_principal": _text(
        "ResourceManager's principal", "Renews HDFS tokens. Default: the ResourceManager's own configuration says."
    ),
    "verify": _text(
        "Verify TLS",
        "true, false, or the PEM file that https servers are checked against on the worker. Default: true.",
        "true",
        "false",
        "/etc/ssl/certs/cluster.pem",
    ),
    "nodes_ca_file": _text("CA file on the nodes", "PEM file on the nodes that https NameNodes are checked against."),
    "trust_env": _flag("Use proxy variables", "Reach the ResourceManager by HTTPS_PROXY and the like. Default: no."),
    "autoscaling": _flag(
        "Autoscaling",
        "Nodes are added where jobs wait for them: one that is larger than the cluster is now gets a warning, and is "
        "not refused. Default: no.",
    ),
    "timeout": _number(
        "Timeout",
        "Seconds for one call to the ResourceManagers, with every retry and failover. "
        f"Default: {defaults.CALL_SECONDS:g}.",
        minimum=1,
    ),
    "local_root": _text("Local: state directory", "Of the local cluster. Default: cluster, in the staging directory."),
    "local_memory": _number(
        "Local: memory", "MiB that one job may use on this machine. Default: all of it.", minimum=1
    ),
    "local_vcores": _number(
        "Local: vcores", "How many one job may use. Default: 8, or the processors when these are more.", minimum=1
    ),
    "local_gpus": _number("Local: GPUs", "How many one job may use. Default: 0.", minimum=0),
}

FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["password"],
    "relabeling": {
        "host": "ResourceManagers",
        "port": "ResourceManager port",
        "schema": "http or https",
        "login": "User",
    },
    "placeholders": {
        "host": "http://rm1:8088,http://rm2:8088",
        "port": "8088",
        "schema": "http",
        "login": "whom jobs run as on a cluster without Kerberos",
        "webhdfs_conn_id": "webhdfs_default",
        "webhdfs": "http://nn1:9870,http://nn2:9870",
        "staging_dir": "/user/airflow/.tony",
        "queue": "ml",
        "namespace": "airflow",
    },
}
