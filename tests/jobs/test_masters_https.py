"""Masters over https, with the certificate that YARN hands them: page, status and stop through YARN's own proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tony_provider.cluster.interface import ApplicationState
from tony_provider.runtime.protocol.status import FinalStatus, JobState


@pytest.fixture
def lenient(start_hadoop: StartHadoop) -> Iterator[YarnPlace]:
    """A cluster without Kerberos, whose proxy takes masters of both kinds."""
    place = YarnPlace(cluster=start_hadoop(Settings(nodemanagers=1, masters_https="LENIENT")))
    yield place
    place.close()
    place.cluster.stop()


@pytest.fixture(params=["secure", pytest.param("lenient", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest) -> YarnPlace:
    """Where all that Kerberos clusters' tests do is done under STRICT; and LENIENT."""
    found: YarnPlace = request.getfixturevalue(request.param)
    return found


def test_page_status_and_stop(place: YarnPlace) -> None:
    job = place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "sleep 1000"}}})
    job.until(JobState.RUNNING)
    proxied = f"{place.cluster.rm_webapp[0]}/proxy/{job.id}"
    client = place.cluster.client(USER)
    assert b"worker:0" in client.request("GET", f"{proxied}/", query={"proxyapproved": "true"})
    assert client.get_json(f"{proxied}/status", proxyapproved="true")["state"] == "RUNNING"
    assert "the job page is at https://" in (place.log_folders(job.id)[0] / "stderr").read_text()
    # The keys lie about no longer; of what NodeManagers keep to themselves nothing is known.
    own = [folder for folder in place.work_folders(job.id) if folder.parent.name == "appcache"]
    assert own
    assert [found for folder in own for found in folder.rglob("yarn_provided.*")] == []

    job.hook.control(job.id, "stop", {"reason": "seen enough"})

    application = job.end()
    assert (application.state, application.final_status) == (ApplicationState.FINISHED, FinalStatus.KILLED)
    assert "seen enough" in application.diagnostics
    assert " ERROR " not in (place.log_folders(job.id)[0] / "stderr").read_text()
    job.handle.clean_up()
    assert_nothing_left(place, job)
