"""What alice's jobs leave on the store, to another user who has a ticket of his own."""

from __future__ import annotations

from tests.secure.field import Field
from tests.secure.row import row
from tests.secure.victim import Victim
from tests.secure.visit import Answer


def _denied(field: Field, what: str, answer: Answer) -> None:
    """By HDFS itself, which names the right that is lacking."""
    field.expect(
        answer.code == 403 and "AccessControlException" in answer.text, f"{what}: {answer.code} {answer.first}"
    )


def _tried(field: Field, victim: Victim, uri: str) -> int:
    """Everything that can be done to a path."""
    bob, path = field.visitor("bob"), victim.webhdfs(uri)
    acts = (
        ("GET", "LISTSTATUS"),
        ("GET", "GETFILESTATUS"),
        ("GET", "OPEN"),
        ("GET", "GETCONTENTSUMMARY"),
        ("PUT", "CREATE&overwrite=true"),
        ("POST", "APPEND"),
        ("PUT", "MKDIRS"),
        ("PUT", "RENAME&destination=/tmp/bobs"),
        ("PUT", "SETPERMISSION&permission=777"),
        ("PUT", "SETOWNER&owner=bob"),
        ("DELETE", "DELETE&recursive=true"),
    )
    for method, act in acts:
        _denied(field, f"{act} of {uri}", bob.ask(method, f"{path}?op={act}", "" if method != "GET" else None))
    return len(acts)


@row("others-staging", "read, rewrite, rename, open to all or remove alice's staging directory and what is in it")
def others_staging(field: Field) -> str:
    victim = field.victim()
    root = victim.job.hook.layout.root
    directory = victim.job.directory
    tried = sum(
        _tried(field, victim, uri)
        for uri in (root, f"{root}/cache", f"{directory}/launch", f"{directory}/launch/tony-application.json")
    )
    return f"{tried} acts, each refused by HDFS (AccessControlException)"


@row("others-history", "the same with status, events, series, kept logs and model of a training of hers that has ended")
def others_history(field: Field) -> str:
    victim = field.ended_victim()
    files = [name for name in victim.job.files() if not name.startswith("launch/")]
    expected = all(any(name.startswith(each) for name in files) for each in ("status.json", "result.json", "logs/"))
    field.expect(expected, f"she has left only {files}")
    bob = field.visitor("bob")
    for name in files:
        answer = bob.ask("GET", f"{victim.webhdfs()}/{name}?op=OPEN")
        _denied(field, f"OPEN of {name}", answer)
    tried = _tried(field, victim, f"{victim.job.directory}/history")
    return f"none of {len(files)} files can be opened; {tried} acts on her history, each refused by HDFS"
