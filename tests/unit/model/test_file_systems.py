"""Which file system a path is on, by what /proc/self/mountinfo says."""

from __future__ import annotations

import pytest

from shoal.model.file_systems import file_system, is_network

MOUNTINFO = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:5 - proc proc rw
30 22 0:40 / /net rw,relatime shared:20 - nfs4 filer:/export/net rw,vers=4.2,addr=10.0.0.1
31 30 254:16 / /net/local rw,relatime - xfs /dev/vdb rw
32 22 0:41 / /mnt/my\040disk rw - cifs //box/share rw
33 22 0:42 / /srv rw master:1 shared:7 - lustre mds@tcp:/srv rw
34 22 0:43 / /gpfs/fs1 rw - gpfs fs1 rw
35 22 0:44 / /auto rw - autofs systemd-1 rw,fd=40
36 35 0:45 / /auto rw - nfs filer:/auto rw
37 22 0:46 / /remote rw - fuse.sshfs ann@host: rw
38 22 0:47 / /wsl rw - 9p drvfs rw
39 22 0:48 / /tmp rw - tmpfs tmpfs rw
40 22 0:49 / /box rw - overlay overlay rw,lowerdir=/a - b
41 22 0:50 / /crypt rw - fuse.gocryptfs x rw
this line is none
""".strip()


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/", "ext4", False),
        ("/var/lib/shoal", "ext4", False),
        ("/net", "nfs4", True),
        ("/net/ann/.local/state", "nfs4", True),
        ("/net/local/ann", "xfs", False),
        ("/network", "ext4", False),
        ("/mnt/my disk/x", "cifs", True),
        ("/srv/ann", "lustre", True),
        ("/gpfs/fs1/x", "gpfs", True),
        ("/gpfs", "ext4", False),
        ("/auto/ann", "nfs", True),
        ("/remote/x", "fuse.sshfs", True),
        ("/wsl/c", "9p", True),
        ("/tmp/x", "tmpfs", False),
        ("/box/x", "overlay", False),
        ("/crypt/x", "fuse.gocryptfs", False),
    ],
)
def test_the_deepest_and_latest_mount_counts(path: str, kind: str, network: bool) -> None:
    assert file_system(path, MOUNTINFO) == kind
    assert is_network(kind) == network


def test_a_path_on_no_known_mount_is_no_network() -> None:
    assert file_system("/x", "") == ""
    assert not is_network("")
