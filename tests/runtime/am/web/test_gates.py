"""Whom the application master answers."""

from __future__ import annotations

import base64
import getpass
import grp
import os
import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.am.web.site import Answered, Master, ask, router, serving
from tony_provider.runtime.am.web.authentication import Authenticator, LocalAuthenticator, Proxies, YarnAuthenticator
from tony_provider.runtime.am.web.web_app import Routes, may_modify
from tony_provider.runtime.application import YarnAccess
from tony_provider.runtime.hadoop.yarn_records import AccessList, groups_of

PROXY = "127.0.0.2"
ME = getpass.getuser()
MY_GROUP = grp.getgrgid(os.getgid()).gr_name


def yarn_gate(administrators: str | None = None, **access_lists: str) -> YarnAuthenticator:
    authenticator = YarnAuthenticator(YarnAccess([], [PROXY], administrators), ["alice"])
    authenticator.learn(access_lists)
    return authenticator


async def put(authenticator: Authenticator, cookie: str | None, source: str = PROXY) -> Answered:
    return await _ask(authenticator, "PUT", "/control/checkpoint", cookie, source, {"reason": "r"})


async def look(authenticator: Authenticator, cookie: str | None, source: str = PROXY) -> Answered:
    return await _ask(authenticator, "GET", "/status", cookie, source, None)


async def _ask(
    authenticator: Authenticator, method: str, path: str, cookie: str | None, source: str, body: object
) -> Answered:
    async with serving(Routes(authenticator, router(Master())).answer) as server:
        headers = {} if cookie is None else {"Cookie": cookie}
        return await ask(server, method, path, body, headers, source)


@pytest.mark.parametrize("path", ["/status", "/nowhere"])
async def test_only_the_proxy_is_answered(path: str) -> None:
    async with serving(Routes(yarn_gate(), router(Master())).answer) as server:
        stranger = await ask(server, "GET", path, headers={"Cookie": "proxy-user=alice"})
        proxied = await ask(server, "GET", path, headers={"Cookie": "proxy-user=alice"}, source=PROXY)
    assert stranger.status == 403
    assert "tracking URL" in stranger.json()["error"]
    assert proxied.status in (200, 404)


async def test_the_owner_may_everything() -> None:
    for authenticator in (yarn_gate(), yarn_gate(administrators="")):
        assert (await look(authenticator, "proxy-user=alice")).status == 200
        assert (await put(authenticator, "proxy-user=alice")).status == 202
        assert (await put(authenticator, 'theme=dark; proxy-user="alice"')).status == 202


@pytest.mark.parametrize(
    "cookie",
    [None, "", "proxy-user=", "proxy-user=bob", "proxy-user", "user=alice", "proxy-user=bob; proxy-user=alice"],
)
async def test_others_may_look_where_yarn_heeds_no_lists_and_nothing_else(cookie: str | None) -> None:
    assert (await look(yarn_gate(), cookie)).status == 200
    assert (await put(yarn_gate(), cookie)).status == 403
    assert (await look(yarn_gate(administrators=""), cookie)).status == 403
    assert (await put(yarn_gate(administrators=""), cookie)).status == 403


async def test_lists_say_who_else_may() -> None:
    authenticator = yarn_gate(administrators="yarn,root hadoop", VIEW_APP="bob", MODIFY_APP="carol")
    assert [(await look(authenticator, f"proxy-user={user}")).status for user in ("bob", "carol", "root")] == [
        200,
        403,
        200,
    ]
    assert [(await put(authenticator, f"proxy-user={user}")).status for user in ("bob", "carol", "yarn")] == [
        403,
        202,
        202,
    ]
    everybody = yarn_gate(administrators="*")
    assert (await put(everybody, "proxy-user=bob")).status == 202


async def test_the_job_page_knows_who_may_change_the_job() -> None:
    authenticator = yarn_gate(administrators="root", VIEW_APP="bob", MODIFY_APP="carol")
    may = {user: await may_modify(authenticator, user) for user in ("alice", "bob", "carol", "root", "")}
    assert may == {"alice": True, "bob": False, "carol": True, "root": True, "": False}


async def test_a_queues_administrators_may_as_yarn_lets_them() -> None:
    authenticator = YarnAuthenticator(YarnAccess([], [PROXY], "", ["dora", "ella ops"]), ["alice"])
    for user, status in (("dora", 202), ("ella", 202), ("bob", 403)):
        assert (await put(authenticator, f"proxy-user={user}")).status == status
    heedless = YarnAuthenticator(YarnAccess([], [PROXY], None, ["dora"]), ["alice"])
    assert (await put(heedless, "proxy-user=dora")).status == 403


async def test_groups_are_those_of_this_node() -> None:
    authenticator = yarn_gate(administrators="", MODIFY_APP=f"nobody {MY_GROUP}")
    assert (await put(authenticator, f"proxy-user={ME}")).status == 202
    assert (await put(authenticator, "proxy-user=no-such-user-here")).status == 403
    assert MY_GROUP in groups_of(ME)


async def test_a_name_that_was_encoded_for_the_cookie_is_the_same_name() -> None:
    authenticator = yarn_gate(administrators="", VIEW_APP="jo+e smith")
    assert (await look(authenticator, "proxy-user=jo%2Be")).status == 200


def basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


async def test_on_this_machine_the_folders_secret_opens() -> None:
    authenticator = LocalAuthenticator("s3cret", "alice")
    async with serving(Routes(authenticator, router(Master())).answer) as server:
        for headers, status in (
            ({"Authorization": "Bearer s3cret"}, 200),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer s\xe9cret"}, 401),
            ({"Authorization": basic("anybody:s3cret")}, 200),
            ({"Authorization": basic(":s3cret")}, 200),
            ({"Authorization": basic("s3cret:")}, 401),
            ({"Authorization": basic("s3cret")}, 401),
            ({"Authorization": "Basic s3cret"}, 401),
            ({"Authorization": "Basic"}, 401),
            ({"Authorization": "s3cret"}, 401),
            ({}, 401),
            ({"Cookie": "proxy-user=alice"}, 401),
        ):
            answered = await ask(server, "GET", "/status", headers=headers)
            assert answered.status == status
            assert answered.headers.get("www-authenticate", "").startswith("Basic ") is (status == 401)


async def test_proxies_are_looked_up_by_name_and_in_every_spelling() -> None:
    assert await Proxies(["localhost"]).include("127.0.0.1")
    assert await Proxies(["localhost"]).include("::ffff:127.0.0.1")
    assert not await Proxies(["127.0.0.2"]).include("127.0.0.1")
    assert not await Proxies(["127.0.0.2"]).include("")
    assert not await Proxies([]).include("127.0.0.1")
    both = Proxies(["no-such-host.invalid", "127.0.0.3", "a" * 70])
    assert await both.include("127.0.0.3")
    assert not await both.include("127.0.0.4")


async def test_a_proxy_that_calls_itself_localhost_sends_from_this_machines_own_address() -> None:
    own = socket.gethostbyname(socket.gethostname())
    assert await Proxies(["localhost"]).include(own)


_names = st.text(string.ascii_lowercase + "-_.", min_size=1, max_size=8)


@given(st.sets(_names, max_size=4), st.sets(_names, max_size=4))
def test_an_access_list_is_read_as_hadoop_writes_it(users: set[str], groups: set[str]) -> None:
    assert AccessList.parse(f"{','.join(users)} {','.join(groups)}") == AccessList(frozenset(users), frozenset(groups))


@given(st.sets(_names, max_size=4), st.sets(_names, max_size=4))
def test_an_access_list_is_written_as_it_is_read(users: set[str], groups: set[str]) -> None:
    assert AccessList.parse(AccessList.of(users, groups).text) == AccessList.of(users, groups)
    assert AccessList.of([*users, "*"], groups).text == "*"


@given(st.text())
def test_no_access_list_is_an_error(text: str) -> None:
    assert AccessList.parse(text).everybody is (text.strip() == "*")
