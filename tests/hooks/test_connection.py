from __future__ import annotations

import base64
import getpass
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
from airflow.sdk import BaseHook, Connection
from airflow.sdk._shared.secrets_masker import SecretsMasker
from airflow.sdk.log import mask_secret

from tests.hooks.conftest import AddConnection
from tony_provider.cluster.errors import ConnectionProblem
from tony_provider.cluster.settings import NO_KEY_SERVER, Backend, MasterKeytab, Settings
from tony_provider.cluster.yarn.credentials import http_auth
from tony_provider.hooks.connection import read_connection, settings_of
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.application import GpuDealing
from tony_provider.runtime.jobspec.model import Network


def yarn_settings(add_connection: AddConnection, proxy_user: str | None = None, **fields: Any) -> Settings:
    extra = {"webhdfs": "http://nn:9870", **fields.pop("extra", {})}
    add_connection("tony_default", **{"host": "rm", "login": "alice", **fields}, extra=extra)
    return read_connection("tony_default", proxy_user)


def test_a_missing_connection_prints_the_commands_that_add_it(airflow_db: None) -> None:
    with pytest.raises(ConnectionProblem) as raised, TonyHook("tony_missing") as hook:
        hook.get_conn()
    text = str(raised.value)
    assert text.count("airflow connections add tony_missing --conn-type tony") == 2
    assert "--conn-host http://resourcemanager.example.com:8088" in text
    assert '{"backend": "local"' in text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host": "http://rm1:8088,https://rm2:8090/"}, ["http://rm1:8088", "https://rm2:8090"]),
        ({"host": "rm1, rm2"}, ["http://rm1:8088", "http://rm2:8088"]),
        ({"host": "rm", "port": 8090, "schema": "https"}, ["https://rm:8090"]),
        ({"host": "https://gateway:8443/gateway/yarn/"}, ["https://gateway:8443/gateway/yarn"]),
        ({"host": "[::1]:8088"}, ["http://[::1]:8088"]),
    ],
)
def test_addresses_of_resource_managers(
    add_connection: AddConnection, fields: dict[str, Any], expected: list[str]
) -> None:
    settings = yarn_settings(add_connection, **fields)
    assert settings.yarn is not None
    assert settings.yarn.resource_managers == expected


def test_plain_http_with_kerberos_is_allowed_by_name(add_connection: AddConnection) -> None:
    for extra, allowed in (({}, False), ({"insecure_http": "true"}, True)):
        settings = yarn_settings(add_connection, extra={"kerberos": True, **extra}).yarn
        assert settings is not None
        assert settings.plain_addresses == ["http://rm:8088", "http://nn:9870"]
        assert settings.insecure_http is allowed


GATEWAY = {
    "webhdfs": "https://knox:8443/gateway/api",
    "nodes_webhdfs": "http://nn1:9870,http://nn2:9870",
}


def jwt(**claims: Any) -> str:
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode() for each in ({}, claims, {}))


AWS = {"conn_type": "aws", "login": "AKIA1", "password": "key-of-aws"}


def test_the_access_to_object_stores(add_connection: AddConnection) -> None:
    extra = {"aws_session_token": "token-of-aws", "endpoint_url": "https://minio:9000", "region_name": "eu-central-1"}
    add_connection("aws_minio", **AWS, extra=extra)
    settings = yarn_settings(add_connection, extra={"aws_conn_id": "aws_minio"})
    assert settings.object_store == {
        "AWS_ACCESS_KEY_ID": "AKIA1",
        "AWS_SECRET_ACCESS_KEY": "key-of-aws",
        "AWS_SESSION_TOKEN": "token-of-aws",
        "AWS_ENDPOINT_URL": "https://minio:9000",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }
    assert "of-aws" not in repr(settings)


def test_an_aws_connection_without_a_key_names_the_place_only(add_connection: AddConnection) -> None:
    extra = {"service_config": {"s3": {"endpoint_url": "http://minio"}}, "endpoint_url": "http://other"}
    add_connection("aws_role", conn_type="aws", extra=extra)
    settings = yarn_settings(add_connection, extra={"aws_conn_id": "aws_role"})
    assert settings.object_store == {"AWS_ENDPOINT_URL": "http://minio"}
    assert yarn_settings(add_connection).object_store == {}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"conn_type": "google_cloud_platform"}, "its type must be aws"),
        ({"password": None}, "an access key ID and its secret, or without both"),
        ({"extra": {"role_arn": "arn:aws:iam::1:role/x"}}, "with role_arn; jobs support only an access key"),
        ({"extra": {"endpoint_url": "minio:9000"}}, "endpoint_url 'minio:9000' is not a web address"),
    ],
)
def test_an_aws_connection_that_jobs_cannot_use(
    add_connection: AddConnection, fields: dict[str, Any], problem: str
) -> None:
    add_connection("aws_bad", **{**AWS, **fields})
    with pytest.raises(ConnectionProblem, match=re.escape(problem)):
        yarn_settings(add_connection, extra={"aws_conn_id": "aws_bad"})


def test_an_aws_connection_that_does_not_exist(add_connection: AddConnection) -> None:
    with pytest.raises(ConnectionProblem, match="`aws_conn_id` names 'aws_none', which does not exist"):
        yarn_settings(add_connection, extra={"aws_conn_id": "aws_none"})


@pytest.mark.parametrize(
    ("method", "secret", "headers"),
    [
        ("basic", "open-sesame", {"Authorization": "Basic YWxpY2U6b3Blbi1zZXNhbWU="}),
        ("bearer", jwt(exp=4_102_444_800), {"Authorization": "Bearer {}"}),
        ("bearer", "of-another-kind", {"Authorization": "Bearer of-another-kind"}),
        ("cookie", jwt(sub="alice"), {"Cookie": "hadoop-jwt={}"}),
    ],
)
def test_the_login_at_a_gateway(
    add_connection: AddConnection, method: str, secret: str, headers: dict[str, str]
) -> None:
    host = "https://knox:8443/gateway/api/yarn"
    yarn = yarn_settings(add_connection, host=host, password=secret, extra={**GATEWAY, "gateway": method}).yarn
    assert yarn is not None
    assert yarn.gateway is not None
    assert yarn.gateway.headers == {name: value.format(secret) for name, value in headers.items()}
    assert secret not in repr(yarn)
    assert yarn.nodes_webhdfs == ["http://nn1:9870", "http://nn2:9870"]
    assert yarn.webhdfs.addresses == ["https://knox:8443/gateway/api"]


@pytest.mark.parametrize(
    ("fields", "extra", "problem"),
    [
        ({}, {"gateway": "ldap"}, "`gateway` is 'ldap' and should be one of basic, bearer, cookie"),
        ({"password": None}, {"gateway": "basic"}, "`gateway` is basic, so the connection needs a user and a password"),
        ({"login": None}, {"gateway": "bearer"}, "needs a user and a token in the password field"),
        ({}, {"gateway": "basic", "nodes_webhdfs": ""}, "`nodes_webhdfs` is required with `gateway`"),
        (
            {"password": jwt(exp=1_767_225_600)},
            {"gateway": "cookie"},
            "the token in the password field expired at 2026-01-01 00:00:00 UTC",
        ),
        ({"password": "two words"}, {"gateway": "bearer"}, "the password field holds no token"),
        ({}, {"gateway": "basic", "other_hdfs": "b=http://nn3:9870"}, "`other_hdfs` cannot be used with `gateway`"),
        ({}, {"gateway": "basic", "key_server": "kms://https@kms:9600/kms"}, "`key_server` cannot be used with"),
        ({}, {"gateway": "basic", "hive_metastore": "thrift://hms:9083"}, "`hive_metastore` cannot be used with"),
    ],
)
def test_what_is_wrong_with_a_gateway(
    add_connection: AddConnection, fields: dict[str, Any], extra: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConnectionProblem, match=re.escape(problem)):
        yarn_settings(add_connection, **{"password": "open-sesame", **fields}, extra={**GATEWAY, **extra})


def test_a_gateway_decides_who_its_users_are(add_connection: AddConnection) -> None:
    extra = {**GATEWAY, "gateway": "basic"}
    with pytest.raises(ConnectionProblem, match=r"jobs cannot run as bob \(proxy_user\)"):
        yarn_settings(add_connection, "bob", host="https://knox:8443/y", password="open-sesame", extra=extra)


@pytest.mark.parametrize("plain", ["host", "webhdfs"])
def test_a_password_is_not_sent_over_plain_http(add_connection: AddConnection, plain: str) -> None:
    addresses = {name: f"{'http' if name == plain else 'https'}://knox:8443/gateway" for name in ("host", "webhdfs")}
    extra = {**GATEWAY, "gateway": "basic", "webhdfs": addresses["webhdfs"]}
    fields = {"host": addresses["host"], "password": "open-sesame"}
    with pytest.raises(ConnectionProblem, match=r"would send the password or JWT unencrypted to http://knox:8443"):
        yarn_settings(add_connection, **fields, extra=extra)
    assert yarn_settings(add_connection, **fields, extra={**extra, "insecure_http": True}).yarn is not None


def test_addresses_of_nodes_are_plain_http_too(add_connection: AddConnection) -> None:
    extra = {"kerberos": True, "webhdfs": "https://httpfs:14000", "nodes_webhdfs": "http://nn:9870"}
    yarn = yarn_settings(add_connection, host="https://rm:8090", extra=extra).yarn
    assert yarn is not None
    assert yarn.plain_addresses == ["http://nn:9870"]


def test_a_login_is_sent_to_the_gateway_alone(add_connection: AddConnection) -> None:
    host = "https://Knox:443/gateway/api/yarn"
    extra = {**GATEWAY, "gateway": "basic", "webhdfs": "https://knox:8443/gateway/api"}
    yarn = yarn_settings(add_connection, host=host, password="open-sesame", extra=extra).yarn
    assert yarn is not None
    auth = http_auth(yarn)
    for url, is_sent in (
        ("https://knox/gateway/api/yarn/ws/v1/cluster/info", True),
        ("https://knox:8443/gateway/api/webhdfs/v1/", True),
        ("http://knox:8443/gateway/api/webhdfs/v1/", False),
        ("http://rm:8088/proxy/application_1_0001/", False),
    ):
        request = requests.Request("GET", url, auth=auth).prepare()
        assert ("Authorization" in request.headers) is is_sent, url


def test_defaults(add_connection: AddConnection) -> None:
    settings = yarn_settings(add_connection)
    assert settings.backend is Backend.YARN
    assert (settings.user, settings.proxy_user) == ("alice", None)
    assert (settings.namespace, settings.queue, settings.staging_dir, settings.python) == ("airflow", None, None, [])
    assert settings.yarn is not None
    assert not settings.yarn.kerberos
    assert not settings.yarn.trust_env
    assert settings.yarn.verify is True


def test_every_setting(add_connection: AddConnection) -> None:
    settings = yarn_settings(
        add_connection,
        proxy_user="bob",
        extra={
            "queue": "ml",
            "log_size": "8MiB",
            "network": "Isolated",
            "shared_dir": "/mnt/tony",
            "namespace": "prod",
            "staging_dir": "hdfs://nn:8020/tony",
            "scheduler_address": "rm1:8030, rm2:8030",
            "runtime_archive": "hdfs:///tony/runtime.zip",
            "python": "/opt/python3.11,/usr/bin/python3.9",
            "kerberos": "true",
            "rm_principal": "rm/_HOST@REALM",
            "master_keytab": "/etc/keytabs/bob.keytab",
            "master_principal": "bob/edge@REALM",
            "tokens_renewed": "true",
            "verify": "/etc/ca.pem",
            "nodes_ca_file": "/etc/pki/ca.pem",
            "trust_env": True,
            "timeout": "30",
        },
    )
    assert (settings.proxy_user, settings.queue, settings.namespace) == ("bob", "ml", "prod")
    assert (settings.log_size, settings.network) == (8, Network.ISOLATED)
    assert settings.shared_dir == Path("/mnt/tony")
    assert settings.python == ["/opt/python3.11", "/usr/bin/python3.9"]
    assert settings.yarn is not None
    assert settings.yarn.kerberos
    assert settings.yarn.scheduler == ["rm1:8030", "rm2:8030"]
    assert settings.yarn.master_keytab == MasterKeytab(Path("/etc/keytabs/bob.keytab"), "bob/edge@REALM")
    assert settings.yarn.master_keytab.user == "bob"
    assert settings.yarn.tokens_renewed
    assert (settings.yarn.verify, settings.yarn.webhdfs.ca_file) == ("/etc/ca.pem", "/etc/ca.pem")
    assert settings.yarn.timeout == 30


@pytest.mark.parametrize(
    "written",
    [
        "archive=http://nn3:9870,http://nn4:9870; Backup:8020=http://backup:9870",
        {"archive": ["http://nn3:9870", "http://nn4:9870"], "backup:8020": "http://backup:9870"},
    ],
)
def test_other_hdfs_as_text_or_as_an_object(add_connection: AddConnection, written: Any) -> None:
    settings = yarn_settings(add_connection, extra={"other_hdfs": written, "key_server": "NONE"}).yarn
    assert settings is not None
    assert {each.name: each.webhdfs.addresses for each in settings.other_hdfs} == {
        "archive": ["http://nn3:9870", "http://nn4:9870"],
        "backup:8020": ["http://backup:9870"],
    }
    assert settings.key_server == NO_KEY_SERVER


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"other_hdfs": "archive"}, "`other_hdfs` has 'archive'; write <name in HDFS URIs>="),
        ({"other_hdfs": "hdfs://archive=http://nn3:9870"}, "`other_hdfs` has 'hdfs://archive'"),
        ({"other_hdfs": "archive=nn3:8020"}, "'nn3:8020' is not a web address; use http://host:9870"),
        ({"other_hdfs": ["archive"]}, "should be an object, or text"),
        ({"other_hdfs": {"archive": 1}}, "`other_hdfs` is 1 and should be comma-separated text, or a list"),
        (
            {"key_server": "http://keys:9600/kms"},
            "`key_server` cannot be used: 'http://keys:9600/kms' is no key server",
        ),
        ({"hive_metastore": "hms:9083"}, "`hive_metastore` has 'hms:9083'; write thrift://host:port"),
    ],
)
def test_other_hdfs_and_key_servers_that_cannot_be(add_connection: AddConnection, extra: Any, why: str) -> None:
    with pytest.raises(ConnectionProblem, match=re.escape(why)):
        yarn_settings(add_connection, extra=extra)


def test_hive_metastores(add_connection: AddConnection) -> None:
    written = {"hive_metastore": "thrift://hms1:9083, thrift://hms2:9083", "hive_principal": "metastore/_HOST@REALM"}
    settings = yarn_settings(add_connection, extra=written).yarn
    assert settings is not None
    assert settings.hive_metastore == ["thrift://hms1:9083", "thrift://hms2:9083"]
    assert settings.hive_principal == "metastore/_HOST@REALM"


def test_webhdfs_as_the_hdfs_provider_has_it(add_connection: AddConnection) -> None:
    add_connection(
        "nn", "webhdfs", host="nn1,nn2", port=9871, login="carol", schema="gateway", extra={"use_ssl": "True"}
    )
    add_connection("tony_default", host="rm", extra={"webhdfs_conn_id": "nn", "kerberos": False})
    settings = read_connection("tony_default")
    assert settings.user == "carol"
    assert settings.yarn is not None
    webhdfs = settings.yarn.webhdfs
    assert webhdfs.addresses == ["https://nn1:9871/gateway", "https://nn2:9871/gateway"]
    assert webhdfs.verify


def test_whom_jobs_run_as(add_connection: AddConnection) -> None:
    assert yarn_settings(add_connection, login=None).user == getpass.getuser()
    assert yarn_settings(add_connection, login=None, extra={"kerberos": True}).user is None  # the ticket says
    assert yarn_settings(add_connection, login="dora", extra={"kerberos": True}).user == "dora"


def test_empty_fields_of_a_form_are_as_good_as_none(add_connection: AddConnection) -> None:
    settings = yarn_settings(
        add_connection, extra={"queue": "", "kerberos": None, "python": "", "local_memory": None, "webhdfs_conn_id": ""}
    )
    assert settings.queue is None
    assert settings.yarn is not None
    assert not settings.yarn.kerberos


def test_the_local_backend(add_connection: AddConnection) -> None:
    add_connection("tony_default", extra={"backend": "local", "staging_dir": "/data/tony"})
    settings = read_connection("tony_default")
    assert settings.backend is Backend.LOCAL
    assert settings.local is not None
    assert settings.local.root == Path("/data/tony/cluster")
    assert settings.local.memory > 100
    assert settings.local.vcores >= 8
    assert settings.local.gpus == 0
    assert settings.python == [sys.executable]
    extra = {"backend": "LOCAL", "staging_dir": "file:///data/tony", "local_root": "/run/t", "local_memory": "4096"}
    add_connection("tony_default", extra={**extra, "local_vcores": 2, "local_gpus": 1})
    local = read_connection("tony_default").local
    assert local is not None
    assert (local.root, local.memory, local.vcores, local.gpus) == (Path("/run/t"), 4096, 2, 1)


@pytest.mark.parametrize(
    ("extra", "dealing"),
    [
        ({}, None),
        ({"deal_gpus": False, "gpu_devices": ""}, None),
        ({"deal_gpus": "true"}, GpuDealing()),
        ({"deal_gpus": True, "gpu_devices": "0, 1"}, GpuDealing(["0", "1"])),
    ],
)
def test_gpus_are_dealt(add_connection: AddConnection, extra: dict[str, Any], dealing: GpuDealing | None) -> None:
    add_connection("tony_default", extra={"backend": "local", "staging_dir": "/data/tony", **extra})
    assert read_connection("tony_default").gpu_dealing == dealing


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"gpu_devices": "0,1"}, "`gpu_devices` is set, but `deal_gpus` is not; set `deal_gpus`, or remove"),
        ({"deal_gpus": True, "gpu_devices": "0,1,0"}, "`gpu_devices` names a GPU twice: 0, 1, 0"),
    ],
)
def test_gpus_that_cannot_be_dealt(add_connection: AddConnection, extra: dict[str, Any], message: str) -> None:
    add_connection("tony_default", extra={"backend": "local", "staging_dir": "/data/tony", **extra})
    with pytest.raises(ConnectionProblem, match=message):
        read_connection("tony_default")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host": ""}, "has no host: write the ResourceManager's web address"),
        ({"host": "ftp://rm"}, "is not a web address; use http://host:8088"),
        ({"host": "rm:80888"}, "'http://rm:80888' is not a web address"),
        ({"host": "http://[rm"}, "'http://\\[rm' is not a web address"),
        ({"extra": {"webhdfs": "http://nn1:9870,http://nn2:98700"}}, "'http://nn2:98700' is not a web address"),
        ({"extra": {"webhdfs": "nn:9870"}}, "`webhdfs` cannot be used: .* use http://host:9870"),
        ({"extra": {"webhdfs_conn_id": "nn"}}, "`webhdfs` and `webhdfs_conn_id` are both given"),
        ({"extra": {"network": "open"}}, "`network` is 'open' and should be one of trusted, isolated"),
        ({"extra": {"backend": "slurm"}}, "`backend` is 'slurm' and should be one of yarn, local"),
        (
            {"extra": {"quue": "ml"}},
            "`quue` is not known; did you mean queue. The extra accepts allowed_overrides, ",
        ),
        ({"extra": {"backend": "local", "stagingdir": "/t"}}, "`stagingdir` is not known; did you mean staging_dir"),
        ({"extra": {"backend": "local", "staging_dir": "rel/x"}}, "`staging_dir` is 'rel/x' and should be an absolute"),
        ({"extra": {"kerberos": "maybe"}}, "`kerberos` is 'maybe' and should be true or false"),
        ({"extra": {"queue": 3}}, "`queue` is 3 and should be text"),
        ({"extra": {"python": [3]}}, r"`python` is \[3\] and should be comma-separated text, or a list"),
        ({"extra": {"timeout": "soon"}}, "`timeout` is 'soon' and should be a whole number"),
        ({"extra": {"timeout": -1}}, "`timeout` is -1 and should not be negative"),
        ({"extra": {"timeout": 0}}, "`timeout` is 0 and should be 1 or more"),
        (
            {"extra": {"backend": "local", "staging_dir": "/t", "local_memory": 0}},
            "`local_memory` is 0 and should be 1 or more",
        ),
        ({"extra": {"backend": "local"}}, "`staging_dir` is required for the local backend"),
    ],
)
def test_a_connection_that_cannot_be_used(add_connection: AddConnection, fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConnectionProblem, match=expected):
        yarn_settings(add_connection, **fields)


def test_a_webhdfs_connection_that_is_missing_or_has_a_password(add_connection: AddConnection) -> None:
    add_connection("tony_default", host="rm", extra={"webhdfs_conn_id": "gone"})
    with pytest.raises(ConnectionProblem, match="airflow connections add gone --conn-type webhdfs"):
        read_connection("tony_default")
    add_connection("nn", "webhdfs", host="nn", login="alice", password="secret")
    add_connection("tony_default", host="rm", extra={"webhdfs_conn_id": "nn"})
    with pytest.raises(ConnectionProblem, match="has a password"):
        read_connection("tony_default")


def test_a_connection_of_another_type(add_connection: AddConnection) -> None:
    add_connection("tony_default", "http", host="rm")
    with pytest.raises(ConnectionProblem, match="'tony_default' is of type 'http', and should be 'tony'"):
        read_connection("tony_default")


def test_identities_hold_the_namespace(add_connection: AddConnection) -> None:
    where = {"dag_id": "d", "run_id": "r", "task_id": "t"}
    one = {"backend": "local", "staging_dir": "/data/tony"}
    add_connection("tony_default", extra=one)
    add_connection("other", extra={**one, "namespace": "other"})
    assert TonyHook().identity(**where) == TonyHook().identity(**where)  # type: ignore[arg-type]
    assert TonyHook().identity(**where) != TonyHook("other").identity(**where)  # type: ignore[arg-type]


def test_values_that_are_no_secrets_are_not_masked_and_not_warned_of(
    add_connection: AddConnection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SecretsMasker, "_has_warned_short_secret", False)  # else it says so once in a process only
    add_connection("nn", "webhdfs", host="nn", login="alice", extra={"use_ssl": "yes"})
    add_connection("tony_default", host="rm", extra={"queue": "ml", "verify": "true", "webhdfs_conn_id": "nn"})
    assert read_connection("tony_default").queue == "ml"
    assert "masking" not in caplog.text
    monkeypatch.setattr(SecretsMasker, "_has_warned_short_secret", False)
    mask_secret("ml")
    assert "masking" in caplog.text


@pytest.mark.parametrize(("extra", "expected"), [("{queue: ml}", "is not JSON: Expecting"), ("[]", "not an object")])
def test_an_extra_that_cannot_be_read(airflow_db: None, extra: str, expected: str) -> None:
    connection = Connection(conn_id="tony_default", conn_type="tony", host="rm", extra=extra)
    with pytest.raises(ConnectionProblem, match=f"the extra of the connection .tony_default. .*{expected}"):
        settings_of(connection, None, get_connection=BaseHook.get_connection)


def test_a_scheme_in_capitals_is_as_in_small_letters(add_connection: AddConnection) -> None:
    kerberos = {"webhdfs": "HTTP://nn:9870/,HTTPS://nn2:9871", "kerberos": True}
    yarn = yarn_settings(add_connection, host="HTTPS://rm:8090", extra=kerberos).yarn
    assert yarn is not None
    assert yarn.webhdfs.addresses == ["http://nn:9870", "https://nn2:9871"]
    assert yarn.plain_addresses == ["http://nn:9870"]
