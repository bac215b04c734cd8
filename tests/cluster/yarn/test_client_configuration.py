"""What of a ResourceManager's configuration jobs get to see."""

from __future__ import annotations

from tony_provider.cluster.yarn.configuration import client_properties
from tony_provider.cluster.yarn.rest import Setting


def test_what_clients_need_and_nothing_else() -> None:
    wanted = {
        "fs.defaultFS": "hdfs://one",
        "hadoop.security.authentication": "kerberos",
        "dfs.nameservices": "one",
        "dfs.ha.namenodes.one": "a,b",
        "dfs.namenode.rpc-address.one.a": "nn1:8020",
        "dfs.client.failover.proxy.provider.one": "org.example.Provider",
    }
    hidden = {
        "yarn.resourcemanager.keytab": "/etc/yarn.keytab",
        "fs.s3a.secret.key": "hush",
        "ssl.server.keystore.password": "hush",
    }
    settings = {name: Setting(value, "core-site.xml") for name, value in {**wanted, **hidden}.items()}
    settings["hadoop.rpc.protection"] = Setting("authentication", "core-default.xml")
    assert client_properties(settings) == wanted
