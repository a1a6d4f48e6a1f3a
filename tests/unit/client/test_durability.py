"""How durable the embedded server is, by its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.client.config import durability
from shoal.model.errors import BadInput


def write(place: Path, text: str) -> dict[str, str]:
    (place / "shoal").mkdir(parents=True)
    (place / "shoal" / "config.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(place), "HOME": str(place)}


def test_without_a_word_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert durability({"HOME": str(tmp_path)}) == ""


@pytest.mark.parametrize("word", ["full", "normal"])
def test_a_file_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert durability(write(tmp_path / "c", f'durability = "{word}"\n')) == word


def test_another_word_is_refused_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        durability(write(tmp_path / "c", '# mine\ndurability = "fast"\n'))
    assert "config.toml:2" in caught.value.line and "full or normal" in caught.value.line
