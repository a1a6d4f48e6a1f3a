"""Secrets by their looks, and how they are kept out of words [security S1, S12]."""

from __future__ import annotations

import hashlib
import secrets

import pytest

from shoal.model.credentials import ENROL, LONGEST, PREFIXES, SESSION, SUBMIT, digest, kind_of, make, redact

KEY = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("kind", [SUBMIT, ENROL, SESSION])
def test_a_secret_is_known_by_its_kind(kind: str) -> None:
    secret = make(kind, secrets.token_urlsafe(32))
    assert kind_of(secret) == kind
    assert len(secret) == len(PREFIXES[kind]) + 43  # 256 bits
    assert digest(secret) == hashlib.sha256(secret.encode()).hexdigest()


def test_what_is_cut_stretched_or_dressed_up_is_none_of_ours() -> None:
    secret = make(SUBMIT, "a" * 43)
    wrong = [
        "", secret[:-1], secret + "a", f"{secret}\n", f" {secret}", f"{secret} ", secret.upper(), secret.replace("sub", "adm"),
        secret[:-1] + "=", secret[:-1] + "é", secret[:20] + "\n" + secret[21:], secret[10:], "shoal_sub_", "Bearer " + secret,
    ]  # fmt: skip
    assert [kind_of(text) for text in wrong] == [None] * len(wrong)
    assert len({digest(text) for text in [secret, *wrong]}) == len(wrong) + 1


def test_a_digest_can_be_taken_of_any_text() -> None:
    assert len(digest("\udc80 lone surrogate \0")) == 64


@pytest.mark.parametrize("kind", [SUBMIT, ENROL, SESSION])
def test_no_secret_is_left_in_a_text_not_even_a_part(kind: str) -> None:
    secret = make(kind, secrets.token_urlsafe(32))
    for text in (
        secret, f"Authorization: Bearer {secret}", f"127.0.0.1:1#{'0' * 64}#{secret}", f"x{secret}{secret}y", f'"{secret[:20]}"',
        f"{secret}\n{secret}", f"token={secret}&x=1", f"<{secret}>", secret[:-20] + "...",
    ):  # fmt: skip
        said = redact(text)
        assert secret[len(PREFIXES[kind]) :][:8] not in said
        assert PREFIXES[kind] in said  # which kind it was helps whoever reads the log
    assert redact(f"a {secret} b") == f"a {PREFIXES[kind]}[...] b"


def test_no_key_is_left_in_a_text() -> None:
    for text in (KEY, f"before {KEY} after", KEY.replace("PRIVATE", "EC PRIVATE"), KEY[:60], f"{KEY}{KEY}"):
        assert "MIGHAgEAMBMGByqGSM49" not in redact(text)
    assert redact(f"before {KEY}after {KEY}") == "before [key]\nafter [key]\n"


def test_other_text_stays_as_it_is() -> None:
    for text in (
        "",
        "shoal_sub_",
        "shoal_submit",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        "a" * 43,
    ):
        assert redact(text) == text


def test_every_kind_has_an_end() -> None:
    assert set(LONGEST) == set(PREFIXES)
    assert {kind: seconds / 86_400 for kind, seconds in LONGEST.items()} == {SUBMIT: 90, ENROL: 7, SESSION: 1 / 24}
    assert len(set(PREFIXES.values())) == len(PREFIXES)
