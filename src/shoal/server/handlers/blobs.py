"""Calls about blobs: upload one, whole or from where an upload broke off; query it; download it [protocol 6]."""

from __future__ import annotations

import re

from shoal.engine.pilots import mesh
from shoal.model.blobs import parse_digest
from shoal.model.credentials import SESSION
from shoal.model.errors import BadInput, NotFound, Refused, TooLarge
from shoal.model.ids import parse_run
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import LEAST_SHARED, MAX_BLOB, MAX_BODY
from shoal.server.auth.authentication import unauthorised
from shoal.server.blobs.registry import UNUSED, checkpoints_of, unknown_blob
from shoal.server.blobs.uploads import STALL, WrongOffset
from shoal.server.context import CallHandler, Context, unknown_run
from shoal.server.handlers.submit import check_space
from shoal.server.http.messages import FileResponse, Request, Response
from shoal.server.http.request import Call, answer, read_body, refusal
from shoal.wire.http.blob_transfer import CHECKPOINT
from shoal.wire.messages import BlobPeers

BYTES = "application/octet-stream"
OFFSET = "X-Shoal-Offset"
SLOWEST = 64 * 1024  # bytes a second, on average, that a download must reach
_RANGE = re.compile(r"bytes (?:\*|([0-9]{1,18})-([0-9]{1,18}))/([0-9]{1,18})")


@dataclass(frozen=True)
class BlobHeaders:
    """The headers of an upload."""

    length: int  # of this body
    total: int  # of the blob
    start: int | None  # the offset of the body in the blob; None: it is the whole blob
    is_query: bool = False  # no body: only asks how much is here


class BlobHandler(CallHandler):
    """Calls about blobs."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.blobs, self.uploads = context.blobs, context.uploads

    async def put(self, call: Call) -> Response:
        """Receive a blob, or a part of one, and have the caller hold it."""
        digest, owner = parse_digest(call.path_part("digest")), self._owner(call)
        head = read_head(call.request)
        self._check_space(call)
        call.rest()  # the number of uploads at once has limits of its own
        self.service.last_request = self.service.clock()
        try:
            if await self.blobs.renew(owner, digest, self._held_for(call)):
                return await self._is_held(call, head, digest)
            self.blobs.check_quota(owner, digest, head.total)
            if not head.is_query:
                return await self._take(call, owner, digest, head)
            if await self.uploads.ask(owner, digest, head.total):
                return await self._take(call, owner, digest, BlobHeaders(0, head.total, head.total))
        except WrongOffset as error:
            response = refusal(error)
            response.headers[OFFSET] = str(error.offset)
            return response
        except Refused as error:
            self._note(call, error)
            raise
        raise AssertionError("an upload that is neither here nor queried")

    def _check_space(self, call: Call) -> None:
        try:
            check_space(self.service)
        except Refused as error:
            self._note(call, error)
            raise

    def _note(self, call: Call, error: Refused) -> None:
        """Have people told that a pilot waits until there is space for what it brings."""
        if error.code == "disk_full" and call.caller.kind == SESSION:
            self.service.engine.note_no_space(call.caller.pilot, error.message)

    async def _take(self, call: Call, owner: str, digest: str, head: BlobHeaders) -> Response:
        async with self.uploads.turn(owner, digest, head.total, head.start) as upload:
            await self.uploads.take(upload, call.request.content, head.length)
            call.again()  # a token that ended during the upload holds nothing [security S17]
            if self._owner(call) != owner:
                raise unauthorised()
            size = upload.part.size
            if size == head.total:
                await self.blobs.name(owner, upload.part, self._held_for(call))
        return _receipt(digest, head.total, size)

    async def _is_held(self, call: Call, head: BlobHeaders, digest: str) -> Response:
        """The caller holds it already: a small body is read to keep the connection, a large one is not waited for."""
        size = self.blobs.size(digest) or 0
        response = _receipt(digest, size, size)
        if head.length <= MAX_BODY:
            await read_body(call.request, MAX_BODY, STALL)
        else:
            response.force_close()
        return response

    async def head(self, call: Call) -> Response:
        """The size of a blob that is here; if it is not, how much of the caller's upload is."""
        digest = parse_digest(call.path_part("digest"))
        if not self.context.sees_blob(call.caller, digest) or not await self.blobs.is_there(digest):
            response = refusal(unknown_blob(digest))
            try:
                offset = self.uploads.offset(self._owner(call), digest)
            except (BadInput, NotFound):
                offset = 0  # a group's pilot that did not name a run
            response.headers[OFFSET] = str(offset)
            return response
        size = str(self.blobs.size(digest))
        return Response(headers={"Content-Type": BYTES, "Content-Length": size, "Accept-Ranges": "bytes"})

    async def get(self, call: Call) -> Response:
        """The bytes, or a range of them."""
        digest = parse_digest(call.path_part("digest"))
        if not await self.blobs.is_there(digest):
            raise unknown_blob(digest)
        size = self.blobs.size(digest) or 0
        check_range(call.request, size)
        call.rest()
        self.service.last_request = self.service.clock()
        return FileResponse(self.blobs.path(digest), STALL + size / SLOWEST, BYTES)

    async def peers(self, call: Call) -> Response:
        """Which pilots of the asker's mesh fetched a blob, or do so now; a person is in none."""
        if call.caller.kind != SESSION:
            return answer(BlobPeers([]))
        digest, state = parse_digest(call.path_part("digest")), self.service.engine.state
        pilot = state.pilots.get(call.caller.pilot)
        if pilot is None:
            raise unauthorised()
        size = self.blobs.size(digest)
        if size is None:
            raise unknown_blob(digest)
        if size < LEAST_SHARED or not mesh.takes_part(pilot):
            return answer(BlobPeers([]))
        known = self.context.fetchers.ask(
            (pilot.site, pilot.holder, digest), pilot.name, size, self.service.clock(),
            lambda name: mesh.neighbour(state, pilot, name) is not None,
            mesh.neighbour(state, pilot, pilot.name) is not None,
        )  # fmt: skip
        found = [mesh.neighbour(state, pilot, name) for name in known.pilots]
        return answer(BlobPeers([one for one in found if one is not None], known.wait))

    # --- the owner
    def _owner(self, call: Call) -> str:
        """The owner of the caller's blobs: of a pilot its owner, of a group's pilot the owner of the run that it names."""
        caller, run = call.caller, call.text("run")
        if caller.kind != SESSION:
            return caller.owner
        state = self.service.engine.state
        pilot = state.pilots.get(caller.pilot)
        if pilot is None:
            raise unauthorised()
        if not run and pilot.owner:
            return pilot.owner
        if not run:
            raise BadInput(
                "a group's pilot says for which run", code="which_run", field="run", hint="add ?run=r12 to the path"
            )
        owner = self.context.owner_of(parse_run(run))
        if owner is None or not state.serves(pilot, owner):
            raise unknown_run(parse_run(run))
        return owner

    def _held_for(self, call: Call) -> int:
        """The number under which a blob is held: that of the run's checkpoints, if a pilot says so and the run is open."""
        run = call.text("run")
        if call.caller.kind != SESSION or call.text("for") != CHECKPOINT or not run:
            return UNUSED
        number = parse_run(run)
        return checkpoints_of(number) if number in self.service.engine.state.runs else UNUSED


def check_range(request: Request, size: int) -> None:
    """Refuse a range that is malformed or behind the end, in our own form."""
    try:
        request.range(size)
    except ValueError:
        raise BadInput(
            "there is no such range", code="no_such_range", field="Range", hint=f"bytes=FIRST-LAST of {size} bytes"
        ) from None


def _receipt(digest: str, total: int, offset: int) -> Response:
    return answer({"digest": digest, "size": total, "offset": offset, "whole": offset == total})


def read_head(request: Request) -> BlobHeaders:
    """The headers of an upload, if they are consistent."""
    length = request.content_length
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise BadInput("compressed bodies are not taken", code="encoding_refused")
    if length is None:
        raise BadInput("how long is it?", code="no_length", field="Content-Length", hint="send Content-Length")
    if length and request.content_type != BYTES:
        raise BadInput("the body must be bytes", code="want_bytes", hint=f"send Content-Type: {BYTES}")
    content_range = request.headers.get("Content-Range")
    head = BlobHeaders(length, length, None) if not content_range else _read_range(content_range, length)
    if head.total > MAX_BLOB:
        raise TooLarge("the blob is too large", hint=f"at most {MAX_BLOB} bytes")
    return head


def _read_range(text: str, length: int) -> BlobHeaders:
    found = _RANGE.fullmatch(text)
    if found is not None:
        total = int(found[3])
        if found[1] is None and length == 0:
            return BlobHeaders(0, total, None, is_query=True)
        if found[1] is not None and int(found[1]) + length - 1 == int(found[2]) < total and length:
            return BlobHeaders(length, total, int(found[1]))
    field, hint = "Content-Range", "bytes FIRST-LAST/TOTAL with the body, or bytes */TOTAL without one"
    raise BadInput("the range is none, or not as long as the body", code="bad_range", field=field, hint=hint)
