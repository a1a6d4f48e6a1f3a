"""Addresses that were left at a site: found by pilots that lost the server, and only where nobody else can write."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.model import credentials
from shoal.pilot.uplink.left_addresses import LeftAddresses
from shoal.pilot.uplink.left_files import folder_in
from shoal.wire.join import Join, address_file

TOKEN = credentials.make(credentials.ENROL, "e" * 43)
JOIN = Join(("box:1",), "a" * 64, TOKEN)
RELAY = f"relay:login:9:{credentials.RELAY_PREFIX}{'k' * 43}"


def of(tmp_path: Path, join: Join = JOIN, folder: str = "") -> LeftAddresses:
    made = LeftAddresses(join, folder, str(tmp_path))
    made.start()
    return made


def seen(tmp_path: Path, join: Join = JOIN, folder: str = "") -> tuple[str, ...]:
    made = of(tmp_path, join, folder)
    made.look()
    made.wait(30.0)
    return made.found


def left_by(tmp_path: Path, *addresses: str) -> Path:
    """The file after pilots have left these."""
    for address in addresses:
        made = of(tmp_path)
        made.leave(address)
        made.wait(30.0)
    return Path(folder_in(str(tmp_path))) / address_file(JOIN.fingerprint)


def test_what_one_pilot_leaves_another_finds_without_its_own_addresses_and_no_token_is_in_it(tmp_path: Path) -> None:
    path = left_by(tmp_path, "box:1", "box:2", RELAY, "box:2")
    assert seen(tmp_path) == (RELAY, "box:2")
    assert seen(tmp_path, JOIN.__class__(("box:3",), "b" * 64, TOKEN)) == (), "that of another server"
    assert TOKEN not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


def test_the_newest_of_many_are_kept(tmp_path: Path) -> None:
    left_by(tmp_path, *(f"box:{number}" for number in range(1, 12)))
    assert seen(tmp_path) == tuple(f"box:{number}" for number in range(11, 3, -1))


def test_a_provisioner_leaves_them_in_a_directory_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o700)
    (folder / address_file(JOIN.fingerprint)).write_text(f"box:1,box:7#{'a' * 64}\n")
    assert seen(tmp_path, folder=str(folder)) == ("box:7",)
    assert seen(tmp_path / "none") == ()


@pytest.mark.parametrize(
    "text",
    ["", "#", f"box:2#{'b' * 64}", "box:2", f"unix:/run/x#{'a' * 64}", f"box:99999#{'a' * 64}", "\xff" * 20_000,
     f"box:2#{'a' * 64}#{TOKEN}", ",".join(["box:2"] * 9) + "#" + "a" * 64],
)  # fmt: skip
def test_what_is_no_list_of_addresses_of_this_server_is_nothing(text: str, tmp_path: Path) -> None:
    left_by(tmp_path, "box:2").write_text(text)
    assert seen(tmp_path) == ()


def test_what_others_may_change_is_not_read_and_not_written(tmp_path: Path) -> None:
    path = left_by(tmp_path, "box:2")
    path.chmod(0o620)
    assert seen(tmp_path) == ()
    path.chmod(0o600)
    path.parent.chmod(0o777)
    assert seen(tmp_path) == ()
    assert seen(tmp_path, folder=str(path.parent)) == ()
    left_by(tmp_path, "box:3")
    assert "box:3" not in path.read_text()
    path.parent.chmod(0o700)
    other = path.rename(tmp_path / "other")
    path.symlink_to(other)
    assert seen(tmp_path) == ()
