"""Where members of a mesh are reached, as they left it at their site."""

from __future__ import annotations

from pathlib import Path

from shoal.dht.routing_table import Contact
from shoal.pilot.mesh.left_members import KEPT, LeftMembers
from shoal.pilot.uplink.left_files import folder_in

FINGERPRINT = "a" * 64


def test_members_leave_themselves_the_newest_first_and_each_once(tmp_path: Path) -> None:
    left = LeftMembers(FINGERPRINT, "", str(tmp_path))
    for number in range(KEPT + 3):
        left.leave("hpc/anna", Contact(number, f"host{number}:7"))
    left.leave("hpc/anna", Contact(10, "elsewhere:7"))
    left.leave("hpc/anna", Contact(99, ""))
    found = LeftMembers(FINGERPRINT, str(tmp_path / "none"), str(tmp_path)).found("hpc/anna")
    assert found[:2] == [Contact(10, "elsewhere:7"), Contact(KEPT + 2, f"host{KEPT + 2}:7")]
    assert len(found) == KEPT == len({one.id for one in found})
    assert left.found("hpc/bert") == [] == LeftMembers("b" * 64, "", str(tmp_path)).found("hpc/anna")


def test_without_a_shared_directory_that_of_the_provisioner_is_taken_and_without_any_nothing_is_left(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "site"
    folder.mkdir(mode=0o700)
    LeftMembers(FINGERPRINT, str(folder), "").leave("hpc/anna", Contact(1, "host:7"))
    assert LeftMembers(FINGERPRINT, str(folder), str(tmp_path)).found("hpc/anna") == [Contact(1, "host:7")]
    LeftMembers(FINGERPRINT, "", "").leave("hpc/anna", Contact(1, "host:7"))


def test_what_is_no_line_of_a_member_is_nothing(tmp_path: Path) -> None:
    left = LeftMembers(FINGERPRINT, "", str(tmp_path))
    left.leave("hpc/anna", Contact(1, "host:7"))
    (file,) = Path(folder_in(str(tmp_path))).iterdir()
    file.write_text(f"x\n{1:064x}\n{2:064x} host:7\n{3:063x} host:7\n{4:064x} a b\n")
    assert left.found("hpc/anna") == [Contact(2, "host:7")]
