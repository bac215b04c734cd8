"""YARN's access lists, such as ``alice,bob operators``: users, a blank, groups; ``*`` is everybody."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from collections.abc import Iterable

import attrs

VIEW_APP, MODIFY_APP = "VIEW_APP", "MODIFY_APP"  # YARN's names for an application's two lists
_EVERYBODY = "*"


@attrs.frozen
class AccessList:
    """An access list of YARN's: the users and groups that may do something."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    everybody: bool = False

    @classmethod
    def parse(cls, text: str) -> AccessList:
        """The access list of a text, as Hadoop's AccessControlList reads it; nothing is an error."""
        if text.strip() == _EVERYBODY:
            return cls(everybody=True)
        users, _, groups = text.partition(" ")
        return cls(_names(users), _names(groups))

    @classmethod
    def of(cls, users: Iterable[str], groups: Iterable[str]) -> AccessList:
        """The access list of these names; ``*`` among the users is everybody."""
        users = frozenset(users)
        return cls(everybody=True) if _EVERYBODY in users else cls(users, frozenset(groups))

    @property
    def text(self) -> str:
        """As ``parse`` reads it: a blank where nobody is in it."""
        return _EVERYBODY if self.everybody else f"{','.join(sorted(self.users))} {','.join(sorted(self.groups))}"

    async def allows(self, user: str) -> bool:
        if self.everybody or user in self.users:
            return True
        return bool(user and self.groups) and not self.groups.isdisjoint(await asyncio.to_thread(groups_of, user))


def groups_of(user: str) -> set[str]:
    """The groups that this node knows the user to be in, as Hadoop's default mapping finds them. Blocks.

    Empty for a user that this node does not know.
    """
    try:
        own = pwd.getpwnam(user).pw_gid
    except KeyError:
        return set()
    found = set()
    for number in os.getgrouplist(user, own):
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue  # a group without a name
    return found


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
