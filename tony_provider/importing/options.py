"""The options of a call of another program, as it takes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from tony_provider.importing.imported import NotImportable


@attrs.frozen
class Options:
    """What a call says: each option with its values, in order, and what stands after all options."""

    given: Sequence[tuple[str, str]]  # names without hyphens; an option without a value has an empty one
    rest: Sequence[str]

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.given if each == name]

    def last(self, name: str) -> str | None:
        found = self.all(name)
        return found[-1] if found else None


def read_options(words: Sequence[str], *, flags: Collection[str] = (), hyphens: Sequence[str] = ("--", "-")) -> Options:
    """The options at the beginning of ``words``; the first word that is none, and what follows it, is the rest.

    An option takes the next word, or what follows its equals sign; ``flags`` take none. Raises NotImportable.
    """
    given: list[tuple[str, str]] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return Options(given, words[place + 1 :])
        start = next((each for each in hyphens if word.startswith(each) and len(word) > len(each)), None)
        if start is None:
            break
        name, equals, value = word[len(start) :].partition("=")
        place += 1
        if not equals and name not in flags:
            if place == len(words):
                raise NotImportable(f"the option {word} has no value")
            value = words[place]
            place += 1
        given.append((name, value))
    return Options(given, words[place:])
