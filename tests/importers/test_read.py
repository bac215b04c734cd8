"""Which system a file or call is of, and what is refused before anything is read of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.importers.jobs import imported, imported_text, xml
from tony_provider.importers import hbox, linkedin_tony_keys, skein, torchx, yarn_services
from tony_provider.importers.key_table import NotImportable
from tony_provider.importers.read_job import imported_from
from tony_provider.runtime.parsing.parse import parse_job

BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;">]>
<configuration><property><name>tony.worker.command</name><value>&c;</value></property></configuration>"""
YAML_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MAPPINGS_BOMB = (
    "x: &a {k: v}\n"
    + "\n".join(
        f"x{name}: &{name} {{{', '.join(f'k{n}: *{before}' for n in range(9))}}}"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "\nservices: {a: {env: *i}}"
)
STOLEN = """<?xml version="1.0"?>
<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/passwd">]>
<configuration><property><name>tony.worker.command</name><value>&secret;</value></property></configuration>"""


@pytest.mark.parametrize("text", [BOMB, STOLEN])
def test_entities_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(NotImportable, match="has a document type or entities, which are not read"):
        imported_text(tmp_path, "tony.xml", text)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tony.xml", "<configuration><property><name>tony.x</name>", "is not XML"),
        ("tony.xml", "<project>tony.</project>", "first element is 'project'"),
        ("tony.xml", "<configuration><property><value>tony.</value></property></configuration>", "has no name"),
        ("pom.xml", "<project/>", "is not from a known system"),
        ("job.yaml", "framework: tensorflow\ntasks: {}", "is not from a known system"),
        ("spec.yaml", "services: [1, 2]", "is not from a known system"),
        ("notes.txt", "Dear diary,", "name the system with --from"),
        ("empty.yaml", "", "is not from a known system"),
        ("run.sh", "$SPARK_HOME/bin/spark-submit --master yarn mnist.py", '"Migrate from TensorFlowOnSpark"'),
        ("driver.py", "cluster = TFCluster.run(sc, main, args, 4, 1)", '"Migrate from TensorFlowOnSpark"'),
        ("run.py", "from tf_yarn import standalone_client_mode\n", '"Migrate from tf-yarn"'),
        ("resources.json", '{"schema": "x", "components": {"worker": {}}}', '"Migrate from YARN services"'),
        ("job.yaml", "apiVersion: v1\nkind: TrainJob\nspec: {x: 1}", '"Feature matrix"'),
        ("bomb.yaml", YAML_BOMB, "is larger than 8 MiB; no job is that large"),
        ("bomb.yaml", f"{YAML_BOMB}\nservices: {{a: {{script: *i}}}}", "is larger than 8 MiB; no job is that large"),
        ("bomb.yaml", MAPPINGS_BOMB, "is larger than 8 MiB; no job is that large"),
        ("deep.json", "[" * 100_000, "is not from a known system"),
        ("deep.json", '{"components": [' + "[" * 5_000 + "]" * 5_000 + "]}", "is not from a known system"),
        ("deep.xml", "<configuration>" * 50_000 + "tony.", "is not XML"),
        ("twice.yaml", "services: {a: {}}\nservices: {b: {}}", "is not from a known system"),
        ("object.yaml", "services: !!python/object/apply:os.system [id]", "is not from a known system"),
        ("service.json", '{"components": {}}', "is not from a known system"),
        ("service.json", '{"components": []}', "the source has no task instances"),
        ("app.json", '{"roles": []}', "the source has no task instances"),
        ("tony.xml", "<configuration>tony.</configuration>", "the commands of these tasks are unknown"),
    ],
)
def test_bad_files_get_one_clear_error(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(NotImportable, match=said):
        imported_text(tmp_path, name, text)


def test_unreadable_files_get_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NotImportable, match="cannot be read: No such file"):
        imported(str(tmp_path / "missing.xml"))
    with pytest.raises(NotImportable, match="cannot be read: Is a directory"):
        imported(str(tmp_path))
    (tmp_path / "binary.xml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NotImportable, match="cannot be read"):
        imported(str(tmp_path / "binary.xml"))
    (tmp_path / "huge.xml").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(NotImportable, match="is larger than 1 MiB"):
        imported(str(tmp_path / "huge.xml"))


def test_a_file_and_a_call_are_not_one(tmp_path: Path) -> None:
    (tmp_path / "tony.xml").write_text(xml(tony__worker__instances=1))
    with pytest.raises(NotImportable, match="is a file, and '-conf' follows it"):
        imported(str(tmp_path / "tony.xml"), "-conf", "a=b")
    with pytest.raises(NotImportable, match="the call is not from a known system"):
        imported("rm", "-rf", "/")


@pytest.mark.parametrize(
    "line",
    [
        "cd $(dirname $0) && {call}",
        "mkdir -p out; {call}; echo done",
        "for lr in 1 2; do {call} & done",
        "if [ -f x ]; then {call} > log 2>&1 || exit 1; fi",
        "A=1 B='x; y' nohup {call} 2>&1 | tee -a log.txt",
        "sudo {call} # as root; not nice",
    ],
)
def test_a_call_is_found_among_other_commands(tmp_path: Path, line: str) -> None:
    call = "hbox-submit --app-type mpi python a.py --sql 'select 1; select 2' \"b;\" 'c && d'"
    found = imported_text(tmp_path, "run.sh", f"#!/bin/sh\nset -e; date\n{line.format(call=call)}\n")
    command = "mpirun tony-here python a.py --sql 'select 1; select 2' 'b;' 'c && d'"
    assert found.job["tasks"]["chief"]["command"] == command


def test_values_can_be_laid_over(tmp_path: Path) -> None:
    text = xml(tony__worker__instances=2, tony__worker__command="x")
    found = imported_text(tmp_path, "tony.xml", text, given={"tasks": {"worker": {"instances": "1"}}, "queue": "ml"})
    assert (found.job["queue"], found.job["tasks"]["worker"]["instances"]) == ("ml", "1")
    with pytest.raises(
        NotImportable, match=r"the imported job is invalid.*\n  tasks\.worker\.instances: must be a whole number"
    ):
        imported_text(tmp_path, "tony.xml", text, given={"tasks": {"worker": {"instances": "many"}}})
    for wrong in ({"tasks": "5"}, {"tasks": {"worker": "5"}}):
        with pytest.raises(NotImportable, match="must be a mapping"):
            imported_text(tmp_path, "tony.xml", text, given=wrong)


# -- whatever a file holds, it is imported, or refused in words --------------------------------------------------------

_SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2000), st.text(max_size=12), st.sampled_from(["0", "-1", "2g"])
)
_ANY = st.recursive(
    _SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def _filled(key: str) -> str:
    return key.replace("<type>", "worker").replace("<", "").replace(">", "")


def _keys(keys: Iterable[str]) -> st.SearchStrategy[str]:
    """Those of a table, and what they are below."""
    whole = {_filled(key) for key in keys}
    above = {".".join(key.split(".")[:depth]) for key in whole for depth in range(1, key.count(".") + 1)}
    return st.sampled_from(sorted(whole | above))


def _nested(keys: dict[str, object]) -> dict[str, object]:
    whole: dict[str, object] = {}
    for key, value in sorted(keys.items()):
        *above, last = key.split(".")
        place = whole
        for name in above:
            inner = place.setdefault(name, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place[last] = value
    return whole


def _imported(name: str, text: str, folder: Path) -> None:
    (folder / name).write_text(text, encoding="utf-8", errors="replace")
    try:
        found = imported_from([str(folder / name)], command="true")
    except NotImportable:
        return
    parse_job(found.job)


_QUICKLY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_QUICKLY
@given(
    st.dictionaries(
        st.sampled_from(sorted(map(_filled, linkedin_tony_keys.KEYS))),
        st.text(max_size=10) | st.sampled_from(["1", "0", "true", "worker,ps", "in,node,worker", "and(a=b:c)", "i:1"]),
        max_size=8,
    )
)
def test_any_configuration_of_tony(tmp_path: Path, given: dict[str, str]) -> None:
    from xml.sax.saxutils import escape

    lines = [f"<property><name>{key}</name><value>{escape(value)}</value></property>" for key, value in given.items()]
    _imported("tony.xml", f"<configuration>{''.join(lines)}</configuration>", tmp_path)


@_QUICKLY
@given(st.dictionaries(_keys(skein.KEYS), _ANY, max_size=8))
def test_any_specification_of_skein(tmp_path: Path, given: dict[str, object]) -> None:
    _imported("spec.yaml", yaml.safe_dump(_nested(given)), tmp_path)


@_QUICKLY
@given(
    st.dictionaries(_keys(key for key in yarn_services.KEYS if "<" not in key), _ANY, max_size=4),
    st.lists(
        st.dictionaries(
            _keys(key.partition(">.")[2] for key in yarn_services.KEYS if "<" in key),
            _ANY,
            max_size=6,
        ),
        max_size=3,
    ),
)
def test_any_service_of_yarn(tmp_path: Path, service: dict[str, object], components: list[dict[str, object]]) -> None:
    plain = {**_nested(service), "components": [_nested(each) for each in components]}
    _imported("service.json", json.dumps(plain), tmp_path)


_CONSTRAINT = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["AFFINITY", "anti_affinity", "AFFINITY_WITH_CARDINALITY"]) | _SCALAR,
        "scope": st.sampled_from(["NODE", "rack"]) | _SCALAR,
    },
    optional={
        "target_tags": st.lists(st.sampled_from(["a", "b"]) | _SCALAR, max_size=3) | _SCALAR,
        "node_attributes": st.dictionaries(st.text(max_size=4), st.lists(_SCALAR, max_size=2) | _SCALAR, max_size=2),
        "node_partitions": st.lists(_SCALAR, max_size=2) | _SCALAR,
        "min_cardinality": _SCALAR,
        "max_cardinality": _SCALAR,
        "other": _ANY,
    },
)


@_QUICKLY
@given(st.lists(st.lists(_CONSTRAINT | _SCALAR, max_size=3), min_size=2, max_size=2))
def test_any_placement_policy(tmp_path: Path, policies: list[list[object]]) -> None:
    components = [
        {"name": name, "launch_command": "x", "placement_policy": {"constraints": constraints}}
        for name, constraints in zip("ab", policies, strict=True)
    ]
    _imported("service.json", json.dumps({"name": "x", "components": components}), tmp_path)


@_QUICKLY
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(hbox.OPTIONS)),
            st.text(min_size=1, max_size=8) | st.sampled_from(["1", "2", "1G", "true"]),
        ),
        max_size=8,
    )
)
def test_any_call_of_hbox(given: list[tuple[str, str]]) -> None:
    words = [word for name, value in given for word in (f"--{name}", value)]
    try:
        found = imported_from(["hbox-submit", *words, "run"])
    except NotImportable:
        return
    parse_job(found.job)


@_QUICKLY
@given(
    st.lists(
        st.dictionaries(_keys(key.partition(">.")[2] for key in torchx.KEYS if "<" in key), _ANY, max_size=6),
        max_size=3,
    )
)
def test_any_app_of_torchx(tmp_path: Path, roles: list[dict[str, object]]) -> None:
    _imported("app.json", json.dumps({"name": "x", "roles": [_nested(each) for each in roles]}), tmp_path)
