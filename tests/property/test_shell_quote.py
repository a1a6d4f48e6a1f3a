"""Values in texts for the shell: whatever they hold, they arrive as they are and nothing of them is executed."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shoal.model.errors import BadInput
from shoal.model.task.shell_quote import PLAIN, check_shell, fill_shell
from shoal.model.task.sweep import Axis, Sweep

SHELLS = [path for path in (shutil.which("sh"), shutil.which("bash"), shutil.which("dash")) if path is not None]
VALUES = st.text(st.sampled_from("ab '\"\\$`;|&<>(){}[]*?!#~=\n\t-éx0"), min_size=0, max_size=12) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
# Texts that print one word; `%s` stands for the value in what is printed.
TEXTS = (
    ("printf '<%s>' {x}", "<%s>"),
    ("printf '<%s>' '{x}'", "<%s>"),
    ("printf '<%s>' \"{x}\"", "<%s>"),
    ("printf '<%s>' a{x}b'c{x}d'\"e{x}f\"", "<a%sbc%sde%sf>"),
    ("y=$(printf '<%s.>' {x}); printf %s \"$y\"", "<%s.>"),
    ("printf %s \"$(printf '<%s.>' \"{x}\")\"", "<%s.>"),
    ("printf %s \"$(printf '<%s.>' '{x}')\"", "<%s.>"),
    ("# a comment's {x}\nprintf '<%s>' {x} # another \"{x}", "<%s>"),
    ("(printf '<%s>' {x}) | cat", "<%s>"),
    ("case {x} in *) printf '<%s>' {x};; esac", "<%s>"),
    ("f() { printf '<%s>' \"$1\"; }; f {x}", "<%s>"),
    ("echo $((1 + 2)) >/dev/null; printf '<%s>' \\\n {x}", "<%s>"),
    ("cat <<'EOF' >/dev/null\nit's (\nEOF\nprintf '<%s>' {x}", "<%s>"),
    ("y=${{z:-a\"b\"}}; printf '<%s>' {x}", "<%s>"),
    ("[ \"$((2))\" = 2 ] && printf '<%s>' \"a\\\"{x}\"", '<a"%s>'),
)  # fmt: skip


def run(shell: str, text: str) -> str:
    """What a shell prints; an error of it fails the test."""
    done = subprocess.run([shell, "-c", text], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and not done.stderr, (shell, text, done)
    return done.stdout.decode()


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=VALUES)
@example(value="c;id")
@example(value="$(id)`id`")
@example(value='it\'s "so"\\')
@example(value="a\n#id\nEOF\n")
@example(value="")
@example(value="-n *")
def test_any_value_arrives_as_exactly_one_argument_wherever_its_placeholder_stands(shell: str, value: str) -> None:
    """All texts in one process, because starting a shell is what takes time."""
    sweep = Sweep((Axis("x", ((value,),)),))
    for text, _ in TEXTS:
        check_shell(text, sweep, "shell")
    script = "\n".join(f"{fill_shell(text, {'x': value})}\nprintf '\\1'" for text, _ in TEXTS)
    printed = run(shell, script).split("\1")[: len(TEXTS)] if "\1" not in value else []
    for (text, shown), got in zip(TEXTS, printed, strict=True) if printed else ():
        assert got == shown.replace("%s", value), (text, value)


@pytest.mark.parametrize(
    "text",
    [
        "echo `echo {x}`", "echo $(( {x} + 1 ))", "cat <<E\n{x}\nE", "echo ${{y:-{x}}}", "echo \"${{y:-{x}}}\"", "echo \\{x}",
        "echo $'a{x}'", "echo \"$(case y in y) echo {x};; esac)\"", "(( y = {x} ))", "cat <<{x}\na\nE",
    ],
)  # fmt: skip
def test_where_no_quoting_holds_only_plain_values_are_taken(text: str) -> None:
    """`c;id` is refused with a sentence; numbers and names, which mean the same everywhere, are filled in."""
    with pytest.raises(BadInput, match="cannot be quoted") as error:
        check_shell(text, Sweep((Axis("x", ((1, "c;id"),)),)), "shell")
    assert error.value.code == "unquotable" and ":raw" in error.value.hint
    check_shell(text, Sweep((Axis("x", ((1, "plain-1.5"),)),)), "shell")
    assert "plain-1.5" in fill_shell(text, {"x": "plain-1.5"})


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from("ab'\"\\$`;(){}#<\n x="), max_size=30), value=VALUES)
def test_a_text_of_any_form_is_filled_or_refused(text: str, value: str) -> None:
    """The scanner ends on every text, and loses nothing of it."""
    whole = text.replace("{", "{{").replace("}", "}}") + "{x}"
    try:
        check_shell(whole, Sweep((Axis("x", ((value,),)),)), "shell")
    except BadInput:
        return
    assert fill_shell(whole, {"x": value}).startswith(text)


def test_a_value_as_it_is_for_those_who_mean_it() -> None:
    """`{x:raw}` is read by the shell."""
    assert run("sh", fill_shell("{x:raw}; echo {x}", {"x": "echo a; echo b"})) == "a\nb\necho a; echo b\n"


def test_a_parameter_is_not_mistaken_for_a_variable_of_the_shell() -> None:
    """`${x}` was the value behind a dollar: for x=1 the first argument of the script."""
    with pytest.raises(BadInput, match="neither a parameter nor a variable"):
        check_shell("echo ${x}", Sweep((Axis("x", ((1,),)),)), "shell")
    assert fill_shell("echo ${{x}} {x}", {"x": 1}) == "echo ${x} 1"


def test_plain_values_are_plain_in_every_shell() -> None:
    """What the scanner lets pass unquoted means itself."""
    value = "aZ09_.,:/@%+=-"
    assert PLAIN.fullmatch(value)
    assert run("sh", f"printf '%s' {value} `printf %s {value}`") == value * 2
