"""What ``airflow tony gc`` removes, and above all what it does not."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest

from tests.cli.conftest import Tony
from tests.hooks.jobs import ended, identity, job, running
from tests.jobs.processes import processes_of
from tests.owners import own
from tests.waiting import until
from tony_provider.cluster.garbage import CannotJudge, Garbage, GarbageItem, GarbageKind, TrainingItem
from tony_provider.cluster.records.summary import JobSummary, PreviousRuns
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, new_chain
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.plan import ChainOrigin
from tony_provider.cluster.training.results import Delivered
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.try_state import STATE_KEY, TrainingNotes, TryInfo
from tony_provider.runtime.checkpoint.stored_checkpoint import OWNERS_DIR
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import OutputSpec
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageUnreachable

DAY = 86400.0


class Store:
    """The staging directory of the local backend, where time can be turned back."""

    def __init__(self, hook: TonyHook) -> None:
        self.hook = hook
        self.root = Path(hook.layout.root.removeprefix("file://"))

    def path(self, uri: str) -> Path:
        return Path(uri.removeprefix("file://"))

    def age(self, below: Path | None = None, days: float = 40.0) -> None:
        then = time.time() - days * DAY
        for path in [*(below or self.root / "jobs").rglob("*"), *([below] if below else [])]:
            os.utime(path, (then, then))

    def train(self, task_id: str, origin: ChainOrigin = ChainOrigin()) -> tuple[Identity, str]:  # noqa: B008
        which = identity(self.hook, task_id)
        spec = job("echo weights > $TONY_MODEL_DIR/weights")
        application_id = self.hook.submit(SubmissionRequest(spec, which, origin=origin)).application_id
        ended(self.hook, application_id)
        self.hook.job(application_id, which).clean_up()
        return which, application_id

    def chain(self, which: Identity, number: int = 1) -> str:
        return self.hook.layout.chain_dir(which, number)

    def application(self, which: Identity, application_id: str) -> str:
        return self.hook.job(application_id, which).directory

    def rewrite_chain(self, uri: str, **values: str) -> None:
        file = self.path(uri) / "chain.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    def publish(self, model_dir: str, where: str = "models/digits/versions/3") -> Path:
        directory = self.root / where
        directory.mkdir(parents=True)
        file = directory / "version.json"
        file.write_text(json.dumps({"model_dir": model_dir, "period_end": "2026-01-01T00:00:00+00:00"}))
        return file


@pytest.fixture
def store(local: TonyHook) -> Store:
    return Store(local)


def before() -> int:
    return int((time.time() - 30 * DAY) * 1000)


def look(store: Store, *models: str) -> dict[str, str]:
    """By URI, why it stays; empty: it may go."""
    return {item.uri: item.kept_because for item in store.hook.garbage(models).old_items(before())}


def going(store: Store) -> set[str]:
    return {uri for uri, spared in look(store).items() if not spared}


def test_what_is_young_is_not_even_listed(store: Store, tony: Tony) -> None:
    store.train("train")
    assert look(store) == {}
    said = tony("gc")
    assert said.code == 0
    assert said.out.splitlines() == [
        "Nothing in the staging directory has been unchanged for 30d",
        "0 (0 B) would be removed with --yes, and 0 old items kept",
    ]


def test_what_is_half_written_goes_after_a_day_wherever_it_is(store: Store, tony: Tony) -> None:
    which, application_id = store.train("train")
    logs = store.path(store.application(which, application_id)) / "logs"
    cached = store.root / "cache" / "0123"
    cached.mkdir(parents=True)
    old = [logs / ".tony-tmp-01234567", cached / ".tony-tmp-89abcdef"]
    young = store.path(store.chain(which)) / ".tony-tmp-00000000"
    others = [logs / "tony-tmp-mine", cached / "data"]
    for path in (*old, young, *others):
        path.write_text("half")
    for path in (*old, *others):
        store.age(path, days=2)
    rows = json.loads(tony("gc", "-o", "json").out)
    assert {row["directory"] for row in rows} == {f"file://{path}" for path in old}
    assert {row["what"] for row in rows} == {"half-written"}
    assert all(path.exists() for path in old)
    done = tony("gc", "--yes")
    assert done.code == 0, done.error
    assert "2 (8 B) removed" in done.out
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (young, *others))


def test_the_old_is_listed_and_only_then_removed(store: Store, tony: Tony) -> None:
    which, application_id = store.train("train")
    young, _ = store.train("young")
    staged = store.root / "cache" / "0123" / "train.py"
    staged.parent.mkdir(parents=True)
    staged.write_text("pass")
    store.age(store.path(store.hook.layout.job_dir(which)))
    wanted = {store.chain(which), store.application(which, application_id)}
    assert going(store) == wanted
    for arguments in (["gc"], ["gc", "--dry-run", "--yes"]):
        said = tony(*arguments)
        assert said.code == 0
        assert "2 (" in said.out
        assert all(store.path(uri).exists() for uri in wanted)
    rows = json.loads(tony("gc", "-o", "json").out)
    assert {row["directory"] for row in rows} == wanted
    assert all(type(row["size"]) is int and row["stays_because"] is None for row in rows)
    month_ago = datetime.now(UTC) - timedelta(days=30)
    assert all(datetime.fromisoformat(row["changed"]) < month_ago for row in rows)
    assert "0 (0 B) would be removed" in tony("gc", "--older-than", "60d").out
    done = tony("gc", "--yes")
    assert done.code == 0, done.error
    assert not store.path(store.hook.layout.job_dir(which)).exists()
    assert store.path(store.hook.layout.job_dir(young)).exists()
    assert staged.exists()


def test_links_are_removed_and_not_followed(store: Store, tony: Tony, tmp_path: Path) -> None:
    which, application_id = store.train("train")
    left = store.path(store.application(which, application_id))
    store.age(store.path(store.hook.layout.job_dir(which)))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "young").write_text("kept")
    (left / "loop").symlink_to(left)
    (left / "out").symlink_to(outside)
    store.age(left)
    done = tony("gc", "--yes")
    assert done.code == 0, done.error
    assert not left.exists()
    assert (outside / "young").read_text() == "kept"


@pytest.mark.parametrize("level", ["job", "applications", "application", "chain"])
def test_nothing_outside_of_the_staging_directory_is_removed_through_a_link(
    store: Store, tony: Tony, tmp_path: Path, level: str
) -> None:
    which, application_id = store.train("train")
    inside = {
        "job": store.path(store.hook.layout.job_dir(which)),
        "applications": store.path(store.hook.layout.applications_dir(which)),
        "application": store.path(store.application(which, application_id)),
        "chain": store.path(store.chain(which)),
    }[level]
    outside = inside.rename(tmp_path / inside.name)
    (outside / "precious").write_text("kept")
    inside.symlink_to(outside)
    store.age(outside)
    store.age(store.root / "jobs")
    before = sorted(outside.rglob("*"))
    tony("gc", "--yes")
    assert sorted(outside.rglob("*")) == before


def test_a_training_that_runs_stays_whole(store: Store) -> None:
    which = identity(store.hook)
    application_id = store.hook.submit(SubmissionRequest(job("sleep 600"), which)).application_id
    running(store.hook, which, application_id)
    old = store.path(store.hook.layout.chain_dir(which, 7))  # of its past
    old.mkdir()
    (old / "chain.json").write_text(json.dumps({"fingerprint": {}}))
    try:
        store.age()
        found = look(store)
        assert found[store.chain(which, 7)] == f"{application_id} of its training is still active"
        assert all(found.values())
    finally:
        store.hook.kill(application_id, "seen enough")
    store.age()
    assert store.chain(which, 7) in going(store)


def test_a_published_model_stays(store: Store, tony: Tony) -> None:
    which, application_id = store.train("train")
    model = uris.join(store.application(which, application_id), "model")
    file = store.publish(model)
    store.age()
    assert going(store) == {store.chain(which)}
    assert look(store)[store.application(which, application_id)] == f"published as file://{file.parent}"
    assert tony("gc", "--yes").code == 0
    assert store.path(model).exists()
    assert not store.path(store.chain(which)).exists()

    file.write_text(json.dumps({"model_dir": model.replace("/model", "/exports/step-120")}))
    assert going(store) == set()

    # By another name of the same store, and elsewhere than below the staging directory.
    file.write_text(json.dumps({"model_dir": model.replace("file://", "hdfs://nn:8020")}))
    assert going(store) == set()
    elsewhere = store.root.parent / "elsewhere" / "versions" / "1"
    elsewhere.mkdir(parents=True)
    file.rename(elsewhere / "version.json")
    assert going(store) == {store.application(which, application_id)}
    assert look(store, f"file://{elsewhere.parent.parent}") == {
        store.application(which, application_id): f"published as file://{elsewhere}"
    }
    with pytest.raises(CannotJudge, match="file:///nowhere, the directory for models, does not exist"):
        look(store, "file:///nowhere")


@pytest.mark.long
def test_what_others_began_with_stays(store: Store, tony: Tony) -> None:
    first, first_id = store.train("first")
    model = uris.join(store.application(first, first_id), "model")
    second, second_id = store.train("second", ChainOrigin(warm_start=model))
    third, third_id = store.train("third")
    store.rewrite_chain(store.chain(third), continues=store.chain(first))
    store.age()
    found = look(store)
    assert found[store.application(first, first_id)] == f"{store.chain(second)} was warm-started from it"
    assert found[store.chain(first)] == f"{store.chain(third)} continues it"
    last = {store.chain(second), store.application(second, second_id)}
    last |= {store.chain(third), store.application(third, third_id)}
    assert going(store) == last
    # Those that named it go first, and what they named the next time.
    assert tony("gc", "--yes").code == 0
    assert going(store) == {store.chain(first), store.application(first, first_id)}


@pytest.mark.long
def test_nothing_goes_while_something_cannot_be_read(store: Store, tony: Tony) -> None:
    which, application_id = store.train("train")
    other, _ = store.train("other")
    store.age()
    assert len(going(store)) == 4
    file = store.path(store.chain(other)) / "chain.json"
    kept = file.read_bytes()
    file.write_text("{")
    said = tony("gc", "--yes", "--older-than", "1s")
    assert said.code == 1
    assert "nothing can be removed: cannot read" in said.error
    file.write_bytes(kept)
    version = store.publish("not a place")
    assert "does not name its published model" in tony("gc", "--yes", "--older-than", "1s").error
    version.write_text("[]")
    assert tony("gc", "--yes", "--older-than", "1s").code == 1
    assert store.path(store.application(which, application_id)).exists()


def test_what_is_not_ours_is_not_touched(store: Store, tony: Tony) -> None:
    which, application_id = store.train("train")
    job_dir = store.path(store.hook.layout.job_dir(which))
    (job_dir / "by-hand").mkdir()
    (job_dir / "applications" / "mine").mkdir()
    (job_dir / "chain-0009").mkdir()  # without chain.json
    (store.root / "jobs" / "by-hand" / "chain-0001").mkdir(parents=True)
    store.age()
    assert look(store)[store.chain(which, 9)] == "it has no chain.json, so its purpose is unknown"
    assert tony("gc", "--yes").code == 0
    assert sorted(path.name for path in job_dir.iterdir()) == ["applications", "by-hand", "chain-0009", "owners"]
    assert [path.name for path in (job_dir / "applications").iterdir()] == ["mine"]
    assert (store.root / "jobs" / "by-hand" / "chain-0001").exists()
    assert not store.path(store.application(which, application_id)).exists()


def test_the_notes_of_a_training_go_with_the_last_of_it(store: Store, tony: Tony) -> None:
    """Of Airflows before 3.3."""
    which, application_id = store.train("train")
    notes = TrainingNotes(store.hook, lambda: which)
    notes.set(STATE_KEY, application_id)
    store.age(store.path(store.chain(which)))
    assert tony("gc", "--yes").code == 0
    assert notes.get(STATE_KEY) == application_id
    store.age()
    assert tony("gc", "--yes").code == 0
    assert not store.path(store.hook.layout.job_dir(which)).exists()


@pytest.mark.long
def test_it_is_looked_at_again_right_before(store: Store) -> None:
    """Whatever changes after the list was made: a publication, a touch, a new application of another training."""
    garbage: Garbage = store.hook.garbage()
    trained = [store.train(name) for name in ("one", "two", "three")]
    store.age()
    items: list[GarbageItem] = [item for item in garbage.old_items(before()) if item.uri.endswith(("chain-0001",))]
    first, second, third = sorted(items, key=lambda item: item.uri)
    (store.path(second.uri) / "touched").write_text("")
    removing = garbage.remove([first, second, third], before())
    assert next(removing).problem == ""
    assert next(removing).problem == "it has changed meanwhile"
    # A new application is seen even between two looks at everything.
    needy = identity(store.hook, "needy")
    application_id = store.hook.submit(SubmissionRequest(job("sleep 600"), needy)).application_id
    try:
        store.rewrite_chain(store.chain(needy), continues=third.uri)
        assert next(removing).problem == f"{store.chain(needy)} continues it"
    finally:
        store.hook.kill(application_id, "seen enough")
    assert not store.path(first.uri).exists()
    assert store.path(third.uri).exists()
    assert len(trained) == 3


@pytest.mark.long
def test_what_is_taken_up_a_moment_ago_stays(store: Store) -> None:
    """By a submission whose application the cluster does not know yet: it has written its files, and no more."""
    trained = {name: store.train(name) for name in ("first", "owned", "continued", "published", "starting")}
    which = {name: identity for name, (identity, _) in trained.items()}
    store.age()
    before_ms = before()
    items = {item.uri: item for item in store.hook.garbage().old_items(before_ms)}
    wanted = [items[store.chain(which[name])] for name in ("first", "owned", "continued")]
    model = store.application(*trained["published"])
    removing = store.hook.garbage().remove([*wanted, items[model]], before_ms)
    assert next(removing).problem == ""
    # From here on the look at everything is a fresh one.
    chains = CheckpointChains(store.hook.storage(), store.hook.layout, which["owned"])
    own(chains, wanted[1].uri, "application_1_0001")
    assert next(removing).problem == "it has changed meanwhile"
    chains = CheckpointChains(store.hook.storage(), store.hook.layout, which["starting"])
    about = attrs.evolve(new_chain(), continues=wanted[2].uri)
    chains.rewrite(store.chain(which["starting"]), about)
    assert next(removing).problem == f"{store.chain(which['starting'])} continues it"
    file = store.publish(uris.join(model, "model"))
    assert next(removing).problem == f"published as file://{file.parent}"
    assert not store.path(wanted[0].uri).exists()
    assert all(store.path(uri).exists() for uri in (wanted[1].uri, wanted[2].uri, model))


def test_an_application_stays_as_long_as_a_chain_of_it(store: Store, tony: Tony) -> None:
    """Without its result the training would go on in that chain, and deliver old weights after no step."""
    which, application_id = store.train("train")
    other, _ = store.train("other")
    store.rewrite_chain(store.chain(other), continues=store.chain(which))
    owners = uris.join(store.hook.layout.job_dir(which), OWNERS_DIR)
    for each in (store.chain(which), store.application(which, application_id), owners):
        store.age(store.path(each))
    found = look(store)
    assert found == {
        store.chain(which): f"{store.chain(other)} continues it",
        store.application(which, application_id): f"it owns {store.chain(which)}, which is kept",
    }
    store.rewrite_chain(store.chain(other), continues="")
    assert set(look(store).values()) == {""}
    # A chain that stays after all keeps its application, too.
    garbage = store.hook.garbage()
    items = garbage.old_items(before())
    removing = garbage.remove(items[::-1], before())
    assert items[0].uri == store.chain(which)
    assert next(removing).problem == f"it owns {store.chain(which)}, which is kept"
    assert tony("gc", "--yes").code == 0
    assert not store.path(store.hook.layout.job_dir(which)).exists()


def test_what_has_gone_before_an_error_mocked_is_told(
    store: Store, tony: Tony, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is lost in the midst is not to be had here: the second removal is made to fail."""
    for name in ("first", "second"):
        store.train(name)
    store.age()
    assert len(going(store)) == 4
    remove = Garbage._remove
    done: list[GarbageItem] = []

    def removed_once(garbage: Garbage, item: GarbageItem) -> str:
        if done:
            raise StorageUnreachable(item.uri, "remove", "it is gone")
        done.append(item)
        return remove(garbage, item)

    monkeypatch.setattr(Garbage, "_remove", removed_once)
    said = tony("gc", "--yes", "-o", "json")
    assert said.code == 1
    assert "it is gone" in said.error
    assert [(row["directory"], row["outcome"]) for row in json.loads(said.out)] == [(done[0].uri, "removed")]


def test_what_cannot_be_removed_is_said(store: Store, tony: Tony, monkeypatch: pytest.MonkeyPatch) -> None:
    store.train("train")
    store.age()
    changed = TrainingItem("file:///x/chain-0001", GarbageKind.CHAIN, 1, 1, identity=identity(store.hook))
    [removed] = store.hook.garbage().remove([changed], before())
    assert removed.problem == "it has changed meanwhile"


def test_on_hdfs(yarn: TonyHook, tony: Tony) -> None:
    """Times cannot be turned back there: a moment is old."""
    which = identity(yarn)
    application_id = yarn.submit(SubmissionRequest(job(), which)).application_id
    ended(yarn, application_id)
    yarn.job(application_id, which).clean_up()
    live = identity(yarn, "live")
    living = yarn.submit(SubmissionRequest(job("sleep 600"), live)).application_id
    directory = yarn.job(application_id, which).directory
    try:
        until(lambda: not processes_of(application_id), "its master to write its last files")
        rows = json.loads(tony("gc", "--older-than", "0s", "--output", "json").out)
        why = {row["directory"]: row["stays_because"] for row in rows}
        assert why[yarn.layout.chain_dir(which, 1)] == why[directory] is None
        assert why[yarn.layout.chain_dir(live, 1)] == f"{living} of its training is still active"
        done = tony("gc", "--older-than", "0s", "--yes")
        assert done.code == 0, done.error
        assert not yarn.storage().exists(yarn.layout.job_dir(which))
        assert yarn.storage().exists(yarn.layout.chain_dir(live, 1))
    finally:
        yarn.kill(living, "seen enough")
        ended(yarn, living)


def test_what_an_application_has_left_beside_an_output_goes_with_it(store: Store) -> None:
    """Nobody has cleaned up after it: its masters have died, and no task of Airflow has looked at it since."""
    which = identity(store.hook, "train")
    target = store.root.parent / "data" / "out"
    spec = attrs.evolve(job("true"), outputs={"out": OutputSpec(str(target))})
    application_id = store.hook.submit(SubmissionRequest(spec, which)).application_id
    about = store.path(store.application(which, application_id)) / contract.LAUNCH_DIR / contract.APPLICATION_FILE
    content = about.read_bytes()
    ended(store.hook, application_id)
    until(lambda: not about.exists(), "its master has cleaned up")
    about.parent.mkdir()
    about.write_bytes(content)
    left = target.parent / f"_out.{application_id}"
    (left / "worker-0.1.1").mkdir(parents=True)
    store.age()
    garbage = store.hook.garbage(())
    assert [each.problem for each in garbage.remove(garbage.old_items(before()), before())] == ["", ""]
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_the_history_of_a_job_may_stay_longer_than_the_rest(store: Store, tony: Tony) -> None:
    which, application_id = store.train("train")
    directory = store.path(store.application(which, application_id))
    before_it = store.hook.job(application_id, which).history()
    store.age()

    said = tony("gc", "--keep-history", "60d", "--yes")
    assert said.code == 0, said.out
    assert "application, not its history" in said.out
    assert {path.name for path in directory.iterdir()} == {"history", "status.json", "result.json", "delivered.json"}
    assert store.hook.job(application_id, which).history() == before_it

    said = tony("gc", "--keep-history", "60d", "--older-than", "0s")
    assert "0 (0 B) would be removed" in said.out
    store.age(days=70)
    store.age(directory / "delivered.json", days=40)  # as gc has written it
    said = tony("gc", "--keep-history", "60d", "--yes")
    assert said.code == 0, said.out
    assert not directory.exists()


@pytest.mark.parametrize("delivered", [Delivered(1, 1), None])
def test_a_task_trains_anew_where_only_the_history_is_left(
    store: Store, tony: Tony, delivered: Delivered | None
) -> None:
    """Cleared, or tried again after its worker had died: the model has gone."""
    which, application_id = store.train("train")
    if delivered is not None:
        store.hook.job(application_id, which).mark_delivered(delivered)
    store.age()
    assert tony("gc", "--keep-history", "60d", "--yes").code == 0
    before_it = store.hook.previous_application(which, remembered=application_id)
    assert before_it is not None
    assert before_it.has_succeeded
    assert before_it.delivered is not None
    assert TryInfo(2, 1, "id-2").was_cleared_after(before_it.delivered)
    store.hook.job(application_id, which).clean_up()
    again = store.hook.submit(SubmissionRequest(job("true"), which)).application_id
    ended(store.hook, again)
    newest = store.hook.previous_application(which)
    assert newest is not None
    assert newest.application_id == again


def test_what_advice_knows_of_trainings_goes_when_they_have(store: Store, tony: Tony) -> None:
    which, application_id = store.train("train")
    directory = store.application(which, application_id)
    labels = {"dag_id": "clicks", "task_id": "train"}
    summary = JobSummary(
        application_id=application_id, application_dir=directory, dag_id="clicks", run_id="r", task_id="train"
    )
    store.hook.keep_former_runs(labels, PreviousRuns().with_run(summary))
    store.hook.keep_former_runs({**labels, "task_id": "damaged"}, PreviousRuns())
    known, damaged = sorted((store.root / "advice").iterdir(), key=lambda path: "damaged" in path.name)
    damaged.write_text("{")
    other = known.with_name("mine.json")
    other.write_text("{}")
    assert look(store) == {}
    store.age()
    for path in (known, damaged, other):
        store.age(path)
    stays = look(store)
    assert stays[f"file://{known}"] == f"it refers to {store.hook.layout.job_dir(which)}, which still exists"
    assert f"file://{other}" not in stays
    assert tony("gc", "--yes").code == 0
    assert known.exists()
    assert going(store) == {f"file://{known}"}
    done = tony("gc", "--yes")
    assert done.code == 0, done.error
    assert set((store.root / "advice").iterdir()) == {damaged, other}
    assert store.hook.former_runs(labels) == PreviousRuns()
