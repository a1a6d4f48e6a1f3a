"""What the pilots of a site are told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.model.errors import BadInput
from shoal.pilot.main import parse
from shoal.provisioner.probe import check_config
from shoal.provisioner.site import pilot_options
from shoal.provisioner.site_file import SiteConfig, SiteFile

RULES = ["data/=/lustre/data/", "=root://store.example.org//phys/"]


def test_rules_of_names_are_kept_with_the_site_and_reach_its_pilots(tmp_path: Path) -> None:
    """[CMS C7]."""
    file = SiteFile(tmp_path)
    with file.changing() as sites:
        sites["hpc"] = SiteConfig("hpc", "local://", storage=RULES, mesh="off", mesh_port="9700-9799", idle_end=30.0)
    config = SiteFile(tmp_path).get("hpc")
    check_config(config)
    found = parse(["--join-file", "x", *pilot_options(config)])
    assert (found.storage, found.mesh, found.idle_end) == (RULES, "off", 30.0)
    assert pilot_options(SiteConfig("box", "local://")) == ("--idle-end", "60")


@pytest.mark.parametrize("rule", ["data", "data/=", "data/=relative", "data/=ftp://host/"])
def test_what_is_no_rule_is_refused_with_an_example(rule: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_config(SiteConfig("hpc", "local://", storage=[rule]))
    assert caught.value.code == "bad_storage" and "data/=/lustre" in str(caught.value.hint)
