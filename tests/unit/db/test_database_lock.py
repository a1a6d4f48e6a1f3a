"""A database is refused on a network file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.db.database_lock import check_location
from shoal.model.errors import Refused


@pytest.mark.parametrize("kind", ["nfs", "smb3", "smbfs", "beegfs", "ceph", "afs", "glusterfs", "fuse.glusterfs"])
def test_a_database_on_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    line = f"22 1 0:1 / {tmp_path.resolve()} rw - {kind} server:/x rw"
    with pytest.raises(Refused) as caught:
        check_location(str(tmp_path / "shoal.db"), line)
    assert caught.value.code == "network_fs"
    assert f"({kind})" in caught.value.line


def test_a_link_to_a_network_file_system_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    line = f"22 1 0:1 / {tmp_path.resolve()}/far rw - nfs server:/x rw"
    with pytest.raises(Refused):
        check_location(str(tmp_path / "near" / "shoal.db"), line)
    check_location(str(tmp_path / "shoal.db"), line)
