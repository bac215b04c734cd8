"""What the access lists of a job must be, beyond their types: names that YARN's form of such lists can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tony_provider.runtime.spec.model import EVERYBODY, AccessNames, JobSpec
from tony_provider.runtime.spec.problems import Problem, child, item

_NAME = re.compile(r"[^\s,:*@/\x00-\x1f\x7f]{1,255}")  # YARN puts them between commas and a blank, HDFS between colons


def acl_problems(job: JobSpec) -> Iterator[Problem]:
    """What is wrong with ``acls``."""
    for kind, names in (("view", job.acls.view), ("modify", job.acls.modify)):
        yield from _names(names, child("acls", kind))


def _names(names: AccessNames, path: str) -> Iterator[Problem]:
    for what, given in (("users", names.users), ("groups", names.groups)):
        for index, name in enumerate(given):
            if what == "users" and name == EVERYBODY:
                continue
            where = item(child(path, what), index)
            if name == EVERYBODY:
                yield Problem(where, name, f"everybody is {EVERYBODY} as the only user: users: ['{EVERYBODY}']")
            elif not _NAME.fullmatch(name) or not name.isprintable():
                yield Problem(where, name, _how(what, name))
            elif name in given[:index]:
                yield Problem(where, name, "is there twice")
    if EVERYBODY in names.users and (len(names.users) > 1 or names.groups):
        yield Problem(child(path, "users"), names.users, f"{EVERYBODY} means everybody: leave out all other names")


def _how(what: str, name: str) -> str:
    if "@" in name or "/" in name:
        return "must be the cluster's short name, such as alice, and no Kerberos principal"
    return f"must be one name of the cluster's {what}, without blanks, commas, colons and slashes, and not empty"
