"""Who is calling and what they may give away: people, tokens, revocation and the audit, without a server
[security S1, S13, S17]."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from shoal.db.sqlite import Database
from shoal.model import limits
from shoal.model.credentials import ENROL, LONGEST, SCOPES, SESSION, SUBMIT, digest, kind_of, make
from shoal.model.errors import BadInput, Conflict, NotFound, Refused
from shoal.model.limits import MAX_LINEAGE
from shoal.model.people import AuditRow, GroupRow, PeopleRow, PeopleRows, SiteRow, TokenRow, UserRow
from shoal.server.auth.authentication import COUNT_FOR, TICKET_MORE, Authentication, Caller, unauthorised
from shoal.wire.http.requests import NewGroup, NewToken, NewUser, Revoke, SiteHolders

NOW = 1_000_000.0
PLAIN = frozenset({"submit", "read", "cancel"})


class Place:
    """An Access with two groups and five people, and what it wrote down."""

    def __init__(self) -> None:
        self.kept: list[PeopleRow] = []
        self.numbers = itertools.count()
        self.access = Authentication(PeopleRows([], [], [], [], 1), self.kept.extend)
        for group in ("phys", "chem"):
            self.access.add_group(NewGroup(group), NOW)
        for name, group, role in (
            ("boss", "", "admin"), ("anna", "phys", "user"), ("mike", "phys", "user"), ("mona", "phys", "manager"),
            ("olaf", "chem", "user"),
        ):  # fmt: skip
            self.access.add_user(NewUser(name, group, role), NOW)

    def random(self, size: int) -> str:
        """Never the same twice, and of the right length for what it is asked for."""
        return f"{next(self.numbers):0{4 * size // 3 + 1}d}"

    def caller(self, name: str, scopes: frozenset[str] | None = None, kind: str = SUBMIT) -> Caller:
        user = self.access.users[name]
        given = scopes if scopes is not None else frozenset(SCOPES) if user.role == "admin" else PLAIN
        return Caller(kind, name, user.grp, user.role, given, token="t-of-" + name, address="10.0.0.1")

    def mint(self, by: str | Caller, now: float = NOW, **asked: Any) -> tuple[TokenRow, str]:
        maker = self.caller(by) if isinstance(by, str) else by
        return self.access.mint(maker, NewToken(**asked), now, self.random)

    def check(self, secret: str, now: float = NOW) -> Caller:
        return self.access.check(secret, now, "10.0.0.9")

    @property
    def lines(self) -> list[AuditRow]:
        return [row for row in self.kept if isinstance(row, AuditRow)]


@pytest.fixture
def place() -> Place:
    return Place()


def refused(call: Callable[[], object], kind: type[Exception], code: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert getattr(caught.value, "code", "") == code


# --- who is calling
def test_a_token_says_who_its_owner_is_now(place: Place) -> None:
    row, secret = place.mint("anna")
    found = place.check(secret)
    assert (found.kind, found.owner, found.group, found.role) == (SUBMIT, "anna", "phys", "user")
    assert (found.scopes, found.token, found.expires) == (PLAIN, row.token, row.expires)
    place.access.add_user(NewUser("anna", "chem", "manager"), NOW)
    found = place.check(secret)
    assert (found.group, found.role, found.manages("chem"), found.manages("phys")) == ("chem", "manager", True, False)


def test_one_text_refuses_every_token_that_is_not_good(place: Place) -> None:
    row, secret = place.mint("anna", expires=60)
    bad = [
        "",
        "x",
        secret[:-1],
        secret + "\n",
        make(SUBMIT, "z" * 43),
        make(ENROL, secret[10:]),
        row.digest,
        row.token,
    ]
    texts = set()
    for text in bad:
        with pytest.raises(Refused) as caught:
            place.check(text)
        texts.add((caught.value.code, caught.value.line))
    assert texts == {("unauthorised", unauthorised().line)}


def test_whoever_has_the_whole_secret_learns_that_it_expired_or_was_revoked(place: Place) -> None:
    row, secret = place.mint("anna", expires=60)
    other, revoked = place.mint("anna")
    place.access.revoke(place.caller("anna"), Revoke([other.token]), NOW)
    with pytest.raises(Refused, match=f"{row.token} expired on") as caught:
        place.check(secret, row.expires)
    assert caught.value.code == "token_expired" and secret not in caught.value.line
    with pytest.raises(Refused, match=f"{other.token} was revoked on") as caught:
        place.check(revoked)
    assert caught.value.code == "token_revoked"
    assert place.check(secret, row.expires - 0.001).owner == "anna"


def test_a_token_whose_owner_is_unknown_is_not_good() -> None:
    secret = make(SUBMIT, "a" * 43)
    row = TokenRow(
        "t1", SUBMIT, digest(secret), "gone", "", "", "read", None, None, "", "", 0.0, NOW + 9, None, None, ""
    )
    refused(
        lambda: Authentication(PeopleRows([], [], [row], [], 1), lambda rows: None).check(secret, NOW, ""),
        Refused,
        "unauthorised",
    )


def test_a_session_is_a_mere_claim_here(place: Place) -> None:
    found = place.check(make(SESSION, "a" * 43))
    assert (found.kind, found.is_unproven, found.owner, found.scopes, found.is_admin) == (
        SESSION,
        True,
        "",
        frozenset(),
        False,
    )
    assert not Caller(SESSION, pilot="p1234").is_unproven and not Caller(SUBMIT).is_unproven


def test_an_administrator_is_one_by_role_and_by_scope(place: Place) -> None:
    assert place.caller("boss").is_admin
    assert not place.caller("boss", PLAIN).is_admin
    assert not place.caller("anna", frozenset(SCOPES)).is_admin
    assert place.access.seen_by(place.caller("boss")) is None
    assert place.access.seen_by(place.caller("boss", PLAIN)) == ["boss"]


def test_each_sees_their_own_and_a_manager_their_group(place: Place) -> None:
    sees = {name: place.access.seen_by(place.caller(name)) for name in ("anna", "mona", "olaf")}
    assert sees == {"anna": ["anna"], "mona": ["anna", "mike", "mona"], "olaf": ["olaf"]}
    assert place.access.holders(place.caller("anna")) == ["anna", "@phys"]
    assert place.access.holders(place.caller("boss", PLAIN)) == ["boss"]
    assert place.access.holders(place.caller("boss")) is None
    assert place.access.sees(place.caller("mona"), "mike") and not place.access.sees(place.caller("mona"), "olaf")


def test_a_manager_without_a_group_manages_nothing(place: Place) -> None:
    place.access.add_user(NewUser("mona", "", "manager"), NOW)
    mona = place.caller("mona")
    assert place.access.seen_by(mona) == ["mona"] and not mona.manages("")


def test_a_secret_is_in_no_text_of_its_caller(place: Place) -> None:
    row, secret = place.mint("anna")
    assert secret not in repr(place.check(secret)) and secret not in repr(row) and row.digest == digest(secret)
    assert not [kept for kept in place.kept if secret in repr(kept)]


# --- making tokens
def test_nobody_gives_more_scopes_than_they_have(place: Place) -> None:
    few = place.caller("anna", frozenset({"submit"}))
    assert place.mint(few)[0].scopes == "submit"
    for scope in ("read", "cancel", "metrics", "admin"):
        refused(lambda scope=scope: place.mint(few, scopes=[scope]), Refused, "forbidden")  # type: ignore[misc]  # bound now
    assert place.mint("anna")[0].scopes == "submit read cancel"
    assert place.mint("anna", scopes=["read", "read"])[0].scopes == "read"
    refused(lambda: place.mint("anna", scopes=["admin"]), Refused, "forbidden")
    refused(lambda: place.mint("anna", scopes=["root"]), BadInput, "range")
    assert place.mint("boss", owner="anna", scopes=["metrics"])[0].scopes == "metrics"
    refused(lambda: place.mint("boss", owner="anna", scopes=["admin"]), Refused, "forbidden")
    refused(lambda: place.mint(place.caller("boss", PLAIN), scopes=["admin"]), Refused, "forbidden")


def test_a_former_administrators_token_gives_no_admin_away(place: Place) -> None:
    place.access.add_user(NewUser("anna", "", "admin"), NOW)
    _, secret = place.mint("boss", owner="anna", scopes=["admin", "submit"])
    place.access.add_user(NewUser("anna", "phys", "user"), NOW)
    found = place.check(secret)
    assert "admin" in found.scopes and not found.is_admin
    refused(lambda: place.mint(found, scopes=["admin"]), Refused, "forbidden")
    refused(lambda: place.mint(found, owner="mike"), NotFound, "unknown_user")


def test_tokens_for_others_are_made_by_administrators_only(place: Place) -> None:
    for maker in ("anna", "mona", "olaf"):
        for owner in ("mike", "boss", "nobody"):
            for kind in (SUBMIT, ENROL):
                with pytest.raises(NotFound) as caught:
                    place.mint(maker, kind=kind, owner=owner)
                assert caught.value.message == f"there is no user {owner}"  # the same whether there is one or not
    assert place.mint("boss", owner="mike")[0].owner == "mike"
    refused(lambda: place.mint("boss", owner="nobody"), NotFound, "unknown_user")


def test_a_groups_enrolment_is_made_by_its_manager(place: Place) -> None:
    row, _ = place.mint("mona", kind=ENROL, group="phys")
    assert (row.owner, row.grp) == ("", "phys")
    for maker, group in (("anna", "phys"), ("mona", "chem"), ("mona", "none"), ("boss", "nowhere")):
        refused(
            lambda maker=maker, group=group: place.mint(maker, kind=ENROL, group=group),  # type: ignore[misc]  # bound now
            NotFound,
            "unknown_group",
        )
    refused(lambda: place.mint("mona", kind=ENROL, group="phys", owner="mona"), BadInput, "usage")
    refused(lambda: place.mint("mona", kind=SUBMIT, group="phys"), BadInput, "usage")
    refused(lambda: place.mint("mona", kind=ENROL, scopes=["read"]), BadInput, "usage")


def test_every_token_ends_within_its_bound(place: Place) -> None:
    for kind in (SUBMIT, ENROL):
        row, secret = place.mint("anna", kind=kind, expires=LONGEST[kind])
        assert row.expires == NOW + LONGEST[kind] and kind_of(secret) == kind
        assert NOW < place.mint("anna", kind=kind)[0].expires <= NOW + LONGEST[kind]
        for life in (LONGEST[kind] + 1, 0, -5, "10 years", "soon", ""):
            with pytest.raises(BadInput) as caught:
                place.mint("anna", kind=kind, expires=life)
            assert caught.value.field == "expires"
    for kind in (SESSION, "browser", ""):
        refused(lambda kind=kind: place.mint("boss", kind=kind), BadInput, "range")  # type: ignore[misc]  # bound now


def test_numbers_of_an_enrolment_are_bounded_and_of_no_other(place: Place) -> None:
    assert place.mint("anna", kind=ENROL, max_pilots=1, uses=100_000)[0].uses == 100_000
    for field in ("max_pilots", "uses"):
        for number in (0, -1, 100_001):
            with pytest.raises(BadInput) as caught:
                place.mint("anna", kind=ENROL, **{field: number})
            assert caught.value.field == field
        refused(lambda field=field: place.mint("anna", **{field: 1}), BadInput, "range")  # type: ignore[misc]  # bound now


def test_sites_and_notes_are_checked(place: Place) -> None:
    assert place.mint("anna", kind=ENROL, site="box")[0].site == "box"
    assert place.mint("anna", kind=ENROL, site="local")[0].site == "local"  # what this machine's own pilots have
    refused(lambda: place.mint("anna", kind=ENROL, site="../box"), BadInput, "bad_name")
    refused(lambda: place.mint("anna", note="x" * 257), BadInput, "too_long")
    _, secret = place.mint("anna")
    assert secret not in place.mint("anna", note=f"like {secret}")[0].note


def test_a_refused_token_leaves_nothing_behind(place: Place) -> None:
    before, kept = dict(place.access.tokens), list(place.kept)
    for asked in ({"owner": "mike"}, {"scopes": ["admin"]}, {"expires": "1000d"}, {"uses": 1}, {"note": "x" * 300}):
        with pytest.raises((BadInput, NotFound, Refused)):
            place.mint("anna", **asked)
    assert (place.access.tokens, place.kept) == (before, kept)


def test_there_is_a_bound_on_tokens_and_the_dead_make_room(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TOKENS", 3)
    first, _ = place.mint("anna", expires=10)
    rest = [place.mint("anna", expires=1_000)[0].token for _ in range(2)]
    refused(lambda: place.mint("anna"), Conflict, "too_many")
    newest, _ = place.mint("anna", now=NOW + 10)
    assert set(place.access.tokens) == {*rest, newest.token} and first.token not in place.access.tokens


def test_names_of_tokens_say_nothing_of_their_secrets(place: Place) -> None:
    made = [place.mint("anna") for _ in range(50)]
    assert len({row.token for row, _ in made}) == 50
    assert not [row for row, secret in made if row.token[1:] in (secret, digest(secret)[:7])]


# --- uses
def test_a_token_for_one_use_lets_one_of_many_in(place: Place) -> None:
    row, secret = place.mint("anna", kind=ENROL, uses=1)
    for _ in range(5):
        place.check(secret)  # all of them were let to the door before the first went through
    place.access.spend(row.token, 1)
    for _ in range(4):
        refused(lambda: place.access.spend(row.token, 1), Refused, "unauthorised")
    assert place.access.tokens[row.token].uses == 0
    place.access.spend(row.token, -1)  # the one that went through failed after all
    place.access.spend(row.token, 1)
    refused(lambda: place.access.spend(row.token, 1), Refused, "unauthorised")
    written = [kept.uses for kept in place.kept if isinstance(kept, TokenRow) and kept.token == row.token]
    assert written == [1, 0, 1, 0]  # each on its way to the disk before the pilot is


def test_a_token_without_a_number_of_uses_is_not_used_up(place: Place) -> None:
    row, _ = place.mint("anna", kind=ENROL)
    for _ in range(10):
        place.access.spend(row.token, 1)
    refused(lambda: place.access.spend("t-unknown", 1), Refused, "unauthorised")


# --- revoking
def everyones(place: Place) -> dict[str, TokenRow]:
    """Tokens of three people and a group at two sites, which are everybody's."""
    for site in ("box", "hpc"):
        place.access.share_site(SiteHolders(site, ["*"]), NOW)
    return {
        "anna": place.mint("anna")[0],
        "anna box": place.mint("anna", kind=ENROL, site="box")[0],
        "mike": place.mint("mike")[0],
        "mike hpc": place.mint("mike", kind=ENROL, site="hpc")[0],
        "olaf box": place.mint("olaf", kind=ENROL, site="box")[0],
        "phys hpc": place.mint("mona", kind=ENROL, group="phys", site="hpc")[0],
        "phys": place.mint("mona", kind=ENROL, group="phys")[0],
    }


@pytest.mark.parametrize(
    ("asked", "ended"),
    [
        (Revoke(user="anna"), {"anna", "anna box"}),
        (Revoke(site="box"), {"anna box", "olaf box"}),
        (Revoke(site="hpc"), {"mike hpc", "phys hpc"}),
        (Revoke(user="nobody"), set()),
        (Revoke(site="nowhere"), set()),
        (Revoke(all=True), {"anna", "anna box", "mike", "mike hpc", "olaf box", "phys hpc", "phys"}),
    ],
)
def test_revoking_by_user_site_or_all_ends_exactly_those(place: Place, asked: Revoke, ended: set[str]) -> None:
    rows = everyones(place)
    found = place.access.revoke(place.caller("boss"), asked, NOW + 1)
    assert {name for name, row in rows.items() if row.token in found} == ended and len(found) == len(ended)
    now = {name: place.access.tokens[row.token].revoked for name, row in rows.items()}
    assert now == {name: NOW + 1 if name in ended else None for name in rows}
    assert not [name for name in ended if place.access.is_live(rows[name].token)]


def test_whoever_revokes_all_keeps_the_token_they_do_it_with(place: Place) -> None:
    row, secret = place.mint("boss", scopes=["admin"])
    others = [place.mint("boss")[0].token, place.mint("anna")[0].token]
    assert sorted(place.access.revoke(place.check(secret), Revoke(all=True), NOW)) == sorted(others)
    assert place.check(secret).token == row.token
    assert place.access.revoke(place.check(secret), Revoke(all=True), NOW) == []


def test_tokens_are_revoked_by_owner_manager_and_administrator(place: Place) -> None:
    rows = everyones(place)
    for who, name, may in (
        ("anna", "anna", True), ("anna", "mike", False), ("anna", "phys", False), ("mona", "anna", False),
        ("mona", "phys hpc", True), ("olaf", "phys", False), ("boss", "mike", True),
    ):  # fmt: skip
        asked = Revoke([rows[name].token])
        if may:
            assert place.access.revoke(place.caller(who), asked, NOW) == asked.tokens
        else:
            with pytest.raises(NotFound) as caught:
                place.access.revoke(place.caller(who), asked, NOW)
            with pytest.raises(NotFound) as none:
                place.access.revoke(place.caller(who), Revoke(["t0000000"]), NOW)
            assert caught.value.line.replace(rows[name].token, "ID") == none.value.line.replace("t0000000", "ID")


def test_one_that_is_not_there_keeps_all_others_as_they_are(place: Place) -> None:
    row, secret = place.mint("anna")
    refused(
        lambda: place.access.revoke(place.caller("anna"), Revoke([row.token, "t0"]), NOW), NotFound, "unknown_token"
    )
    assert place.check(secret).owner == "anna"


def test_revoking_says_what_and_only_one_thing(place: Place) -> None:
    for asked in (
        Revoke(),
        Revoke(["t1"], user="anna"),
        Revoke(user="anna", all=True),
        Revoke(site="box", user="anna"),
    ):
        refused(lambda asked=asked: place.access.revoke(place.caller("boss"), asked, NOW), BadInput, "usage")  # type: ignore[misc]  # bound now
    for asked in (Revoke(user="anna"), Revoke(site="box"), Revoke(all=True)):
        for who in ("anna", "mona"):
            refused(
                lambda asked=asked, who=who: place.access.revoke(place.caller(who), asked, NOW),  # type: ignore[misc]  # bound now
                Refused,
                "forbidden",
            )


def test_a_revoked_token_is_dead_at_once_and_stays_so(place: Place) -> None:
    row, secret = place.mint("anna")
    place.check(secret)
    place.access.revoke(place.caller("anna"), Revoke([row.token, row.token]), NOW)
    refused(lambda: place.check(secret), Refused, "token_revoked")
    place.access.revoke(place.caller("anna"), Revoke([row.token]), NOW + 50)
    assert place.access.tokens[row.token].revoked == NOW  # when it ended does not move
    place.access.flush(NOW + 60)
    newest = [kept for kept in place.kept if isinstance(kept, TokenRow) and kept.token == row.token][-1]
    assert newest.revoked == NOW


def test_pilots_come_back_after_their_enrolment_expired_but_not_after_it_was_revoked(place: Place) -> None:
    row, _ = place.mint("anna", kind=ENROL, expires=60)
    assert place.access.is_live(row.token)
    place.access.revoke(place.caller("anna"), Revoke([row.token]), NOW)
    assert not place.access.is_live(row.token) and not place.access.is_live("t0")


# --- people
def test_the_last_administrator_stays_one(place: Place) -> None:
    refused(lambda: place.access.add_user(NewUser("boss"), NOW), Conflict, "last_admin")
    assert place.access.add_user(NewUser("boss", "phys", "admin"), NOW).grp == "phys"
    place.access.add_user(NewUser("anna", "", "admin"), NOW)
    assert place.access.add_user(NewUser("boss", "", "user"), NOW).role == "user"
    refused(lambda: place.access.add_user(NewUser("anna", "", "manager"), NOW), Conflict, "last_admin")


def test_people_and_groups_are_checked(place: Place) -> None:
    refused(lambda: place.access.add_user(NewUser("../x"), NOW), BadInput, "bad_name")
    refused(lambda: place.access.add_user(NewUser("root"), NOW), BadInput, "bad_name")
    assert place.access.add_user(NewUser("root", "", "admin"), NOW, trusted=True).name == "root"
    refused(lambda: place.access.add_user(NewUser("new", "", "king"), NOW), BadInput, "range")
    refused(lambda: place.access.add_user(NewUser("new", "nowhere"), NOW), NotFound, "unknown_group")
    refused(lambda: place.access.add_group(NewGroup("a,b"), NOW), BadInput, "bad_name")
    assert "new" not in place.access.users
    assert place.access.add_group(NewGroup("phys"), NOW + 5) == GroupRow("phys", NOW)
    assert place.access.add_user(NewUser("anna", "chem"), NOW + 5) == UserRow("anna", "chem", "user", NOW)


def test_there_is_a_bound_on_people(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_USERS", 5)
    refused(lambda: place.access.add_user(NewUser("sixth"), NOW), Conflict, "too_many")
    assert place.access.add_user(NewUser("anna", "chem"), NOW).grp == "chem"


# --- the audit
def test_an_act_is_one_line_without_secrets(place: Place) -> None:
    row, secret = place.mint("anna")
    caller = place.check(secret)
    place.access.note(caller, "POST /v1/cancel", f"r1 {secret} \x1b[31m" + "x" * 500, "ok", NOW)
    (line,) = place.lines
    assert (line.token, line.owner, line.address, line.what, line.outcome, line.times) == (
        row.token, "anna", "10.0.0.9", "POST /v1/cancel", "ok", 1,
    )  # fmt: skip
    assert secret not in line.about and "\x1b" not in line.about and len(line.about) < 100
    place.access.note(None, "POST /v1/cancel", "", "401", NOW, "10.0.0.7")
    assert (place.lines[-1].owner, place.lines[-1].address) == ("", "10.0.0.7")


def test_uses_of_one_kind_are_one_line_a_minute(place: Place) -> None:
    caller = place.caller("anna")
    place.access.flush(NOW)
    for at in range(100):
        place.access.count(caller, "GET /v1/runs", "ok", NOW + at / 10)
    place.access.count(caller, "GET /v1/runs", "404", NOW + 10)
    place.access.count(None, "GET /v1/runs", "401", NOW + 10, "10.0.0.7")
    assert place.lines == []
    place.access.count(place.caller("olaf"), "GET /v1/runs", "ok", NOW + COUNT_FOR + 1)
    assert sorted((line.owner, line.outcome, line.address, line.times) for line in place.lines) == [
        ("", "401", "10.0.0.7", 1),
        ("anna", "404", "10.0.0.1", 1),
        ("anna", "ok", "10.0.0.1", 100),
        ("olaf", "ok", "10.0.0.1", 1),
    ]
    seqs = [line.seq for line in place.lines]
    assert seqs == list(range(seqs[0], seqs[0] + 4))


def test_an_attack_from_many_addresses_fills_neither_memory_nor_audit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_TOKENS", 10)
    place.access.flush(NOW)
    for at in range(1_000):
        place.access.count(None, "GET /v1/runs", "401", NOW, f"10.0.{at // 250}.{at % 250}")
    place.access.flush(NOW)
    assert len(place.lines) == 11
    assert sum(line.times for line in place.lines) == 1_000  # none is forgotten, only whence it came
    assert [line.times for line in place.lines if line.address == "many"] == [990]


def test_a_flush_writes_last_uses_once(place: Place) -> None:
    row, secret = place.mint("anna")
    place.access.check(secret, NOW + 5, "10.0.0.2")
    place.access.check(secret, NOW + 6, "10.0.0.3")
    assert place.access.tokens[row.token].used == NOW + 6
    before = len(place.kept)
    place.access.flush(NOW + 7)
    (written,) = place.kept[before:]
    assert isinstance(written, TokenRow) and (written.used, written.address) == (NOW + 6, "10.0.0.3")
    place.access.flush(NOW + 8)
    assert len(place.kept) == before + 1  # nothing new: nothing is written


def test_a_new_server_goes_on_counting_where_the_last_one_ended() -> None:
    kept: list[PeopleRow] = []
    access = Authentication(PeopleRows([], [], [], [], 42), kept.extend)
    access.note(None, "x", "", "ok", NOW)
    access.count(None, "y", "ok", NOW)
    access.flush(NOW)
    assert [row.seq for row in kept if isinstance(row, AuditRow)] == [42, 43]


# --- whose names sites have
def test_the_first_enrolment_for_a_site_makes_its_name_its_holders_and_others_are_refused(place: Place) -> None:
    place.mint("anna", kind="enrol", site="box")
    place.mint("anna", kind="enrol", site="box")
    refused(lambda: place.mint("olaf", kind="enrol", site="box"), Refused, "site_taken")
    refused(lambda: place.mint("mona", kind="enrol", group="phys", site="box"), Refused, "site_taken")
    refused(lambda: place.mint("olaf", kind="enrol", site="box.inner"), Refused, "site_taken")
    assert "anna" not in str(_caught(lambda: place.mint("olaf", kind="enrol", site="box"))), "nobody learns whose it is"
    place.mint("mona", kind="enrol", group="phys", site="cluster")
    refused(lambda: place.mint("anna", kind="enrol", site="cluster"), Refused, "site_taken")
    for name in ("", "local"):
        place.mint("anna", kind="enrol", site=name)
        place.mint("olaf", kind="enrol", site=name)


def test_an_administrator_shares_a_sites_name_gives_it_away_and_frees_it(place: Place) -> None:
    place.mint("anna", kind="enrol", site="box")
    place.mint("boss", kind="enrol", owner="olaf", site="box")
    place.mint("olaf", kind="enrol", site="box")
    assert place.access.sites["box"].holders == "anna olaf"
    place.access.share_site(SiteHolders("box", ["@chem"], only=True), NOW)
    place.access.check_site("box", "@chem")
    refused(lambda: place.access.check_site("box", "anna"), Refused, "site_taken")
    place.access.share_site(SiteHolders("box", ["*"]), NOW)
    place.access.check_site("box", "anna")
    place.access.share_site(SiteHolders("box", [], only=True), NOW)
    place.mint("mike", kind="enrol", site="box")
    refused(lambda: place.access.check_site("box", "anna"), Refused, "site_taken")
    refused(lambda: place.access.share_site(SiteHolders("box", ["@none"]), NOW), NotFound, "unknown_group")
    refused(lambda: place.access.share_site(SiteHolders("box", ["none"]), NOW), NotFound, "unknown_user")


def test_names_of_sites_are_bounded_for_each_holder_and_an_administrator_gives_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One owner with a thousand tokens after another took all names that there may be."""
    monkeypatch.setattr(limits, "MAX_SITES_OWNER", 2)
    for site in ("a", "b", "a"):
        place.mint("anna", kind="enrol", site=site)
    tokens = len(place.access.tokens)
    refused(lambda: place.mint("anna", kind="enrol", site="c"), Conflict, "too_many")
    refused(lambda: place.mint("boss", kind="enrol", owner="anna", site="c"), Conflict, "too_many")
    assert len(place.access.tokens) == tokens and "c" not in place.access.sites
    place.mint("anna", kind="enrol", site="b")
    place.mint("anna", kind="enrol")
    place.mint("olaf", kind="enrol", site="c")
    place.mint("mona", kind="enrol", group="phys", site="d")
    place.access.share_site(SiteHolders("c", ["anna"]), NOW)
    place.mint("anna", kind="enrol", site="c")
    place.access.share_site(SiteHolders("a", ["olaf"], only=True), NOW)
    place.access.share_site(SiteHolders("b", ["olaf"], only=True), NOW)
    place.mint("anna", kind="enrol", site="e")


def test_whose_a_sites_name_is_outlives_a_restart(place: Place) -> None:
    place.mint("anna", kind="enrol", site="box")
    rows = [row for row in place.kept if isinstance(row, SiteRow)]
    again = Authentication(PeopleRows([], [], [], rows, 1), lambda rows: None)
    refused(lambda: again.check_site("box", "olaf"), Refused, "site_taken")
    again.check_site("box", "anna")


def _caught(do: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        do()
    return caught.value


# --- what is made with a token
def made_with(place: Place, secret: str, **asked: Any) -> tuple[TokenRow, str]:
    return place.mint(place.check(secret), **asked)


def test_revoking_a_token_ends_all_that_were_made_with_it(place: Place) -> None:
    """A stolen token that made itself another one seen_dead its own revocation."""
    first, stolen = place.mint("boss", owner="anna")
    child, second = made_with(place, stolen)
    grandchild, _ = made_with(place, second, kind=ENROL, site="box")
    other, _ = place.mint("boss", owner="anna")
    ended = place.access.revoke(place.caller("boss"), Revoke(tokens=[first.token]), NOW + 1)
    assert set(ended) == {first.token, child.token, grandchild.token}
    refused(lambda: place.check(second), Refused, "token_revoked")
    assert not place.access.is_live(grandchild.token) and place.access.is_live(other.token)


def test_a_token_made_with_one_that_is_forgotten_by_now_still_ends_with_the_first(place: Place) -> None:
    first, secret = place.mint("boss", scopes=["admin", "submit"], expires="80d")
    _, middle = made_with(place, secret, scopes=["admin", "submit"], expires="1d")
    last, _ = made_with(place, middle, expires="60d")
    place.access._forget(NOW + 2 * 86_400.0)
    assert len(place.access.tokens) == 2
    assert last.token in place.access.revoke(place.caller("boss"), Revoke(tokens=[first.token]), NOW + 1)


def test_what_was_made_with_a_token_that_is_forgotten_ends_by_its_name_for_an_administrator(place: Place) -> None:
    """After a restart an expired token is not known, while those that it made live on."""
    first, secret = place.mint("boss", scopes=["admin", "submit"], expires="1d")
    child, own = made_with(place, secret, owner="anna", expires="20d")
    place.access._forget(NOW + 2 * 86_400.0)
    asked = Revoke(tokens=[first.token])
    refused(lambda: place.access.revoke(place.caller("anna"), asked, NOW), NotFound, "unknown_token")
    refused(
        lambda: place.access.revoke(place.caller("boss"), Revoke([first.token, "t0"]), NOW), NotFound, "unknown_token"
    )
    assert place.check(own).owner == "anna"
    assert place.access.revoke(place.caller("boss"), asked, NOW) == [child.token]
    refused(lambda: place.check(own), Refused, "token_revoked")


def test_a_revocation_that_is_repeated_knows_whose_pilots_should_be_gone(place: Place) -> None:
    """A defect may come between the tokens and their pilots; by user, site or all none was left to be found."""
    rows = everyones(place)
    _, parent = place.mint("boss", scopes=["admin", "submit"])
    child, _ = made_with(place, parent, kind=ENROL, owner="olaf", site="box")
    for asked in (Revoke(site="box"), Revoke(user="boss"), Revoke(all=True)):
        ended = place.access.revoke(place.caller("boss"), asked, NOW)
        assert set(ended) <= set(place.access.ended(asked))
        assert set(ended).isdisjoint(place.access.revoke(place.caller("boss"), asked, NOW))
    assert set(place.access.ended(Revoke(user="anna"))) == {rows["anna"].token, rows["anna box"].token}
    assert child.token in place.access.ended(Revoke(user="boss")), "made with one of theirs"
    assert place.access.ended(Revoke(tokens=[child.token])) == []


def test_whoever_revokes_a_users_tokens_keeps_their_own_though_it_was_made_with_one(place: Place) -> None:
    first, secret = place.mint("boss", scopes=["admin", "submit"])
    mine, own = made_with(place, secret, scopes=["admin", "submit"])
    place.access.revoke(place.check(own), Revoke(user="boss"), NOW)
    assert place.check(own).token == mine.token and place.access.tokens[first.token].revoked is not None


def test_no_token_outlives_the_one_it_was_made_with_unless_an_administrator_makes_it(place: Place) -> None:
    _, short = place.mint("boss", owner="anna", expires="2d")
    row, _ = made_with(place, short)
    assert row.expires == NOW + 2 * 86_400.0  # the default would be longer
    refused(lambda: made_with(place, short, expires="3d"), BadInput, "range")
    _, admin = place.mint("boss", scopes=["admin", "submit"], expires="2d")
    assert made_with(place, admin, owner="anna", expires="30d")[0].expires == NOW + 30 * 86_400.0


def test_what_nobody_may_give_is_said_before_how_long_it_would_live(place: Place) -> None:
    _, short = place.mint("boss", owner="anna", expires="2d")
    refused(lambda: made_with(place, short, scopes=["admin"], expires="3d"), Refused, "forbidden")


def test_tokens_are_bounded_for_each_owner_and_dead_ones_free_their_place(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_TOKENS_OWNER", 3)
    first, *_ = [place.mint("anna")[0], place.mint("anna", kind=ENROL)[0], place.mint("anna", expires=10)[0]]
    refused(lambda: place.mint("anna"), Conflict, "too_many")
    refused(lambda: place.mint("boss", owner="anna"), Conflict, "too_many")
    place.mint("mike")  # nobody else's room
    place.access.revoke(place.caller("anna"), Revoke(tokens=[first.token]), NOW)
    place.mint("anna")
    refused(lambda: place.mint("anna"), Conflict, "too_many")
    place.mint("anna", now=NOW + 11)


def test_revoked_tokens_make_room_for_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stayed until their time was over: whoever made and revoked enough shut everybody out."""
    monkeypatch.setattr(limits, "MAX_TOKENS", 3)
    rows = [place.mint("anna")[0].token for _ in range(3)]
    refused(lambda: place.mint("mike"), Conflict, "too_many")
    place.access.revoke(place.caller("anna"), Revoke(tokens=rows), NOW)
    place.mint("mike")


def test_an_endless_row_of_tokens_is_refused(place: Place) -> None:
    _, secret = place.mint("boss", owner="anna")
    for _ in range(MAX_LINEAGE - 1):
        _, secret = made_with(place, secret)
    refused(lambda: made_with(place, secret), Conflict, "too_many")


def test_a_ticket_goes_with_an_enrolment_of_one_pilot_and_is_known_by_it(place: Place) -> None:
    """[ADR 0065]."""
    for asked in ({"kind": SUBMIT}, {"kind": ENROL}, {"kind": ENROL, "uses": 2}):
        refused(lambda asked=asked: place.mint("anna", ticket=True, **asked), BadInput, "range")  # type: ignore[misc]
    row, _ = place.mint("anna", kind=ENROL, uses=1, site="box", ticket=True)
    many, _ = place.mint("anna", kind=ENROL, site="box")
    assert place.access.ticket_holders([row.token, many.token, "t0"]) == (("box", "anna", row.token),)
    assert place.access.ticket_holders() == ()
    place.access.revoke(place.caller("anna"), Revoke([row.token, many.token]), NOW)
    assert place.access.ticket_holders() == (("box", "anna", row.token),)


def test_a_revoked_ticket_stays_shut_out_over_a_restart_and_until_its_certificate_is_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, secret = place.mint("anna", kind=ENROL, uses=1, site="box", ticket=True)
    place.access.revoke(place.caller("anna"), Revoke([row.token]), NOW)
    with contextlib.closing(Database.open(":memory:", durability="normal")) as database:
        database.apply(place.kept)
        again = Authentication(database.people(NOW + 1), place.kept.extend)
        assert again.ticket_holders() == (("box", "anna", row.token),)
        refused(lambda: again.check(secret, NOW + 1, "10.0.0.9"), Refused, "token_revoked")
        assert Authentication(database.people(row.expires + TICKET_MORE), place.kept.extend).ticket_holders() == ()
    monkeypatch.setattr(limits, "MAX_TOKENS", 1)
    place.mint("mike", now=row.expires + TICKET_MORE)
    assert place.access.ticket_holders() == ()


def test_of_many_revoked_tickets_the_newest_are_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TOKENS", 5)
    monkeypatch.setattr(limits, "MAX_TOKENS_OWNER", 3)
    rows = [place.mint("anna", kind=ENROL, uses=1, site="box", now=NOW + at)[0].token for at in range(3)]
    place.access.revoke(place.caller("anna"), Revoke(rows), NOW + 3)
    more = [place.mint("anna", kind=ENROL, uses=1, site="box", now=NOW + 4 + at)[0].token for at in range(2)]
    place.access.revoke(place.caller("anna"), Revoke(more), NOW + 6)
    place.mint("mike", now=NOW + 7)
    assert {name for *_, name in place.access.ticket_holders()} == {rows[2], *more}
