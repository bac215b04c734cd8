"""Files of authorities that cannot be used."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest

from tony_provider.cluster.errors import ConnectionProblem
from tony_provider.cluster.http import RequestOptions, Unanswered
from tony_provider.cluster.open_cluster import open_cluster
from tony_provider.cluster.settings import Settings, YarnSettings, ca_file_problem
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

ASKED = "https://127.0.0.1:1"


@pytest.mark.parametrize("verify", [True, False, certifi.where()])
def test_what_can_be_used(verify: bool | str) -> None:
    assert ca_file_problem(verify, [ASKED]) == ""


@pytest.mark.parametrize(
    ("text", "said"), [("", "holds no certificate"), (None, "cannot be read on this host: No such")]
)
def test_what_cannot_is_named_before_anybody_is_asked(tmp_path: Path, text: str | None, said: str) -> None:
    """Seen: the doctor had people write http:// instead, or report its own failure."""
    file = tmp_path / "authority.pem"
    if text is not None:
        file.write_text(text)
    assert f"`verify` ({file}) {said}" in ca_file_problem(str(file), [ASKED])
    with pytest.raises(Unanswered) as unanswered:
        RequestOptions(verify=str(file)).send("GET", ASKED)
    assert said in unanswered.value.detail
    yarn = YarnSettings([ASKED], WebHdfsConfig([ASKED]), verify=str(file))
    with pytest.raises(ConnectionProblem, match="name the PEM file"):
        open_cluster(Settings("alice", yarn=yarn))


def test_where_nobody_is_asked_over_https_none_is_needed(tmp_path: Path) -> None:
    assert ca_file_problem(str(tmp_path / "authority.pem"), ["http://127.0.0.1:1"]) == ""
