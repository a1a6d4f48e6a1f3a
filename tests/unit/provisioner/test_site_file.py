"""The file of a person's sites: the sites, the word in the names of their allocations, and the one policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.model.errors import Refused
from shoal.provisioner.site_file import SiteConfig, SiteFile
from shoal.sched.demand import DemandRule


def test_the_own_policy_is_the_default(tmp_path: Path) -> None:
    assert SiteFile(tmp_path).rule() == DemandRule("shoal")


def test_policy_sites_and_word_are_kept_when_one_of_them_changes(tmp_path: Path) -> None:
    file = SiteFile(tmp_path)
    file.set_rule(DemandRule("hybrid", pool=7, over=1.25))
    word = file.word
    with file.changing() as sites:
        sites["a"] = SiteConfig("a", "local://")
    assert file.rule() == DemandRule("hybrid", pool=7, over=1.25) and file.word == word
    before = file.stamp()
    file.set_rule(DemandRule("simple"))
    assert file.rule() == DemandRule("simple") and list(file.read()) == ["a"] and file.word == word
    assert file.stamp() != before, "the provisioner reads it again"
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("provision", [{"policy": "best"}, {"over": 99.0}, {"speed": 1}, {"over": "much"}])
def test_a_policy_that_somebody_broke_is_refused_with_the_way_to_mend_it(
    tmp_path: Path, provision: dict[str, object]
) -> None:
    file = SiteFile(tmp_path)
    file.path.write_text(json.dumps({"word": "w", "sites": [], "provision": provision}))
    with pytest.raises(Refused, match="has no valid policy") as error:
        file.rule()
    assert "shoal site policy" in error.value.hint
