from __future__ import annotations

from shoal.dht.peers import PeerName, mesh_uri, parse_mesh_uri

ID = "0" * 63 + "a"


def test_the_uri_of_a_certificate_names_mesh_and_id() -> None:
    assert parse_mesh_uri(mesh_uri("uni", "%40phys", ID)) == PeerName("uni/%40phys", ID)


def test_any_other_uri_names_nobody() -> None:
    for uri in (
        "", "https://example.org", f"shoal://mesh/uni/{ID}", f"shoal://mesh/uni/a/b/{ID}", f"shoal://mesh/uni/anna/{ID[1:]}",
        f"shoal://mesh/uni/anna/{ID.upper()}", f"shoal://mesh//anna/{ID}", f"shoal://mesh/uni/anna/{ID}\n",
    ):  # fmt: skip
        assert parse_mesh_uri(uri) is None, uri
