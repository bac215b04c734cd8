"""Read a ``tony`` connection from Airflow and turn it into validated Settings.

Also contains the masking of secrets as Airflow does it, and access to connections in Airflow's database.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection, conf
from airflow.sdk.exceptions import AirflowRuntimeError

from tony_provider.cluster.errors import ClusterUnreachable, ConnectionProblem
from tony_provider.cluster.settings import (
    NO_KEY_SERVER,
    Backend,
    GatewayLogin,
    GatewayMethod,
    LocalSettings,
    MasterKeytab,
    Policy,
    Presets,
    Settings,
    YarnSettings,
    preset_problems,
)
from tony_provider.compat import MASKER
from tony_provider.hooks.fields import FIELDS
from tony_provider.runtime.application import GpuDealing, OtherHdfs
from tony_provider.runtime.common.clock import epoch_ms, moment
from tony_provider.runtime.common.network import web_address
from tony_provider.runtime.common.text import masked
from tony_provider.runtime.jobspec.model import Duration, Memory, Network
from tony_provider.runtime.jobspec.problems import SpecError, suggestion
from tony_provider.runtime.jobspec.units import UnitError, parse_duration, parse_memory
from tony_provider.runtime.parsing.parse import load_source
from tony_provider.runtime.storage.object_store import VARIABLES
from tony_provider.runtime.storage.webhdfs.key_server import key_server_addresses
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

_WARNING = "Skipping masking"  # start of Airflow's message


@contextmanager
def without_masking_warnings() -> Iterator[None]:
    """Suppress Airflow's warnings about secrets that are too short to be masked.

    Airflow treats every value in a connection's extra as a secret, for example a queue ``ml``. A ``tony`` connection
    has no secrets in its extra, so such warnings are wrong. Airflow warns only once per process, so code that masks
    real secrets must warn about short ones itself.
    """
    logger = logging.getLogger(MASKER)
    logger.addFilter(_is_of_something_else)
    try:
        yield
    finally:
        logger.removeFilter(_is_of_something_else)


def _is_of_something_else(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_WARNING)


def mask_of(secrets: Mapping[str, str]) -> Callable[[str, str], str]:
    """Return a function that masks text as Airflow does, and also masks the values of ``secrets``.

    The returned function takes the text, and the name of the variable whose value the text is. The name is "" if the
    text is no variable's value.
    """
    from airflow.providers.common.compat.sdk import redact

    def mask(text: str, name: str) -> str:
        return str(redact(masked(text, secrets.values()), name or None))

    return mask


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Context manager that sets environment variables of this process, and restores their former values at the end."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def connections_of_database() -> AbstractContextManager[None]:
    """Return a context in which Airflow also searches its database for connections, as in Airflow's own commands.

    It sets a variable to "server", as those commands do, because Airflow otherwise does not search the database. Within
    a task it has no effect, because tasks query the api-server. Source: airflow/cli/commands/connection_command.py and
    ensure_secrets_backend_loaded in airflow/sdk/execution_time/supervisor.py of 3.3.2.
    """
    return environment({"_AIRFLOW_PROCESS_CONTEXT": "server"})


DEFAULT_WEBHDFS_CONN_ID = "webhdfs_default"
_DEFAULT_RM_PORT = 8088  # yarn-default.xml
_DEFAULT_LOCAL_VCORES = 8  # the default of NodeManagers; a vcore need not be a whole processor
_SCHEMES = ("http", "https")
CONN_TYPE = "tony"
_NOTHING = "none"


def read_connection(conn_id: str, proxy_user: str | None = None) -> Settings:
    """Return the settings of the connection with this id.

    Raises ConnectionProblem if the connection is missing or invalid, and ClusterUnreachable if Airflow itself does not
    answer.
    """
    with without_masking_warnings():
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise ConnectionProblem(missing_connection(conn_id)) from error
        except AirflowRuntimeError as error:
            raise ClusterUnreachable(f"Airflow did not return the connection {conn_id!r}: {error}") from error
        return settings_of(connection, proxy_user, get_connection=BaseHook.get_connection)


def missing_connection(conn_id: str) -> str:
    """Return the message for a connection that does not exist, with the commands that add it."""
    return (
        f"there is no connection {conn_id!r}. For a YARN cluster add it with\n"
        f'  airflow connections add {conn_id} --conn-type tony --conn-login "$(id -un)" \\\n'
        "    --conn-host http://resourcemanager.example.com:8088 --conn-port 0 \\\n"
        """    --conn-extra '{"webhdfs": "http://namenode.example.com:9870"}'\n"""
        "or, to run jobs on the Airflow worker's own machine, with\n"
        f"  airflow connections add {conn_id} --conn-type tony --conn-port 0 \\\n"
        """    --conn-extra '{"backend": "local", "staging_dir": "/var/lib/tony"}'"""
    )


def settings_of(
    connection: Connection, proxy_user: str | None, *, get_connection: Callable[[str], Connection]
) -> Settings:
    """Return the settings in a connection.

    ``get_connection`` finds the WebHDFS connection. Raises ConnectionProblem.
    """
    if connection.conn_type != CONN_TYPE:
        raise ConnectionProblem(
            f"the connection {connection.conn_id!r} is of type {connection.conn_type!r}, and should be {CONN_TYPE!r}"
        )
    extra = _Extra(connection.conn_id, _extra_of(connection))
    extra.refuse_unknown()
    if extra["backend"] is Backend.LOCAL:
        yarn, local = None, _local_settings(extra)
    else:
        yarn, local = _yarn_settings(connection, extra, get_connection), None
    if proxy_user and yarn and yarn.gateway:
        raise extra.problem("gateway", f"decides who its users are, so jobs cannot run as {proxy_user} (proxy_user)")
    policy = _policy(extra)
    if problem := policy.user_problem(proxy_user or None):
        raise ConnectionProblem(problem)
    return Settings(
        user=_user(connection, yarn),
        proxy_user=proxy_user or None,
        shared_dir=_shared_dir(extra) or (local.root if local else None),
        # The local backend runs on the worker's own machine, so the worker's own Python is suitable.
        python=extra["python"] or ([sys.executable] if local else []),
        object_store=_object_store(extra, get_connection),
        gpu_dealing=_gpu_dealing(extra),
        policy=policy,
        presets=_presets(extra),
        yarn=yarn,
        local=local,
        **extra.given("namespace", "queue", "log_size", "network", "staging_dir", "runtime_archive", "shared_cache"),
        **extra.given("avoid_nodes_after"),
    )


def _shared_dir(extra: _Extra) -> Path | None:
    named = extra["shared_dir"]
    if named is not None and not named.startswith("/"):
        raise extra.problem("shared_dir", f"is {named!r} and should be an absolute path on all nodes")
    return Path(named) if named else None


def _policy(extra: _Extra) -> Policy:
    limits = extra.given(*(each.name for each in attrs.fields(Policy) if each.name in FIELDS))
    roots = limits.get("file_roots")
    if relative := [root for root in roots or [] if not root.startswith("/")]:
        raise extra.problem("file_roots", f"names {relative[0]!r}, which is not an absolute path")
    return Policy(extra.conn_id, **{**limits, "file_roots": None if roots is None else [Path(root) for root in roots]})


def _presets(extra: _Extra) -> Presets:
    presets = extra["presets"]
    if problems := preset_problems(presets):
        raise extra.problem("presets", "cannot be used:" + "".join(f"\n  - {problem}" for problem in problems))
    return Presets(extra.conn_id, presets)


def _gpu_dealing(extra: _Extra) -> GpuDealing | None:
    names = extra["gpu_devices"]
    if extra["deal_gpus"]:
        if len(set(names)) < len(names):
            raise extra.problem("gpu_devices", f"names a GPU twice: {', '.join(names)}")
        return GpuDealing(names)
    if names:
        raise extra.problem("gpu_devices", "is set, but `deal_gpus` is not; set `deal_gpus`, or remove `gpu_devices`")
    return None


def _local_settings(extra: _Extra) -> LocalSettings:
    staging_dir = extra["staging_dir"]
    if staging_dir is None:
        raise extra.problem("staging_dir", "is required for the local backend: a directory that this user can write to")
    if not staging_dir.removeprefix("file://").startswith("/"):
        raise extra.problem("staging_dir", f"is {staging_dir!r} and should be an absolute path for the local backend")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    root = extra["local_root"]
    return LocalSettings(
        root=Path(root) if root else Path(staging_dir.removeprefix("file://")) / "cluster",
        memory=extra["local_memory"] or pages >> 20,
        vcores=extra["local_vcores"] or max(_DEFAULT_LOCAL_VCORES, os.cpu_count() or 1),
        gpus=extra["local_gpus"] or 0,
    )


def _yarn_settings(connection: Connection, extra: _Extra, get_connection: Callable[[str], Connection]) -> YarnSettings:
    managers = _resource_managers(connection)
    given = {
        "kerberos": conf.get("core", "security", fallback="") == "kerberos",
        **extra.given(*(each.name for each in attrs.fields(YarnSettings) if each.name in FIELDS)),
        "webhdfs": _webhdfs(extra, get_connection),
        "master_keytab": _master_keytab(extra),
        "other_hdfs": _other_hdfs(extra),
        "key_server": _key_server(extra),
        "hive_metastore": _hive_metastore(extra),
        "gateway": _gateway(connection, extra),
    }
    if given["gateway"] and not given.get("nodes_webhdfs"):
        raise extra.problem("nodes_webhdfs", "is required with `gateway`: containers cannot log in at the gateway")
    found = YarnSettings(managers, scheduler=extra["scheduler_address"], **given)
    plain = [each for each in (*managers, *found.webhdfs.addresses) if each.startswith("http://")]
    if found.gateway and plain and not found.insecure_http:
        raise extra.problem("gateway", f"would send the password or JWT unencrypted to {plain[0]}; use https")
    return found


def _gateway(connection: Connection, extra: _Extra) -> GatewayLogin | None:
    method: GatewayMethod | None = extra["gateway"]
    if method is None:
        return None
    for name in ("other_hdfs", "key_server", "hive_metastore"):
        if (extra[name] or NO_KEY_SERVER) != NO_KEY_SERVER:
            raise extra.problem(name, "cannot be used with `gateway`")
    if not (connection.login and connection.password):
        secret = "password" if method is GatewayMethod.BASIC else "token in the password field"
        raise extra.problem("gateway", f"is {method}, so the connection needs a user and a {secret}")
    login = GatewayLogin(method, str(connection.login), str(connection.password).strip())
    if method is not GatewayMethod.BASIC and not re.fullmatch(r"[\x21-\x7e]+", login.secret):
        raise extra.problem("gateway", f"is {method}, and the password field holds no token")
    if method is not GatewayMethod.BASIC and (expiry := login.expiry_ms) and expiry < epoch_ms():
        raise extra.problem("gateway", f"cannot be used: the token in the password field expired at {moment(expiry)}")
    return login


def _master_keytab(extra: _Extra) -> MasterKeytab | None:
    path, principal = extra["master_keytab"], extra["master_principal"]
    if path is None and principal is None:
        return None
    if path is None or principal is None:
        raise extra.problem("master_keytab", "and `master_principal` must be set together")
    return MasterKeytab(Path(path), principal)


def _user(connection: Connection, yarn: YarnSettings | None) -> str | None:
    """Return the user as Hadoop's clients determine it.

    The user is the connection's login. Without a login, it is the owner of the Kerberos ticket (returned as None), the
    user of WebHDFS, or the owner of this process.
    """
    if connection.login:
        return str(connection.login)
    if yarn is None:
        return getpass.getuser()
    if yarn.kerberos:
        return None
    return yarn.webhdfs.user or getpass.getuser()


def _resource_managers(connection: Connection) -> list[str]:
    addresses = [_address(connection, part) for part in _split(connection.host or "")]
    if not addresses:
        raise ConnectionProblem(
            f"the connection {connection.conn_id!r} has no host: write the ResourceManager's web address "
            "(http://host:8088; several are separated by commas), or set `backend` to local in its extra"
        )
    return addresses


def _address(connection: Connection, part: str) -> str:
    schema = connection.schema if connection.schema in _SCHEMES else "http"
    try:
        parts = web_address(part if "://" in part else f"{schema}://{part}", "http://host:8088 or https://host:8090")
    except ValueError as error:
        raise ConnectionProblem(f"the host of the connection {connection.conn_id!r} cannot be used: {error}") from error
    netloc = parts.netloc if parts.port else f"{parts.netloc}:{connection.port or _DEFAULT_RM_PORT}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"


def _webhdfs(extra: _Extra, get_connection: Callable[[str], Connection]) -> WebHdfsConfig:
    addresses, conn_id = extra["webhdfs"], extra["webhdfs_conn_id"]
    if addresses and conn_id:
        raise extra.problem("webhdfs", "and `webhdfs_conn_id` are both given; keep one of them")
    try:
        if addresses:
            return _webhdfs_config(addresses, verify=extra.verify)
        return _webhdfs_of(get_connection(conn_id or DEFAULT_WEBHDFS_CONN_ID))
    except AirflowNotFoundException as error:
        raise extra.problem(
            "webhdfs_conn_id",
            f"names {conn_id or DEFAULT_WEBHDFS_CONN_ID!r}, which does not exist; add it with\n"
            f"  airflow connections add {conn_id or DEFAULT_WEBHDFS_CONN_ID} --conn-type webhdfs "
            "--conn-host namenode.example.com --conn-port 9870\n"
            "or set `webhdfs` to the NameNodes' web addresses instead",
        ) from error
    except ValueError as error:
        raise extra.problem("webhdfs", f"cannot be used: {error}") from error


def _other_hdfs(extra: _Extra) -> list[OtherHdfs]:
    found = []
    for name, addresses in extra["other_hdfs"].items():
        if not name or "/" in name or not addresses:
            what = f"has {name!r}; write <name in HDFS URIs>=<WebHDFS addresses>, such as ns2=http://nn3:9870"
            raise extra.problem("other_hdfs", what)
        try:
            found.append(OtherHdfs(name.lower(), _webhdfs_config(addresses, verify=extra.verify)))
        except ValueError as error:
            raise extra.problem("other_hdfs", f"cannot be used: {error}") from error
    return found


_OTHER_LOGINS = ("role_arn", "assume_role_method", "profile_name")  # need boto3, which nodes lack


def _object_store(extra: _Extra, get_connection: Callable[[str], Connection]) -> dict[str, str]:
    """Return the environment variables for the access to S3, from the AWS connection."""
    conn_id = extra["aws_conn_id"]
    if conn_id is None:
        return {}
    try:
        connection = get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise extra.problem("aws_conn_id", f"names {conn_id!r}, which does not exist") from error
    given = _extra_of(connection)
    if connection.conn_type != "aws" or bool(connection.login) != bool(connection.password):
        what = f"names {conn_id!r}: its type must be aws, with an access key ID and its secret, or without both"
        raise extra.problem("aws_conn_id", what)
    if other := next(filter(given.get, _OTHER_LOGINS), None):
        what = f"names {conn_id!r} with {other}; jobs support only an access key, or the role of their node"
        raise extra.problem("aws_conn_id", what)
    endpoint = given.get("service_config", {}).get("s3", {}).get("endpoint_url") or given.get("endpoint_url")
    try:
        if endpoint:
            web_address(endpoint, "https://host:port")
    except ValueError as error:
        raise extra.problem("aws_conn_id", f"names {conn_id!r}: its endpoint_url {error}") from error
    region = given.get("region_name")
    values = [connection.login, connection.password, given.get("aws_session_token"), endpoint, region, region]
    return {name: value for name, value in zip(VARIABLES, values, strict=True) if value}


def _key_server(extra: _Extra) -> str | None:
    uri: str | None = extra["key_server"]
    if uri is None or uri.lower() == NO_KEY_SERVER:
        return uri and NO_KEY_SERVER
    try:
        key_server_addresses(uri)
    except ValueError as error:
        raise extra.problem("key_server", f"cannot be used: {error}") from error
    return uri


def _hive_metastore(extra: _Extra) -> list[str]:
    addresses: list[str] = extra["hive_metastore"]
    for address in addresses:
        if not re.fullmatch(r"thrift://[^/:\s]+:\d+", address):
            raise extra.problem(
                "hive_metastore", f"has {address!r}; write thrift://host:port, such as thrift://hms:9083"
            )
    return addresses


def _webhdfs_of(connection: Connection) -> WebHdfsConfig:
    """Read the connection like WebHDFSHook.

    The connection has comma-separated hosts, one port, the path in the schema, and TLS settings in the extra.
    """
    extra = _extra_of(connection)
    scheme = "https" if _true(extra.get("use_ssl", False)) else "http"
    port = f":{connection.port}" if connection.port else ""
    path = f"/{connection.schema.strip('/')}" if connection.schema else ""
    hosts = _split(connection.host or "")
    if connection.password:
        raise ConnectionProblem(
            f"the WebHDFS connection {connection.conn_id!r} has a password (HTTP basic authentication), which the "
            "nodes of a cluster could not use; use Kerberos or a user name alone"
        )
    # WebHDFSHook does not verify certificates by default, but this provider does.
    config = _webhdfs_config([f"{scheme}://{host}{port}{path}" for host in hosts], verify=extra.get("verify", True))
    return attrs.evolve(config, user=connection.login or None)


def _webhdfs_config(addresses: list[str], *, verify: bool | str) -> WebHdfsConfig:
    if isinstance(verify, str) and verify.lower() not in ("true", "false"):
        return WebHdfsConfig(addresses, ca_file=verify)
    return WebHdfsConfig(addresses, verify=_true(verify))


def _extra_of(connection: Connection) -> Mapping[str, Any]:
    """Parse the extra, because Airflow's ``extra_dejson`` ignores invalid JSON. Raises ConnectionProblem."""
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError as error:
        raise ConnectionProblem(f"the extra of the connection {connection.conn_id!r} is not JSON: {error}") from error
    if not isinstance(extra, dict):
        raise ConnectionProblem(f"the extra of the connection {connection.conn_id!r} is JSON, but not an object")
    return extra


_EMPTY: dict[str, Callable[[], Any]] = {"texts": list, "mapping": dict, "named_texts": dict}  # other kinds: None
T = TypeVar("T")
Member = TypeVar("Member", Network, Backend, GatewayMethod)


class _Extra:
    """The parsed and checked extra of a connection. Forms submit text, and empty values for empty fields."""

    def __init__(self, conn_id: str, values: Mapping[str, Any]) -> None:
        self.conn_id = conn_id
        self._values = {
            key: value
            for key, value in values.items()
            if value not in (None, "", []) or (value == [] and key in FIELDS and FIELDS[key].kind == "limits")
        }

    def __getitem__(self, key: str) -> Any:
        """Return the value of a field, read by its kind. Raises ConnectionProblem."""
        kind = FIELDS[key].kind
        if key in self._values:
            return getattr(self, kind)(key, self._values[key])
        return _EMPTY[kind]() if kind in _EMPTY else None

    def given(self, *keys: str) -> dict[str, Any]:
        """Return the values of the fields that are neither None nor blank."""
        values = ((key, self[key]) for key in keys)
        return {key: value for key, value in values if value is not None and value != ""}

    @property
    def verify(self) -> bool | str:
        value: bool | str | None = self["verify"]
        return True if value is None else value

    def problem(self, key: str, what: str) -> ConnectionProblem:
        return ConnectionProblem(f"the connection {self.conn_id!r}: `{key}` {what}")

    def refuse_unknown(self) -> None:
        """Reject unknown keys, because a misspelt key would silently lose a setting."""
        every = set(FIELDS)
        if unknown := sorted(set(self._values) - every):
            hint = suggestion(unknown[0], sorted(every))
            its = " The" if hint else "; the"
            raise self.problem(unknown[0], f"is not known{hint}{its} extra accepts {', '.join(sorted(every))}")

    def text(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.problem(key, f"is {value!r} and should be text")
        return value.strip()

    def texts(self, key: str, value: Any) -> list[str]:
        """Return a list, or the parts of comma-separated text."""
        if isinstance(value, str):
            return _split(value)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self.problem(key, f"is {value!r} and should be comma-separated text, or a list")
        return value

    def limits(self, key: str, value: Any) -> list[str]:
        """Return the allowed values. An empty list or the word ``none`` allows nothing."""
        found = self.texts(key, value)
        if not found and value != []:
            raise self.problem(key, f"is {value!r} and names nothing; write {_NOTHING} to allow nothing")
        return [] if found == [_NOTHING] else found

    def mapping(self, key: str, value: Any) -> Mapping[str, Any]:
        """Return a mapping, given as an object or as JSON or YAML text."""
        try:
            return load_source(value, key)
        except SpecError as error:
            raise self.problem(key, f"cannot be used: {error.problems[0]}") from error

    def duration(self, key: str, value: Any) -> Duration:
        seconds = self._parsed(key, value, parse_duration)
        if seconds <= 0:
            raise self.problem(key, f"is {value!r} and should be more than zero")
        return seconds

    def memory(self, key: str, value: Any) -> Memory:
        return self._parsed(key, value, parse_memory)

    def _parsed(self, key: str, value: Any, parse: Callable[[Any], T]) -> T:
        try:
            return parse(value)
        except UnitError as error:
            raise self.problem(key, f"is {value!r}: {error}") from error

    def named_texts(self, key: str, value: Any) -> dict[str, list[str]]:
        """Return lists by name: ``name=a,b; other=c``, or an object with lists or comma-separated text."""
        if isinstance(value, str):
            parts = [part.partition("=") for part in value.split(";") if part.strip()]
            return {name.strip(): _split(listed) for name, _, listed in parts}
        if not isinstance(value, dict):
            raise self.problem(key, f"is {value!r} and should be an object, or text such as name=a,b; other=c")
        return {name: self.texts(key, "" if listed is None else listed) for name, listed in value.items()}

    def flag(self, key: str, value: Any) -> bool:
        found = self.flag_or_text(key, value)
        if isinstance(found, str):
            raise self.problem(key, f"is {value!r} and should be true or false")
        return found

    def flag_or_text(self, _: str, value: Any) -> bool | str:
        return _true(value) if str(value).lower() in ("true", "false") else str(value)

    def number(self, key: str, value: Any) -> int:
        minimum = FIELDS[key].minimum or 0
        try:
            number = int(value)
        except (TypeError, ValueError) as error:
            raise self.problem(key, f"is {value!r} and should be a whole number") from error
        if number < 0:
            raise self.problem(key, f"is {number} and should not be negative")
        if number < minimum:
            raise self.problem(key, f"is {number} and should be {minimum} or more")
        return number

    def network(self, key: str, value: Any) -> Network | None:
        return self._member(key, value, Network)

    def backend(self, key: str, value: Any) -> Backend | None:
        return self._member(key, value, Backend)

    def gateway(self, key: str, value: Any) -> GatewayMethod | None:
        return self._member(key, value, GatewayMethod)

    def _member(self, key: str, value: Any, kind: type[Member]) -> Member | None:
        text = self.text(key, value)
        try:
            return kind(text.lower()) if text else None
        except ValueError as error:
            known = ", ".join(each.value for each in kind)
            raise self.problem(key, f"is {text!r} and should be one of {known}") from error


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
