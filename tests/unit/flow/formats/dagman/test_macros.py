"""Macros of submit descriptions."""

from __future__ import annotations

import pytest

from shoal.flow.formats.dagman.macros import expand
from shoal.model.errors import BadInput

MACROS = {"x": "1", "y": "$(x)2", "file": "/d/run.1/a.b.txt", "list": "p q r", "loop": "$(loop)", "n": "2"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(X)-$(y)", "1-12"),
        ("$(none)$(none:other)$(none:$(y))", "other12"),
        ("$ENV(HOME)|$ENV(NONE:else)|$ENV(NONE)", "/h/ann|else|"),
        ("$(DOLLAR)(x) $x $$ 5$", "$(x) $x $$ 5$"),
        ("$Fn(file) $Fx(file) $Fnx(file) $Fp(file) $Fd(file) $Fpnx(file) $Fqn(file)",
         'a.b .txt a.b.txt /d/run.1/ run.1/ /d/run.1/a.b.txt "a.b"'),
        ("$INT(n) $REAL(n)", "2 2.0"),
        ("$CHOICE(n,a,b,c) $CHOICE(x,list)", "c q"),
    ],
)  # fmt: skip
def test_values(text: str, value: str) -> None:
    assert expand(text, MACROS, {"HOME": "/h/ann"}, "a.sub") == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("$(loop)", "stands for itself"),
        ("$$(Memory)", "before a task runs"),
        ("$RANDOM_INTEGER(1,2)", "not known"),
        ("$INT(list)", "is no number"),
        ("$CHOICE(9,list)", "no item"),
        ("$(a b)", "is no macro"),
    ],
)
def test_what_cannot_be_replaced_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        expand(text, MACROS, {}, "a.sub")
