"""Addresses of sites."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.provision.site_url import SiteUrl, parse


@pytest.mark.parametrize(
    ("url", "wanted", "target"),
    [
        ("slurm://", SiteUrl("slurm"), ""),
        ("local://", SiteUrl("local"), ""),
        ("ssh://box", SiteUrl("local", "box"), "box"),
        ("ssh://box/", SiteUrl("local", "box"), "box"),
        ("slurm+ssh://anna@hpc.org:2222", SiteUrl("slurm", "hpc.org", "anna", 2222), "anna@hpc.org"),
        ("sge+ssh://[fe80::1%eth0]:22", SiteUrl("sge", "fe80::1%eth0", "", 22), "fe80::1%eth0"),
    ],
)  # fmt: skip
def test_addresses_are_taken_apart(url: str, wanted: SiteUrl, target: str) -> None:
    assert parse(url) == wanted
    assert parse(url).target == target
    assert parse(str(parse(url))) == wanted


@pytest.mark.parametrize(
    "url",
    [
        "", "slurm", "slurm:", "SLURM://", "://x", "slurm+telnet://x", "slurm://login", "ssh://", "slurm+ssh://", "ssh://-oProxyCommand=x",
        "ssh://a@-x", "ssh://-l@x", "ssh://a b", "ssh://a\nb", "ssh://a/b", "ssh://a?b", "ssh://a#b", "ssh://a:0", "ssh://a:99999",
        "ssh://a:", "ssh://a:x", "ssh://[::1", "ssh://[x y]", "ssh://$(x)", "ssh://a;b", "ssh://a`b`", "ssh://@x",
        "ssh://a@b@c d",
        "ssh://x\0", "ssh://ä",
    ],
)  # fmt: skip
def test_hostile_or_wrong_addresses_are_refused_with_a_hint(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(url)
    assert caught.value.code == "bad_site_url"
    assert caught.value.hint


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(BadInput) as caught:
        parse("ssh://anna:secret@box")
    assert "secret" not in str(caught.value)
    assert "keys" in caught.value.hint
