"""Calls about blobs: put one, whole or from where an upload broke off; is it here; get one [protocol 6]."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from shoal.model.blobs import parse_digest
from shoal.model.credentials import SESSION
from shoal.model.errors import BadInput, NotFound, TooLarge
from shoal.model.ids import parse_run
from shoal.model.limits import MAX_BLOB, MAX_BODY
from shoal.server.auth.authentication import unauthorised
from shoal.server.blobs.registry import UNUSED, checkpoints_of, unknown_blob
from shoal.server.blobs.uploads import STALL, WrongOffset
from shoal.server.context import Context, unknown_run
from shoal.server.handlers.submit import check_space
from shoal.server.http.request import Call, answer, read_body, refusal
from shoal.wire.http.blob_transfer import CHECKPOINT

BYTES = "application/octet-stream"
OFFSET = "X-Shoal-Offset"
SLOWEST = 64 * 1024  # bytes a second, on average, that a reader must take
_RANGE = re.compile(r"bytes (?:\*|([0-9]{1,18})-([0-9]{1,18}))/([0-9]{1,18})")


@dataclass(frozen=True)
class BlobHeaders:
    """What the headers of an upload say."""

    length: int  # of this body
    total: int  # of the blob
    start: int | None  # where the body belongs; None: it is the whole blob
    only_asks: bool = False


class BlobHandler:
    """One method a call."""

    def __init__(self, context: Context) -> None:
        self.context, self.service, self.blobs, self.uploads = context, context.service, context.blobs, context.uploads

    async def put(self, call: Call) -> web.Response:
        """Take a blob, or a piece of one, and have the caller hold it."""
        digest, owner = parse_digest(call.word("digest")), self._for_whom(call)
        head = read_head(call.request)
        self._check_disk()
        call.rest()  # how many may send at once has bounds of its own
        self.service.last_request = self.service.clock()
        try:
            if await self.blobs.renew(owner, digest, self._held_for(call)):
                return await self._have_it(call, head, digest)
            self.blobs.check_rule(owner, digest, head.total)
            if not head.only_asks:
                return await self._take(call, owner, digest, head)
            if await self.uploads.ask(owner, digest, head.total):
                return await self._take(call, owner, digest, BlobHeaders(0, head.total, head.total))
        except WrongOffset as error:
            response = refusal(error)
            response.headers[OFFSET] = str(error.offset)
            return response
        raise AssertionError("an upload that is neither here nor asked for")

    async def _take(self, call: Call, owner: str, digest: str, head: BlobHeaders) -> web.Response:
        async with self.uploads.turn(owner, digest, head.total, head.start) as upload:
            await self.uploads.take(upload, call.request.content, head.length)
            call.again()  # a token that ended while the bytes came holds nothing [security S17]
            if self._for_whom(call) != owner:
                raise unauthorised()
            size = upload.part.size
            if size == head.total:
                await self.blobs.name(owner, upload.part, self._held_for(call))
        return _told(digest, head.total, size)

    async def _have_it(self, call: Call, head: BlobHeaders, digest: str) -> web.Response:
        """It is here and theirs already: what is small is read to keep the connection, the rest is not waited for."""
        size = self.blobs.size(digest) or 0
        response = _told(digest, size, size)
        if head.length <= MAX_BODY:
            await read_body(call.request, MAX_BODY, STALL)
        else:
            response.force_close()
        return response

    async def head(self, call: Call) -> web.StreamResponse:
        """Is a blob here, and how long is it? If not: how much of the caller's upload is."""
        digest = parse_digest(call.word("digest"))
        if not self.context.sees_blob(call.caller, digest) or not await self.blobs.is_there(digest):
            response = refusal(unknown_blob(digest))
            try:
                offset = self.uploads.offset(self._for_whom(call), digest)
            except (BadInput, NotFound):
                offset = 0  # a group's pilot that did not say whose
            response.headers[OFFSET] = str(offset)
            return response
        size = str(self.blobs.size(digest))
        return web.Response(headers={"Content-Type": BYTES, "Content-Length": size, "Accept-Ranges": "bytes"})

    async def get(self, call: Call) -> web.StreamResponse:
        """The bytes, from anywhere on."""
        digest = parse_digest(call.word("digest"))
        if not await self.blobs.is_there(digest):
            raise unknown_blob(digest)
        size = self.blobs.size(digest) or 0
        check_range(call.request, size)
        call.rest()
        self.service.last_request = self.service.clock()
        return _Bytes(self.blobs.path(digest), size)

    # --- for whom
    def _for_whom(self, call: Call) -> str:
        """Whose the caller's blobs are. A pilot puts for its owner; a group's pilot says for which run it does."""
        caller, said = call.caller, call.text("run")
        if caller.kind != SESSION:
            return caller.owner
        state = self.service.engine.state
        pilot = state.pilots.get(caller.pilot)
        if pilot is None:
            raise unauthorised()
        if not said and pilot.owner:
            return pilot.owner
        if not said:
            raise BadInput(
                "a group's pilot says for which run", code="which_run", field="run", hint="add ?run=r12 to the path"
            )
        owner = self.context.owner_of(parse_run(said))
        if owner is None or not state.serves(pilot, owner):
            raise unknown_run(parse_run(said))
        return owner

    def _held_for(self, call: Call) -> int:
        """Under which number a blob is held: a pilot says that it belongs to a checkpoint of a run that is under way."""
        said = call.text("run")
        if call.caller.kind != SESSION or call.text("for") != CHECKPOINT or not said:
            return UNUSED
        number = parse_run(said)
        return checkpoints_of(number) if number in self.service.engine.state.runs else UNUSED

    def _check_disk(self) -> None:
        check_space(self.service)


class _Bytes(web.FileResponse):
    """A file on its way out; who takes it too slowly is cut off, and may come back for the rest."""

    def __init__(self, path: object, size: int) -> None:
        super().__init__(path, headers={"Content-Type": BYTES})  # type: ignore[arg-type]  # a Path
        self._within = STALL + size / SLOWEST

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            async with asyncio.timeout(self._within):
                return await super().prepare(request)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise


def check_range(request: web.BaseRequest, size: int) -> None:
    """Refuse a range that is none, or behind the end, in our own form."""
    try:
        start = request.http_range.start
    except ValueError:
        start = size
    if start is not None and start >= size and "Range" in request.headers:
        raise BadInput(
            "there is no such range", code="no_such_range", field="Range", hint=f"bytes=FIRST-LAST of {size} bytes"
        )


def _told(digest: str, total: int, offset: int) -> web.Response:
    return answer({"digest": digest, "size": total, "offset": offset, "whole": offset == total})


def read_head(request: web.BaseRequest) -> BlobHeaders:
    """The headers of an upload, if they fit together."""
    length = request.content_length
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise BadInput("compressed bodies are not taken", code="encoding_refused")
    if length is None:
        raise BadInput("how long is it?", code="no_length", field="Content-Length", hint="send Content-Length")
    if length and request.content_type != BYTES:
        raise BadInput("the body must be bytes", code="want_bytes", hint=f"send Content-Type: {BYTES}")
    said = request.headers.get("Content-Range")
    head = BlobHeaders(length, length, None) if said is None else _read_range(said, length)
    if head.total > MAX_BLOB:
        raise TooLarge("the blob is too large", hint=f"at most {MAX_BLOB} bytes")
    return head


def _read_range(said: str, length: int) -> BlobHeaders:
    found = _RANGE.fullmatch(said)
    if found is not None:
        total = int(found[3])
        if found[1] is None and length == 0:
            return BlobHeaders(0, total, None, only_asks=True)
        if found[1] is not None and int(found[1]) + length - 1 == int(found[2]) < total and length:
            return BlobHeaders(length, total, int(found[1]))
    raise BadInput(
        "the range is none, or not as long as the body",
        code="bad_range",
        field="Content-Range",
        hint="bytes FIRST-LAST/TOTAL with the body, or bytes */TOTAL without one",
    )
