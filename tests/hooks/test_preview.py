"""What a preview shows is what is submitted."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from tests.checkpoints import commit
from tests.hooks.jobs import identity, job
from tests.owners import open_after
from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.local.local_cluster import LocalCluster
from tony_provider.cluster.settings import NO_KEY_SERVER
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.submission.submitter import APPLICATION_ID
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, new_chain
from tony_provider.cluster.training.plan import ChainOrigin
from tony_provider.cluster.yarn.credentials import HdfsClusters, KeyServerAccess, StoreTokens
from tony_provider.cluster.yarn.rest import YarnRest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.application import read_description
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.storage.base import walk
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage


def request_of(hook: TonyHook, folder: Path, **more: Any) -> SubmissionRequest:
    (folder / "train.sh").write_text("true\n")
    spec = job("sh train.sh", files=["train.sh"], tags=["nightly"], secrets=["API_KEY"])
    secrets, labels = {"API_KEY": "open-sesame"}, {"dag_id": "tests"}
    return SubmissionRequest(spec, identity(hook), secrets, labels, [folder], **more)


def chain_of_another(hook: TonyHook) -> str:
    chains = CheckpointChains(hook.storage(), hook.layout, identity(hook, "another"))
    uri = open_after(chains, None, new_chain())
    commit(hook.storage(), uri, 40)
    return uri


class Enough(Exception):
    pass


def test_a_preview_is_what_is_submitted(local: TonyHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = ChainOrigin(chain_of_another(local))
    request = request_of(local, tmp_path, origin=origin)
    before = [status.path for status in walk(local.storage(), local.layout.root)]
    found = local.preview(request)
    assert [status.path for status in walk(local.storage(), local.layout.root)] == before
    asked: list[dict[str, Any]] = []
    described: list[dict[str, Any]] = []

    def submit(cluster: LocalCluster, submission: Any) -> None:
        asked.append(cluster.request(submission))
        described.append(to_plain(read_description(submission.credentials.secrets)))
        raise Enough

    monkeypatch.setattr(LocalCluster, "submit", submit)
    with pytest.raises(Enough):
        local.submit(request)
    [description] = described
    assert description["continues"] == origin.resume_from

    def plain(told: Any) -> Any:
        """Without the id, the authority, and times of files and of the submission: of the submission alone."""
        return json.loads(
            json.dumps(told).replace(description["application_id"], APPLICATION_ID),
            object_hook=lambda each: {
                key: value for key, value in each.items() if key not in ("modified_ms", "submitted_ms", "authority")
            },
        )

    assert plain(found.description) == plain(description)
    assert plain(found.request) == plain(asked[0])
    assert "open-sesame" not in json.dumps(attrs.asdict(found))
    assert all(local.storage().exists(uri) for uri in found.staged.values())


def test_a_preview_is_refused_as_the_submission_would_be(local: TonyHook, tmp_path: Path) -> None:
    request = request_of(local, tmp_path, origin=ChainOrigin(identity(local, "never-run")))
    for act in (local.preview, local.submit):
        with pytest.raises(SourceMissing, match="resume_from: that training has never run"):
            act(request)


def test_secrets_are_not_in_the_words_for_a_request(local: TonyHook, tmp_path: Path) -> None:
    assert "open-sesame" not in repr(request_of(local, tmp_path))


def test_a_token_that_is_only_shown_is_asked_of_nobody() -> None:
    nobody, credentials = cast(WebHdfsStorage, None), Credentials()
    rest = cast(YarnRest, SimpleNamespace(setting=lambda _name: None))
    no_server = KeyServerAccess(NO_KEY_SERVER, cast(Any, None))
    tokens = StoreTokens(HdfsClusters(nobody, "127.0.0.1:8020", {}, no_server), rest, "alice", "rm/_HOST@REALM")
    tokens.pretend(credentials)
    assert list(credentials.tokens) == ["127.0.0.1:8020"]
