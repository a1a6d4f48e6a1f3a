"""Whether there is a site that tasks ask for: a name that nobody knows would wait for ever, and say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.client.client import Client
from shoal.client.config import Target
from shoal.client.connection import embedded_server
from shoal.client.connection.provisioner_process import folder_of, site_names
from shoal.model.errors import Refused, echo
from shoal.wire.did_you_mean import did_you_mean

LOCAL = "local"  # the server's own machine


def check_sites(target: Target, connect: Callable[[], Client], wanted: Iterable[str]) -> None:
    """Refuse what asks only for sites that nobody knows. Each of `wanted` is a task's field: names with commas between."""
    own = {LOCAL, *site_names(folder_of(target.url, embedded_server.state_dir()))}
    fields = [[name.strip() for name in text.split(",") if name.strip()] for text in wanted]
    unknown = [names for names in fields if names and not own & set(names)]
    if not unknown:
        return
    with connect() as client:
        known = own | {str(row["site"]) for row in client.demand()["pilots"]}
        if target.url is not None:  # others may have pilots there, which are not shown
            known |= {str(row["name"]) for row in client.sites()["sites"]}
    for names in unknown:
        if not known & set(names):
            raise Refused(
                f"there is no site {echo(names[0])!r}, so nothing would ever run there", code="unknown_site", field="site",
                hint=f"{did_you_mean(names[0], sorted(known))}; `shoal site add NAME URL` adds one",
            )  # fmt: skip
