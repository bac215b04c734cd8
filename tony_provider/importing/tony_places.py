"""Where TonY's containers run: in which images, and beside which others."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tony_provider.importing.draft import Draft, Path
from tony_provider.importing.keys import BadValue
from tony_provider.importing.values import truth, words
from tony_provider.importing.yarn_constraints import Rules, own_tags_in, read_expression

_OF_ALL = ("tony.docker.containers.image", "tony.application.docker.image")  # the second in TonY's first versions
_ENABLED = ("tony.docker.enabled", "tony.application.docker.enabled")
_OF_TYPE = re.compile(r"tony\.docker\.([^.]+)\.image")
_MOUNTS = "tony.docker.containers.mount"
_APPLICATIONS_RULES = "tony.application.placement-spec"
_MASTER = "am"  # TonY's name of the type of its application master


# -- images ------------------------------------------------------------------------------------------------------------


def put_images(draft: Draft, known: Mapping[str, str]) -> None:
    """The image of all containers, and those of task types that have their own."""
    images = {key: value for key, value in known.items() if key in _OF_ALL or _OF_TYPE.fullmatch(key)}
    if not images or not _is_enabled(draft, known):
        for key, value in images.items():
            draft.leave(key, "tony.docker.enabled is not true, so TonY uses no image", value)
        return
    of_all = next((key for key in _OF_ALL if key in images), None)
    places: list[Path] = [()] if of_all else []
    if of_all:
        draft.put("docker.image", images[of_all], of_all)
    for key, value in images.items():
        found = _OF_TYPE.fullmatch(key)
        if key in _OF_ALL or found is None:
            continue
        if found[1] == _MASTER:
            places.append(("am",))
        elif (name := draft.task_type(found[1])) in draft.tasks:
            places.append(("tasks", name))
        else:
            continue  # of a type that has no instances
        draft.put((*places[-1], "docker", "image"), value, key)
    if mounts := known.get(_MOUNTS):
        for above in places[:1] if of_all else places:
            draft.put((*above, "docker", "mounts"), words(mounts.replace(";", ",")), _MOUNTS)


def _is_enabled(draft: Draft, known: Mapping[str, str]) -> bool:
    key = next((key for key in _ENABLED if key in known), None)
    try:
        return key is not None and truth(known[key])
    except BadValue as error:
        draft.leave(str(key), str(error), known[str(key)])
        return False


# -- placement ---------------------------------------------------------------------------------------------------------


def put_placement(draft: Draft, known: Mapping[str, str]) -> None:
    """Rules of task types, or of all of them, and of the application, which are for those without allocation tags."""
    names = {_type_of(key): key for key in known if re.fullmatch(r"tony\.[^.]+\.instances", key)}
    tags = {draft.task_type(name): words(_own_or_alls(known, name, "allocation-tags")[1]) for name in names}
    for name in names:
        ours = draft.task_type(name)
        if ours not in draft.tasks:
            continue
        key, text = _own_or_alls(known, name, "placement-spec")
        _put_rules(draft, ours, key, _rules(draft, key, text, tags[ours]), tags)
        applications = known.get(_APPLICATIONS_RULES, "")
        if not tags[ours]:
            rules = _rules(draft, _APPLICATIONS_RULES, applications, tags[ours])
            _put_rules(draft, ours, _APPLICATIONS_RULES, rules, tags)
        _put_tags(draft, known, name, tags[ours], is_placed=bool(text or applications))


def _type_of(key: str) -> str:
    return key.split(".")[1]


def _own_or_alls(known: Mapping[str, str], name: str, what: str) -> tuple[str, str]:
    """A type's own key and value, else those for all containers."""
    own = f"tony.{name}.{what}"
    key = own if own in known else f"tony.containers.{what}"
    return key, known.get(key, "")


def _rules(draft: Draft, key: str, text: str, tags: list[str]) -> Rules:
    if not text:
        return Rules()
    try:
        return read_expression(text, tags)
    except BadValue as error:
        draft.leave(key, str(error), text)
        return Rules()


def _put_rules(draft: Draft, ours: str, key: str, rules: Rules, tags: Mapping[str, list[str]]) -> None:
    above: Path = ("tasks", ours, "placement")
    for name, found in (("constraints", rules.constraints), ("attributes", rules.attributes)):
        if found:
            draft.put((*above, name), [*(draft.get((*above, name)) or []), *found], key)
    _say_names(draft, key, rules, tags)


def _put_tags(draft: Draft, known: Mapping[str, str], name: str, tags: list[str], *, is_placed: bool) -> None:
    key, ours = _own_or_alls(known, name, "allocation-tags")[0], draft.task_type(name)
    if tags and not is_placed:
        draft.leave(key, "TonY tells YARN tags only of types that have a placement specification", ",".join(tags))
    elif others := [tag for tag in tags if tag != ours]:
        draft.put(("tasks", ours, "placement", "tags"), others, key)


def _say_names(draft: Draft, key: str, rules: Rules, tags: Mapping[str, list[str]]) -> None:
    for tag in dict.fromkeys(own_tags_in(rules)):
        if tag in draft.tasks and tag not in tags.get(tag, []):
            draft.leave(
                key, f"{tag} is a tag of the containers of that type here, also without `allocation-tags` that say so"
            )
