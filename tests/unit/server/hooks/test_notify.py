"""Who may be told something: hosts that the policy names, and commands of one's own machine only [ADR 0054]."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from shoal.engine.changes import NoticeRow
from shoal.engine.commands import Noticed
from shoal.model.errors import BadInput, Refused
from shoal.server.hooks.notify import EMBEDDED, Notifier, check_target, document_of, is_allowed, place_of

HOSTS = ("hooks.example.org", "10.0.0.7:8080", "*.chat.example.org", "[::1]:9000", "*.dev.example.org:8443")


@pytest.mark.parametrize(
    "url",
    ["https://hooks.example.org/a?b=c", "https://HOOKS.example.org", "http://hooks.example.org/", "http://10.0.0.7:8080/x",
     "https://a.chat.example.org/", "https://a.b.chat.example.org/", "http://[::1]:9000/", "https://x.dev.example.org:8443/"],
)  # fmt: skip
def test_hosts_that_the_policy_names_are_told(url: str) -> None:
    assert is_allowed(urlsplit(url), HOSTS)
    check_target(url, "own", HOSTS)


@pytest.mark.parametrize(
    "url",
    ["https://hooks.example.org:8443/", "https://evil.org/hooks.example.org", "https://hooks.example.org.evil.org/",
     "http://10.0.0.7/", "http://10.0.0.7:8081/", "https://chat.example.org/", "https://xchat.example.org/", "http://127.0.0.1/",
     "http://[::1]/", "http://169.254.169.254/latest/meta-data", "https://x.dev.example.org/", "http://localhost:6379/"],
)  # fmt: skip
def test_nobody_else_is(url: str) -> None:
    with pytest.raises(Refused):
        check_target(url, "own", HOSTS)
    check_target(url, EMBEDDED, ())


@pytest.mark.parametrize("url", ["https://u:p@hooks.example.org/", "https://", "http://a b/", "https://x:99999/", "ftp://x/", "file:///etc/passwd",
                                 "https://hooks.example.org\\@evil.org/", "http://hooks.example.org/\r\nX: 1"])  # fmt: skip
def test_what_is_no_plain_address_is_refused_whoever_asks(url: str) -> None:
    for mode in ("own", EMBEDDED):
        with pytest.raises((BadInput, Refused)):
            check_target(url, mode, HOSTS)


def test_commands_are_run_on_ones_own_machine_only() -> None:
    check_target("notify-send done", EMBEDDED, ())
    with pytest.raises(Refused, match="runs no commands"):
        check_target("notify-send done", "own", HOSTS)


def test_the_place_of_a_target_has_no_secret() -> None:
    assert place_of("https://hooks.example.org/T0/secret?key=secret") == "https://hooks.example.org"
    assert place_of("curl -H secret x") == "a command"


def test_a_notice_has_an_id_by_which_a_repetition_is_known() -> None:
    row = NoticeRow(17, "https://x", 3, "ann", 5.0, "end", "r3 is over", '{"counts": {}}')
    assert document_of(row)["id"] == "r3-17" and document_of(row)["text"] == "Shoal: r3 is over"


class Slow(Notifier):
    """Whoever is told for ann is told for ever."""

    def __init__(self, service: Any) -> None:
        super().__init__(service)
        self.told: list[str] = []

    async def _tell(self, row: NoticeRow) -> None:
        if row.owner == "ann":
            await asyncio.Event().wait()
        self.told.append(row.owner)


class Rows:
    """A service that has these notices."""

    def __init__(self, rows: list[NoticeRow]) -> None:
        self.rows = rows

    async def query(self, _: object, patient: bool) -> list[NoticeRow]:
        return self.rows

    async def command(self, told: Noticed) -> None:
        self.rows = [row for row in self.rows if row.seq != told.seq]


def test_addresses_of_one_owner_that_do_not_answer_keep_no_others_notices_waiting() -> None:
    rows = [NoticeRow(at, "https://x", at, "ann" if at < 20 else "bob", 0.0, "end", "", "{}") for at in range(22)]

    async def play() -> list[str]:
        notifier = Slow(Rows(rows))
        going = asyncio.ensure_future(notifier.run())
        while len(notifier.told) < 2:
            await asyncio.sleep(0.01)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        return notifier.told

    assert asyncio.run(asyncio.wait_for(play(), 60.0)) == ["bob", "bob"]
