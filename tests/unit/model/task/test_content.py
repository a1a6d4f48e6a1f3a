from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_CONTENT
from shoal.model.task.content import Content, parse_content, read_content

DIGEST = f"sha256:{'a' * 64}"


def test_a_content_has_one_text() -> None:
    assert parse_content(f"{DIGEST} 755") == Content(DIGEST, 0o755)
    assert Content(DIGEST, 0o44).text == f"{DIGEST} 044"
    assert read_content({"in/a": f"{DIGEST} 644"}, "content") == {"in/a": f"{DIGEST} 644"}


@pytest.mark.parametrize(
    "text",
    ["", DIGEST, f"{DIGEST} ", f"{DIGEST} 7555", f"{DIGEST} 8aa", f"{DIGEST.upper()} 644", f"md5:{'a' * 32} 644"],
)
def test_what_is_none_is_refused(text: str) -> None:
    """[input E49]."""
    with pytest.raises(BadInput):
        read_content({"in": text}, "content")


def test_too_many_files_are_refused() -> None:
    with pytest.raises(BadInput, match="20,000"):
        read_content({str(at): f"{DIGEST} 644" for at in range(MAX_CONTENT + 1)}, "content")
    with pytest.raises(BadInput):
        read_content([], "content")
