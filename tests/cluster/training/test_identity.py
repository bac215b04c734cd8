from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from tony_provider.cluster.training.identity import Identity, Layout, identity_of
from tony_provider.runtime.storage import uris

ids = st.text(min_size=0, max_size=300)
parts = st.fixed_dictionaries({"namespace": ids, "dag_id": ids, "run_id": ids, "task_id": ids})
instances = st.fixed_dictionaries(
    {"map_index": st.integers(min_value=-1, max_value=10**6), "checkpoint_key": st.none() | ids}
)


@given(parts, instances)
def test_names_are_legal_wherever_they_go(where: dict[str, str], instance: dict[str, object]) -> None:
    identity = identity_of(**where, **instance)  # type: ignore[arg-type]
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,80}", identity.name)
    assert re.fullmatch(r"tony-[0-9a-f]{20}", identity.tag)
    assert identity.tag == identity.tag.lower()  # YARN lowers tags
    directory = Layout("hdfs://nn:8020/user/a/.tony").application_dir(identity, "application_1_0001")
    assert uris.parse(directory).path.count("/") == 7


@given(parts, instances, parts, instances)
def test_different_trainings_have_different_identities(
    where: dict[str, str], which: dict[str, object], other_where: dict[str, str], other_which: dict[str, object]
) -> None:
    def key(where: dict[str, str], which: dict[str, object]) -> object:
        instance = which["map_index"] if which["checkpoint_key"] is None else ("key", which["checkpoint_key"])
        return where, instance

    assume(key(where, which) != key(other_where, other_which))
    one = identity_of(**where, **which)  # type: ignore[arg-type]
    other = identity_of(**other_where, **other_which)  # type: ignore[arg-type]
    assert one.name != other.name
    assert one.tag != other.tag


def test_text_that_only_reads_the_same_is_told_apart() -> None:
    one = identity_of(namespace="", dag_id="a", run_id="b__c", task_id="d")
    other = identity_of(namespace="", dag_id="a__b", run_id="c", task_id="d")
    assert one.digest != other.digest


def test_a_retry_is_the_same_training() -> None:
    def identity() -> Identity:
        return identity_of(namespace="n", dag_id="Retrain", run_id="manual__2026-01-01T00:00:00+00:00", task_id="train")

    assert identity() == identity()
    assert identity().slug == "retrain-train-manual-2026-01-01t00-00-00-00-00"


def test_a_checkpoint_key_takes_the_place_of_the_map_index() -> None:
    def identity(map_index: int = -1, key: str | None = None) -> Identity:
        return identity_of(namespace="n", dag_id="d", run_id="r", task_id="t", map_index=map_index, checkpoint_key=key)

    assert identity(1, "de") == identity(2, "de")
    assert identity(key="1") != identity(1)
