"""The credentials of registries in a config.json of Docker's client, as tokens for NodeManagers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tony_provider.cluster.application_secrets import read_registries, registry_tokens
from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.settings import FileRoots
from tony_provider.cluster.sources import SourceFinder, Sources
from tony_provider.runtime.hadoop.tokens import REGISTRY_TOKEN
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.local import LocalStorage

AUTHS = {"registry:5000": {"auth": "YWxpY2U6c2VjcmV0"}, "https://index.docker.io/v1/": {"auth": "Ym9iOmhpZGRlbg=="}}


def sources(folder: Path, config: Any, *, stored: bool = False) -> Sources:
    (folder / "store").mkdir()
    file = folder / ("store" if stored else "") / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    file.chmod(0o600)
    docker = {"image": "registry:5000/tf", "client_config": f"file://{file}"}
    job = parse_job({"framework": "standalone", "docker": docker, "tasks": {"worker": {"command": "true"}}})
    return SourceFinder(LocalStorage(), f"file://{folder}/store", [], FileRoots("c", [folder])).find(job)


@pytest.mark.parametrize("stored", [False, True])
def test_they_are_read_and_not_staged(tmp_path: Path, stored: bool, caplog: pytest.LogCaptureFixture) -> None:
    found = sources(tmp_path, {"auths": {**AUTHS, "kept-elsewhere": {}}, "credsStore": "pass"}, stored=stored)
    assert (found.local, found.stored) == ([], [])
    assert found.client_config is not None
    read = read_registries(found.client_config, LocalStorage())
    assert read == {registry: entry["auth"] for registry, entry in AUTHS.items()}
    assert not caplog.records


def test_each_becomes_a_token_as_yarns_own_clients_make_them() -> None:
    tokens = registry_tokens({"registry:5000": "YWxpY2U6c2VjcmV0"}, "application_1_0002")
    ((alias, token),) = tokens.items()
    assert alias == "registry:5000-application_1_0002"
    assert (token.kind, token.service, token.password) == (REGISTRY_TOKEN, "registry:5000", b"YWxpY2U6c2VjcmV0")
    assert token.identifier == b"\x0a\x0dregistry:5000\x12\x12application_1_0002"
    assert "YWxpY2U6c2VjcmV0" not in repr(token)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("no JSON", "is not a config.json of the Docker client: Expecting value"),
        ([], "it has no `auths`"),
        ({"credsStore": "desktop"}, "it has no `auths`"),
        ({"auths": {}}, "has no credentials, only the names of no registry"),
        (
            {"auths": {"a": {}, "b": {"identitytoken": "x"}}, "credsStore": "pass"},
            "only the names of a, b; `docker",
        ),
    ],
)
def test_what_holds_none_is_told(tmp_path: Path, config: Any, words: str) -> None:
    found = sources(tmp_path, config)
    assert found.client_config is not None
    with pytest.raises(JobRejected, match=r"docker\.client_config: ") as caught:
        read_registries(found.client_config, LocalStorage())
    assert words in str(caught.value)


def test_a_file_that_everybody_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = sources(tmp_path, {"auths": AUTHS})
    assert found.client_config is not None
    (tmp_path / "config.json").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        read_registries(found.client_config, LocalStorage())
    (record,) = caplog.records
    assert "every user can read" in record.getMessage()
    assert "YWxpY2U6c2VjcmV0" not in caplog.text
