"""Values as other systems write them, and what they are here. Each function raises BadValue."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from tony_provider.importing.keys import BadValue
from tony_provider.runtime.contract import OWN_ENV_PREFIX
from tony_provider.runtime.spec.names import ENV_NAME, USER, USER_RULE
from tony_provider.runtime.spec.problems import shown

_DECIMAL = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) *([kmgtp])b", re.IGNORECASE)
_POWERS = "kmgtp"
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def number(value: Any) -> int:
    """A whole number, also as text."""
    try:
        return int(str(value).strip())
    except ValueError:
        raise BadValue("should be a whole number") from None


def number_of(key: str, value: Any) -> int:
    """A whole number without which nothing can be made of the rest; the error names its key."""
    try:
        return number(value)
    except BadValue as error:
        raise BadValue(f"{key}: {error} (got {shown(value)})") from None


def truth(value: Any) -> bool:
    """A truth value, also as text."""
    text = str(value).strip().lower()
    if text in (*_TRUE, *_FALSE):
        return text in _TRUE
    raise BadValue("should be true or false")


def some(value: Any) -> int | None:
    """A number above zero; None for those by which others mean that there is none."""
    found = number(value)
    return found if found > 0 else None


def milliseconds(value: Any) -> str | None:
    """A duration of so many milliseconds; None for zero and less, which others write for none."""
    found = number(value)
    if found <= 0:
        return None
    return f"{found // 1000}s" if found % 1000 == 0 else f"{found / 1000}s"


def seconds(value: Any) -> str | None:
    """A duration of so many seconds; None for zero and less."""
    found = number(value)
    return f"{found}s" if found > 0 else None


def memory(value: Any) -> Any:
    """Memory as it stands; units of powers of ten, which ours refuses, as so many MiB or more."""
    text = str(value).strip()
    if found := _DECIMAL.fullmatch(text):
        size = float(found[1]) * 1000 ** (_POWERS.index(found[2].lower()) + 1)
        return math.ceil(size / (1 << 20))
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else text


def user(value: Any) -> str:
    """Return a user's name. Raises BadValue if it does not match the grammar."""
    if not isinstance(value, str) or not USER.fullmatch(value):
        raise BadValue(USER_RULE)
    return value


def words(value: Any) -> list[str]:
    """The parts of a text between commas, without blanks around them."""
    return [part for part in (each.strip() for each in str(value).split(",")) if part]


def pairs(texts: list[str]) -> dict[str, str]:
    """The mapping of ``NAME=VALUE``; a name without a value has an empty one."""
    return {name: value for name, _, value in (each.partition("=") for each in texts)}


def below(given: object, *names: str) -> Mapping[str, Any]:
    """The mapping at a path of names; an empty one where something else stands."""
    for name in names:
        given = given.get(name) if isinstance(given, Mapping) else None
    return given if isinstance(given, Mapping) else {}


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping of names to whatever there is."""
    if not isinstance(value, Mapping):
        raise BadValue("should be a mapping")
    return value


def listed(value: Any) -> list[Any]:
    """A list of whatever there is."""
    if not isinstance(value, list):
        raise BadValue("should be a list")
    return value


def environment(given: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """What of an environment can be ours, and why the rest cannot."""
    taken: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, value in given.items():
        if name.startswith(OWN_ENV_PREFIX):
            refused[name] = f"names that begin with {OWN_ENV_PREFIX} are ours"
        elif not ENV_NAME.fullmatch(name):
            refused[name] = "is no name of a variable"
        else:
            taken[name] = value if isinstance(value, str) else str(value)
    return taken, refused
