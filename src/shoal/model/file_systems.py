"""File systems by their names: which one a path is on, and which are shared between hosts."""

from __future__ import annotations

import re

# SQLite's WAL needs memory shared between all processes and locks that hold; between hosts there is neither.
# A FUSE file system of the same kin (fuse.sshfs, fuse.glusterfs) is known by the name behind its dot.
NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "sshfs", "rclone", "s3fs"),
        *("lustre", "gpfs", "beegfs", "fhgfs", "ceph", "ceph-fuse", "glusterfs", "panfs", "pvfs2", "orangefs"),
        *("wekafs", "mfs", "moosefs", "juicefs"),
    )
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: str, mountinfo: str) -> str:
    """The type of the file system an absolute path is on, by the text of /proc/self/mountinfo; empty if unknown."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not dash or len(fields) < 5:
            continue
        # Blanks in a mount point are written as \040.
        mount = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4]).rstrip("/")
        inside = path == mount or path.startswith(mount + "/")
        # Of two mounts on one point the later one covers the earlier.
        if inside and len(mount) >= best:
            best, kind = len(mount), rest[0]
    return kind


def is_network(kind: str) -> bool:
    """Is this type of file system one that other hosts write too?"""
    return kind.removeprefix("fuse.") in NETWORK
