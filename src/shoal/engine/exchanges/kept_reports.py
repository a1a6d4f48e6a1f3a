"""Reports of pilots that others kept while the server was away, and deliver now [promise I18; ADR 0062].

The seal proves whose they are, so it does not matter who brings them. They are judged as if their own pilot had sent them
by itself: if it does so as well, before or after, each attempt still counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.dht.peers import CLIENT_ONLY, PEER_TAG
from shoal.engine.ended_pilot import EndedPilot
from shoal.engine.exchanges.bounds import check_exchange
from shoal.engine.pilots.lease_proofs import Proofs
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.engine.tasks.reports import judge_all
from shoal.model.errors import ShoalError
from shoal.model.states import PilotState
from shoal.wire import codec
from shoal.wire.messages import Capacity, Exchange, Sealed, TagValue
from shoal.wire.seal import KEPT, is_genuine

_MOST_HEIRS = 16  # registrations of one pilot that are followed
_NOTHING = Capacity()


def open_copy(state: State, sealed: Sealed) -> tuple[Pilot, Exchange] | None:
    """What is in a copy, and the pilot as which it is judged; None: it does not count, now or later."""
    pilot = _speaker(state, sealed)
    if pilot is None:
        return None
    try:
        content = codec.decode(Exchange, sealed.body.encode())
        if content.pilot != sealed.pilot:
            return None
        check_exchange(content, pilot)
    except ShoalError:
        return None
    return pilot, content


def take_all(state: State, sealed: Sequence[Sealed]) -> list[str]:
    """Judge the reports in these copies; returns the seals of those that need not be kept any longer: all but those of
    pilots that this server has not heard of."""
    done = []
    for one in sealed:
        if not (one.pilot in state.pilots or one.pilot in state.gone):
            continue  # perhaps it is another server's
        done.append(one.seal)
        opened = open_copy(state, one)
        if opened is not None:
            _take(state, *opened)
    return done


def _take(state: State, pilot: Pilot, content: Exchange) -> None:
    former, pilot.proofs = pilot.proofs, Proofs(state.lease_key, pilot.names, content.proofs)
    verdicts = judge_all(state, pilot, content)
    pilot.proofs = former
    counted = sum(one.count for one in verdicts if one.verdict in ("recorded", "adopted"))
    state.emit("reports_delivered", pilot=pilot, attempts=sum(one.count for one in verdicts), counted=counted)


def _speaker(state: State, sealed: Sealed) -> Pilot | None:
    """The pilot that sealed a copy: as it is, as what it became, or as it is remembered."""
    known: Pilot | EndedPilot | None = state.pilots.get(sealed.pilot) or state.gone.get(sealed.pilot)
    if known is None or known.revoked or not is_genuine(known.session, KEPT, sealed):
        return None
    name, first = sealed.pilot, known
    for _ in range(_MOST_HEIRS):
        living = state.pilots.get(name)
        if living is not None:
            return living
        gone = state.gone.get(name)
        if gone is None or not gone.heir:
            break
        name = gone.heir
    assert isinstance(first, EndedPilot)
    tags: dict[str, TagValue] = {PEER_TAG: CLIENT_ONLY} if first.bound else {}  # it may have had tasks of its mesh
    owner, group = ("", first.holder[1:]) if first.holder.startswith("@") else (first.holder, "")
    return Pilot(
        sealed.pilot, PilotState.GONE, owner, first.site, first.host, first.identity, first.session, _NOTHING, "", tags,
        first.ended, first.ended, _NOTHING, group, first.token, former=[*first.former], bound=first.bound,
    )  # fmt: skip
