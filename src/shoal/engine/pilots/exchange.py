"""Registration of pilots and their exchanges [protocol 5; promise R1-R5; DIANE U4; GWP G1, G14]."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence

from shoal.dht.peers import PEER_TAG
from shoal.engine.changes import Answer
from shoal.engine.commands import Enrol
from shoal.engine.exchanges import kept_reports
from shoal.engine.exchanges.bounds import check_ended, check_exchange, check_tags
from shoal.engine.matching.choose_tasks import fill
from shoal.engine.matching.chunks import carve_all
from shoal.engine.matching.grant import attach
from shoal.engine.matching.pilot_attributes import change_tags, inherit, publish
from shoal.engine.pilots import mesh
from shoal.engine.pilots.hosts import host_joined
from shoal.engine.pilots.lease_proofs import Proofs
from shoal.engine.pilots.lending import note_waiting
from shoal.engine.pilots.long_poll import answer, forget, give_parked, unpark
from shoal.engine.pilots.losses import end, lose, seen_dead, set_draining
from shoal.engine.pilots.reconcile import compare, confirm_held, readopt_reported
from shoal.engine.records import Attempt, Pilot
from shoal.engine.state import State
from shoal.engine.tasks.checkpoints import save
from shoal.engine.tasks.partial import note as note_emitted
from shoal.engine.tasks.reports import judge_all
from shoal.engine.windows import leaders
from shoal.engine.windows import window as windows
from shoal.model.credentials import SESSION, digest, make
from shoal.model.errors import BadInput, Conflict, Refused, ShoalError
from shoal.model.ids import parse_attempt
from shoal.model.limits import (
    ENROLLED_KEPT,
    MAX_BYTES,
    MAX_CACHE_CHANGES,
    MAX_CORES,
    MAX_LINE,
    MAX_NAME,
    MAX_SECONDS,
)
from shoal.model.quantities import many
from shoal.model.states import PilotState, advance_pilot
from shoal.wire.messages import (
    PROTOCOL,
    Exchange,
    FormerPilot,
    Order,
    Published,
    Registered,
    Reply,
)

ZIP_TAG = "zip"  # SHA-256 of the pilot's code
ASK_AGAIN = 0.2  # seconds until a pilot has to send its held list once more, after a restart
FORMER_KEPT = 16  # names a pilot may have had
NONCES_KEPT = 8  # exchanges whose nonce is remembered: more than can be in flight


def enrol(state: State, command: Enrol) -> Registered:
    """Register a pilot, or note why its host is unfit [CMS C1]. Idempotent: a registration that is repeated, because the
    reply was lost, makes one pilot."""
    register = command.register
    twin = state.enrolled.get((command.token, register.nonce)) if register.nonce else None
    if twin is not None and (twin.pilot in state.pilots or register.unfit):
        return twin
    _check_register(command)
    pilot, secret = _make(state, command)
    registered = _registered(state, pilot, secret)
    if register.nonce:
        state.enrolled[command.token, register.nonce] = registered
        while len(state.enrolled) > ENROLLED_KEPT:
            state.enrolled.popitem(last=False)
    if register.unfit:
        pilot.reason = "host_unfit: " + "; ".join(register.unfit)[:MAX_LINE]
        advance_pilot(pilot, PilotState.GONE)
        state.write_pilot(pilot)
        state.emit("pilot_unfit", pilot=pilot, reasons=register.unfit[:100], host=register.host)
        return registered
    dead = seen_dead(state, pilot, register.ended)
    if command.max_pilots is not None:
        used = sum(1 for p in state.pilots.values() if p.token == command.token and p not in dead)
        former = _former_of(state, register.former, pilot.holder)
        leaving = former is not None and former.token == command.token and former not in dead  # it replaces itself
        if used - leaving >= command.max_pilots:
            state.enrolled.pop((command.token, register.nonce), None)
            raise Conflict(
                f"this token lets {many(command.max_pilots, 'pilot')} in at a time, and so many are here", code="site_full",
                hint="it is tried again; a token with a larger --max-pilots lets more in",
            )  # fmt: skip
    advance_pilot(pilot, PilotState.IDLE)
    state.pilots[pilot.name] = pilot
    state.count_slots(pilot, 1)
    state.sessions[pilot.session] = pilot.name
    mesh.enter(state, pilot)
    if register.former is not None:
        pilot.is_reconciled = False  # its held list comes first: it may still run what it held
        _inherit(state, pilot, register.former)
        windows.note_back(state, pilot)
    leaders.keep_leader(state, pilot)
    _bury_all(state, pilot, register.ended)
    state.write_pilot(pilot)
    before = host_joined(state, pilot)
    state.emit(
        "pilot_joined", pilot=pilot, host=register.host, cores=register.room.cores, memory=register.room.memory,
        former=pilot.former, before=before,
    )  # fmt: skip
    return registered


def _bury_all(state: State, pilot: Pilot, sessions: Sequence[str]) -> None:
    """Give up the pilots that this one found dead on its host, without waiting for the end of their leases."""
    for dead in seen_dead(state, pilot, sessions):
        lose(state, dead, f"its process is gone, says {pilot.name} on the same host")


def _check_register(command: Enrol) -> None:
    register = command.register
    if not PROTOCOL - 1 <= register.protocol <= PROTOCOL:
        raise BadInput(
            f"protocol {register.protocol} is not spoken here", code="protocol", hint=f"this server speaks {PROTOCOL}"
        )
    check_tags(register.tags)
    check_ended(register.ended)
    room = register.room
    least = 0 if register.unfit else 1  # a host that takes no task may not even know what it has
    if not (least <= room.cores <= MAX_CORES and 0 <= room.gpus <= MAX_CORES) or not (
        0 <= room.memory <= MAX_BYTES and 0 <= room.disk <= MAX_BYTES
    ):
        raise BadInput(
            "that is no host", code="range", field="room", hint=f"cores from 1 to {MAX_CORES}, nothing below 0"
        )
    texts = (register.version, register.host, register.identity, register.nonce, register.digest)
    if any(len(text.encode("utf-8", "replace")) > MAX_NAME for text in texts):
        raise BadInput("a text of the registration is too long", code="too_long", hint=f"at most {MAX_NAME} bytes")


def _make(state: State, command: Enrol) -> tuple[Pilot, str]:
    """A pilot with a new name and a new secret."""
    register = command.register
    name = f"p{state.rng.getrandbits(32):08x}"
    while name in state.pilots or name in state.gone:
        name = f"p{state.rng.getrandbits(32):08x}"
    tags = {name: value for name, value in register.tags.items() if "." not in name and value != ""}
    if register.digest:
        tags[ZIP_TAG] = register.digest
    secret = make(SESSION, urlsafe_b64encode(state.rng.getrandbits(256).to_bytes(32, "big")).decode().rstrip("="))
    ends = state.now + min(max(0.0, register.ends), MAX_SECONDS) if register.ends is not None else None
    pilot = Pilot(
        name, PilotState.QUEUED, command.owner, command.site, register.host, register.identity, digest(secret), register.room,
        register.version, tags, state.now, state.now, register.room, command.group, command.token,
        protocol=register.protocol, bound=command.bound, ends=ends,
    )  # fmt: skip
    return pilot, secret


def _registered(state: State, pilot: Pilot, secret: str) -> Registered:
    t = state.timing
    return Registered(
        pilot.name, secret, state.incarnation, t.beat, t.lease, t.hold, t.kill_after, t.grace, t.idle_end, t.spool_end
    )


def _former_of(state: State, claimed: FormerPilot | None, holder: str) -> Pilot | None:
    """The living pilot that it was, if it can prove that."""
    former = state.pilots.get(claimed.pilot) if claimed is not None else None
    if claimed is None or former is None or former.session != digest(claimed.session) or former.holder != holder:
        return None
    return former


def _inherit(state: State, pilot: Pilot, claimed: FormerPilot) -> None:
    """A pilot registers again: if it can prove which one it was, it keeps what it held."""
    known = state.gone.get(claimed.pilot)
    if known is not None and known.session == digest(claimed.session) and known.holder == pilot.holder:
        pilot.former = [claimed.pilot, *known.former][:FORMER_KEPT]
        known.heir = known.heir or pilot.name
    former = _former_of(state, claimed, pilot.holder)
    if former is None:
        return
    pilot.former = [claimed.pilot, *former.former][:FORMER_KEPT]
    carve_all(state, former.chunks.values())
    inherit(pilot, former)
    for attempt in list(former.live.values()):
        _move(state, attempt, former, pilot)
    end(state, former, f"enrolled again as {pilot.name}")
    state.gone[former.name].heir = pilot.name


def _move(state: State, attempt: Attempt, old: Pilot, new: Pilot) -> None:
    array = state.task_of(attempt.id).array
    state.lend(array, attempt, old, False)  # its new name has still to say that it waits
    del old.live[attempt.id]
    attempt.reply_seq = 0
    attach(state, array, attempt, new)
    state.write_task(array.tasks[attempt.id.element], pilot=new, leased=attempt.leased)


# --- the one exchange
def talk(state: State, exchange: Exchange, is_sealed: bool = False) -> Conflict | None:
    """Handle an exchange and reply, now or when there is something to send; it is checked whole first [GWP G14].
    `is_sealed`: whose it is was proven by its seal [ADR 0062].

    A refusal that changes something (a session used twice) is returned, all others are raised.
    """
    pilot = state.pilots.get(exchange.pilot)
    if pilot is None or not (is_sealed or pilot.session == digest(exchange.session)):
        raise _stranger(state, exchange)
    if not PROTOCOL - 1 <= exchange.protocol <= PROTOCOL:
        raise BadInput(f"protocol {exchange.protocol} is not spoken here", code="protocol")
    check_exchange(exchange, pilot)
    if exchange.tags:
        check_tags({**pilot.tags, **exchange.tags})
    if exchange.nonce and pilot.nonces.get(exchange.seq, exchange.nonce) != exchange.nonce:
        # One number with two contents: two pilots use this session (a cloned machine). They cannot be distinguished,
        # so both lose it; what they run is adopted from the one that registers first [input E59].
        lose(state, pilot, "its session was used by two pilots", counts=False)
        return Conflict("another pilot uses this session", code="session_in_use", hint="register again")
    if exchange.seq > pilot.seq or not is_sealed:  # else a leader repeats it: that does not show that its pilot lives
        pilot.seen = state.now
        pilot.suspect = False
    pilot.proofs = Proofs(state.lease_key, pilot.names, exchange.proofs)
    if exchange.seq in pilot.replies:
        if exchange.seq == pilot.parked:
            forget(state, pilot)  # it rested, and its connection was lost
        state.out.answers.append(Answer(pilot.name, exchange.seq, pilot.replies[exchange.seq], True))
        return None
    if exchange.seq == pilot.parked:
        return None  # repeated while it waits: the last connection gets the reply
    if exchange.seq < pilot.seq:
        _overtaken(state, pilot, exchange)
        return None
    carries = exchange.reports or exchange.batches or exchange.checkpoints or exchange.sealed
    if not carries or pilot.parked in pilot.replies:
        # One with reports is answered after their commit, and another may wait beside it, unless that one rests.
        unpark(state, pilot)
    pilot.seq, pilot.protocol = exchange.seq, exchange.protocol
    _keep_nonce(pilot, exchange)
    if exchange.tags:
        _take_tags(state, pilot, exchange)
    if exchange.cached or exchange.uncached:
        state.data.change(
            pilot, exchange.cached, exchange.uncached
        )  # before the reports: they may make its readers ready
    if exchange.accusations:
        mesh.accuse(state, pilot, exchange.accusations)
    pilot.leaving = bool(exchange.leaving)
    _offer_renewal(state, pilot)
    if exchange.ended:
        _bury_all(state, pilot, exchange.ended)
    if exchange.leaving and not pilot.draining:
        set_draining(state, pilot, exchange.leaving)
    # Before the reports, which may end their attempts; those of attempts that are adopted just now, after that.
    unpublished = [tags for tags in exchange.published if not _publish(state, pilot, tags)]
    unsaved = [found for found in exchange.checkpoints if not save(state, pilot, found)]
    for emitted in exchange.emitted:
        note_emitted(state, pilot, emitted)
    readopt_reported(state, pilot, exchange)
    verdicts = judge_all(state, pilot, exchange)
    taken = kept_reports.take_all(state, exchange.sealed) if exchange.sealed else []
    # A pilot that leaves and holds nothing takes nothing more, so that no lease can be in flight to it.
    is_farewell = bool(exchange.leaving) and not exchange.held
    is_stale = pilot.may_be_stale and not is_farewell and exchange.ack not in pilot.replies
    lacking = compare(state, pilot, exchange, is_stale)
    for tags in unpublished:
        _publish(state, pilot, tags)
    for checkpoint in unsaved:
        save(state, pilot, checkpoint)
    # The pilot forgets what it sent with an exchange when it gets the reply, so it has to be durable by then.
    is_to_be_kept = bool(exchange.published or exchange.checkpoints)
    if is_stale:
        # It may be a repetition from before our start, and the pilot may have got leases since. An immediate reply makes
        # it send its held list again; where an earlier reply waits for its commit, after a moment.
        at_once = is_to_be_kept or not pilot.replies
        answer(state, pilot, exchange.seq, [], verdicts, is_to_be_kept, at_once, unsealed=taken)
        if pilot.parked == exchange.seq:
            pilot.parked_until = state.now + ASK_AGAIN
        return None
    pilot.may_be_stale = False
    confirm_held(state, pilot)
    leaders.hear(state, pilot, exchange)
    leaders.keep_leader(state, pilot)
    note_waiting(state, pilot, exchange.waits)
    leases, durable = fill(state, pilot, exchange.seq) if not lacking else ([], False)
    # The pilot has more to send after the reply, or waits for the acknowledgement of what it sent.
    at_once = bool(exchange.tails or exchange.emitted) or is_to_be_kept
    at_once = at_once or len(exchange.cached) + len(exchange.uncached) >= MAX_CACHE_CHANGES
    if leases and pilot.parked is not None:
        give_parked(state, pilot, leases, durable)  # leases need not wait for the commit of the reports
        leases, durable = [], False
    window = windows.change(state, pilot, exchange)
    durable = durable or bool(lacking or window.leases) or is_to_be_kept
    at_once = at_once or bool(taken)
    asks = exchange.asks and not (is_sealed or exchange.leaving)
    answer(state, pilot, exchange.seq, [*lacking, *leases], verdicts, durable, at_once, window, taken, asks)
    if exchange.leaving and not pilot.held and not exchange.held and pilot.state is not PilotState.GONE:
        end(state, pilot, exchange.leaving)
    return None


def _publish(state: State, pilot: Pilot, published: Published) -> bool:
    """Keep tags of a task that this pilot runs, or ran a moment ago; False: it is not this pilot's task."""
    attempt = parse_attempt(published.attempt)
    run = state.runs.get(attempt.run)
    if run is None or not (pilot.holds(attempt) or pilot.ended_lately(attempt)):
        return False
    publish(state, pilot, published, run.owner)
    return True


def _take_tags(state: State, pilot: Pilot, exchange: Exchange) -> None:
    change_tags(state, pilot, exchange.tags)
    if PEER_TAG in exchange.tags:
        mesh.enter(state, pilot)
        state.write_pilot(pilot)  # after a restart of the server its peers still find it


def _offer_renewal(state: State, pilot: Pilot) -> None:
    """Order a pilot of another version to renew itself when it is idle [protocol 8]."""
    zipped = pilot.tags.get(ZIP_TAG, "")
    if state.pilot_zip and zipped and zipped != state.pilot_zip != pilot.renewing:
        pilot.renewing = state.pilot_zip
        state.order(pilot, Order("renew", why=state.pilot_zip))


def disowned() -> Conflict:
    """The refusal that makes a pilot register again."""
    return Conflict("this server does not know you (any more)", code="re_enrol", hint="register again")


def _stranger(state: State, exchange: Exchange) -> ShoalError:
    """Why an exchange of an unknown or ended pilot is refused [input E57]."""
    gone = state.gone.get(exchange.pilot)
    if gone is not None and gone.revoked and gone.session == digest(exchange.session):
        return Refused(f"this pilot was sent away: {gone.reason}", code="revoked")
    return disowned()


def _keep_nonce(pilot: Pilot, exchange: Exchange) -> None:
    if exchange.nonce:
        pilot.nonces[exchange.seq] = exchange.nonce
        while len(pilot.nonces) > NONCES_KEPT:
            del pilot.nonces[min(pilot.nonces)]


def _overtaken(state: State, pilot: Pilot, exchange: Exchange) -> None:
    """A newer exchange came first. The reports are in this one only, so they are handled; all else is outdated."""
    if exchange.seq < pilot.seq - 1:
        raise Conflict(f"exchange {exchange.seq} is older than the last two", code="replay")
    _keep_nonce(pilot, exchange)
    _take_tags(state, pilot, exchange)
    state.data.change(pilot, exchange.cached, exchange.uncached)
    for published in exchange.published:
        _publish(state, pilot, published)
    for checkpoint in exchange.checkpoints:
        save(state, pilot, checkpoint)
    verdicts = judge_all(state, pilot, exchange)
    reply = Reply(exchange.seq, state.incarnation, verdicts=verdicts, hold=state.timing.beat)
    state.out.answers.append(Answer(pilot.name, exchange.seq, reply, True))
