"""Each format, with files that its own libraries wrote: what is complete, and what is not once it is damaged."""

from __future__ import annotations

import math
import time
import zipfile

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.checkpoint.conftest import Sample, age
from tony_provider.runtime.checkpoint.formats import FoundCheckpoints, find
from tony_provider.runtime.spec.model import CheckpointFormat

TENSORFLOW, KERAS = CheckpointFormat.TENSORFLOW, CheckpointFormat.KERAS
PYTORCH, ORBAX, MANIFEST = CheckpointFormat.PYTORCH, CheckpointFormat.ORBAX, CheckpointFormat.MANIFEST


@attrs.frozen
class Case:
    sample: str
    kind: CheckpointFormat
    complete: list[tuple[int | None, str]]  # step, and how the entry begins; the newest last
    verified: list[str]  # files that cannot lose a byte unnoticed
    needed: list[str] = attrs.field(factory=list)  # others that cannot be missing unnoticed
    spare: list[str] = attrs.field(factory=list)  # of the verified, those that can


_DATA = ".data-00000-of-00001"
CASES = [
    Case(
        "manager",
        TENSORFLOW,
        [(20, "ckpt-20"), (30, "ckpt-30")],
        [f"ckpt-{n}{s}" for n in (20, 30) for s in (".index", _DATA)],
    ),
    Case(
        "sharded_bundle",
        TENSORFLOW,
        [(7, "ckpt-7")],
        ["ckpt-7.index", "ckpt-7.data-00000-of-00002", "ckpt-7.data-00001-of-00002"],
    ),
    Case("tf_keras_weights", TENSORFLOW, [(n, f"weights.0{n}-") for n in (1, 2, 3)], []),
    Case(
        "saved_models",
        TENSORFLOW,
        [(n, f"saved-0{n}") for n in (1, 2, 3)],
        [f"saved-03/variables/variables{suffix}" for suffix in (".index", _DATA)],
        ["saved-03/saved_model.pb"],
    ),
    Case("tf_keras_backup", KERAS, [(3, "chief/ckpt-3")], ["chief/ckpt-3.index", f"chief/ckpt-3{_DATA}"]),
    Case(
        "keras_backup",
        KERAS,
        [(3, ".")],
        ["latest.weights.h5", "training_metadata.json"],
        spare=["training_metadata.json"],
    ),
    Case("keras_archives", KERAS, [(n, f"archive-0{n}.keras") for n in (1, 2, 3)], ["archive-03.keras"]),
    Case("tf_keras_archives", KERAS, [(n, f"archive-0{n}.keras") for n in (1, 2, 3)], ["archive-01.keras"]),
    Case("keras_weights", KERAS, [(n, f"epoch-0{n}.weights.h5") for n in (1, 2, 3)], ["epoch-02.weights.h5"]),
    Case(
        "torch",
        PYTORCH,
        [
            (None, "nocrc.pt"),
            (7, "checkpoint.pt"),
            (8, "last.ckpt"),
            (20, "model-20.pth"),
            (50, "legacy-50.pt"),
            (120, "epoch=3-step=120.ckpt"),
        ],
        ["nocrc.pt", "checkpoint.pt", "last.ckpt", "model-20.pth", "legacy-50.pt", "epoch=3-step=120.ckpt"],
    ),
    Case(
        "dcp", PYTORCH, [(40, "step-40")], [f"step-40/{name}" for name in (".metadata", "__0_0.distcp", "__1_0.distcp")]
    ),
    Case(
        "accelerate",
        PYTORCH,
        [(1, "checkpoint_1"), (2, "checkpoint_2")],
        [f"checkpoint_2/{name}" for name in ("model.safetensors", "optimizer.bin", "scheduler.bin")],
        ["checkpoint_2/random_states_0.pkl"],
    ),
    Case(
        "sharded",
        PYTORCH,
        [(77, "checkpoint-77")],
        [
            "checkpoint-77/model.safetensors.index.json",
            "checkpoint-77/model-00001-of-00002.safetensors",
            "checkpoint-77/model-00002-of-00002.safetensors",
        ],
    ),
    Case(
        "orbax",
        ORBAX,
        [(3, "3"), (6, "checkpoint_00000006"), (8, "8"), (20, "20"), (30, "30")],
        [
            "30/_CHECKPOINT_METADATA",
            "30/default/_METADATA",
            "30/default/manifest.ocdbt",
            "30/default/ocdbt.process_0/manifest.ocdbt",
            "3/state/manifest.ocdbt",
            "8/_METADATA",
            "8/w/.zarray",
        ],
        ["8/w/0.0"],
        ["30/_CHECKPOINT_METADATA", "30/default/_METADATA", "30/default/ocdbt.process_0/manifest.ocdbt", "8/_METADATA"],
    ),
    Case("manifest", MANIFEST, [(5, "model")], ["model/a", "model/b", "step-5.tony.json"]),
]


@pytest.fixture(params=CASES, ids=[case.sample for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def entries(found: FoundCheckpoints) -> list[tuple[int | None, str]]:
    return [(one.step, one.entry) for one in found.complete]


def without(found: FoundCheckpoints, file: str) -> list[tuple[int | None, str]]:
    """What stays complete when this file is not whole."""
    damaged = [one for one in found.complete if file in one.stamps]
    assert len(damaged) == 1
    return [(one.step, one.entry) for one in found.complete if one is not damaged[0]]


@pytest.mark.parametrize("wanted", ["auto", "its own"])
def test_what_is_complete(case: Case, wanted: str, sample: Sample) -> None:
    directory = sample(case.sample)
    found = find(directory, CheckpointFormat.AUTO if wanted == "auto" else case.kind)
    assert found.broken == []
    assert [step for step, _ in entries(found)] == [step for step, _ in case.complete]
    for one, (_, entry) in zip(found.complete, case.complete, strict=True):
        assert one.entry.startswith(entry)
        assert one.format == case.kind.value
        assert set(one.files) == {*one.stamps, *one.generated}
        assert list(one.files) == sorted(one.files)
        assert all((directory / name).stat().st_size == stamp.size for name, stamp in one.stamps.items())


def test_other_formats_are_not_looked_for(case: Case, sample: Sample) -> None:
    directory = sample(case.sample)
    if case.sample == "tf_keras_backup":
        return  # which is one of TensorFlow's, too
    for wanted in {*CheckpointFormat} - {case.kind, CheckpointFormat.AUTO}:
        assert find(directory, wanted) == FoundCheckpoints([], [])


def test_nothing_of_it_can_be_missing(case: Case, sample: Sample) -> None:
    directory = sample(case.sample)
    whole = find(directory, case.kind)
    for name in [*case.verified, *case.needed]:
        if name in case.spare:
            continue
        data = (directory / name).read_bytes()
        (directory / name).unlink()
        assert entries(find(directory, case.kind)) == without(whole, name), name
        (directory / name).write_bytes(data)
        age(directory)
    assert entries(find(directory, case.kind)) == entries(whole)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_short_at_any_place(
    case: Case, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    if not case.verified:
        return
    directory = tmp_path_factory.getbasetemp() / f"cut-{case.sample}"
    if not directory.exists():
        sample(case.sample).rename(directory)
    whole = find(directory, case.kind)
    name = data.draw(st.sampled_from(case.verified))
    file = directory / name
    content = file.read_bytes()
    try:
        most = len(content.rstrip()) - 1
        file.write_bytes(content[: data.draw(st.integers(0, min(8, most)) | st.integers(0, most))])
        young = find(directory, case.kind)
        assert entries(young) == without(whole, name)
        assert young.broken == []  # it may still be being written
        for now in (time.time() + 3600, math.inf):
            old = find(directory, case.kind, now=now)
            assert entries(old) == without(whole, name)
            assert any(name in one.paths for one in old.broken)
            assert all(one.reason for one in old.broken)
    finally:
        file.write_bytes(content)
        age(directory)
    assert find(directory, case.kind).broken == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_in_its_files_nothing_is_raised(
    case: Case, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    directory = tmp_path_factory.getbasetemp() / f"damaged-{case.sample}"
    if not directory.exists():
        sample(case.sample).rename(directory)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    file = data.draw(st.sampled_from(files))
    content = file.read_bytes()
    place = data.draw(st.integers(0, len(content)))
    other = data.draw(st.binary(max_size=40))
    try:
        file.write_bytes(content[:place] + other + content[place + data.draw(st.integers(0, 40)) :])
        found = find(directory, case.kind, now=math.inf)
        assert all(set(one.stamps) <= set(one.files) for one in found.complete)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("keras_archives", "archive-03.keras"),
        ("tf_keras_archives", "archive-03.keras"),
        ("torch", "checkpoint.pt"),
        ("torch", "model-20.pth"),
        ("accelerate", "checkpoint_2/optimizer.bin"),
    ],
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bit_of_an_archive_can_flip(
    name: str, file: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    directory = tmp_path_factory.getbasetemp() / f"flipped-{name}"
    if not directory.exists():
        sample(name).rename(directory)
    whole = find(directory)
    path = directory / file
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        member = data.draw(st.sampled_from([one for one in archive.infolist() if one.file_size]))
        place = content.index(archive.read(member)) + data.draw(st.integers(0, member.file_size - 1))
    try:
        flipped = content[place] ^ 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        age(directory)
        found = find(directory)
        assert entries(found) == without(whole, file)
        assert [file in one.paths for one in found.broken] == [True]
    finally:
        path.write_bytes(content)
        age(directory)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bit_of_an_index_can_flip(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    directory = tmp_path_factory.getbasetemp() / "flipped-index"
    if not directory.exists():
        sample("manager").rename(directory)
    path = directory / "ckpt-30.index"
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 48 - 1))  # behind it there is padding
    try:
        flipped = content[place] ^ 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        found = find(directory, now=math.inf)
        assert entries(found) == [(20, "ckpt-20")]
        assert [one.paths for one in found.broken] == [(f"ckpt-30{_DATA}", "ckpt-30.index")]
    finally:
        path.write_bytes(content)
