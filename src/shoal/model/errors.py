"""Everything Shoal raises on purpose.

ShoalError
├── BadInput            the input is wrong; names the field and the fix
├── NotFound            no such run, task or pilot (also: not yours)
├── Conflict            valid, but not in the present state (already final, replayed, key used)
│   └── EventsGone      the requested events were deleted; names the oldest that is kept
├── TooLarge            over a bound; says how to split
├── Refused             the server or this machine does not allow it; says why
├── TooBusy             too much work at present; says when to try again
├── Unreachable         no answer from the server
├── InternalError       a defect of Shoal met this request; the request changed nothing
└── IllegalTransition   a defect of Shoal: a change of state that its table does not allow
Raised low; translated only in `server/http/app.py` and `cli/main.py`.
"""

from __future__ import annotations

from shoal.model.limits import MAX_ECHO


def printable(text: str) -> str:
    """Text with its control, format and direction characters shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def echo(value: object) -> str:
    """A caller's value for an error message: shortened, and with control characters escaped."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # Python does not print whole numbers of thousands of digits
        text = "an endless number"
    text = printable(text[: MAX_ECHO + 1])
    return text if len(text) <= MAX_ECHO else text[: MAX_ECHO - 1] + "…"


class ShoalError(Exception):
    """Something Shoal could not do."""

    code = "error"
    transient = False

    def __init__(self, message: str = "", *, code: str = "", field: str = "", hint: str = "") -> None:
        self.message = message or (self.__doc__ or "").strip()
        self.code = code or type(self).code
        self.field = field
        self.hint = hint
        super().__init__(self.line)

    @property
    def line(self) -> str:
        """The one line a person sees: what, where, how to fix."""
        where = f"{self.field}: " if self.field and not self.message.startswith(self.field) else ""
        return f"{where}{self.message}" + (f" ({self.hint})" if self.hint else "")


class BadInput(ShoalError):
    """The input is not valid."""

    code = "bad_input"


class NotFound(ShoalError):
    """There is no such thing."""

    code = "not_found"


class Conflict(ShoalError):
    """The request does not fit the present state."""

    code = "conflict"


class EventsGone(Conflict):
    """The events asked for are no longer kept."""

    code = "gone"

    def __init__(self, message: str = "", *, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(message, hint=f"the oldest kept is {oldest}")


class TooLarge(ShoalError):
    """The request is over a bound."""

    code = "too_large"


class Refused(ShoalError):
    """The request was refused."""

    code = "refused"


class TooBusy(ShoalError):
    """The server has too much to do."""

    code = "too_busy"
    transient = True

    def __init__(self, message: str = "", *, after: float = 1.0, code: str = "", hint: str = "") -> None:
        self.after = after
        super().__init__(message, code=code, hint=hint)


class Unreachable(ShoalError):
    """The server does not answer."""

    code = "unreachable"
    transient = True


class InternalError(ShoalError):
    """A defect in the server met this request; it changed nothing."""

    code = "internal_error"


class IllegalTransition(ShoalError):
    """A state was to change against its table."""

    code = "illegal_transition"

    def __init__(self, what: str, before: str, after: str, history: list[str]) -> None:
        self.what, self.before, self.after, self.history = what, before, after, history
        super().__init__(f"{what}: {before} -> {after} is not in the table; history: {'; '.join(history) or 'none'}")


# A refused command raises one of these: no other exception guarantees that nothing was changed.
REFUSALS = (BadInput, NotFound, Conflict, TooLarge, Refused)
