"""Files from the storage of a site, and from the web."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.data.sources import ORIGIN, SERVER, STORAGE, Rule
from shoal.model.blobs import digest_of
from shoal.pilot.files import web_source
from shoal.pilot.files.fetch import Fetcher, NoBlob
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.files.site_storage import storage_of
from shoal.pilot.files.web_source import WebSource
from tests.unit.pilot.files.test_fetch import DATA, DIGEST, Fake


def make(folder: Path) -> Fetcher:
    """With a server that has the file, too."""
    folder.mkdir()
    return Fetcher(HostCache(str(folder / "cache")), [Fake(SERVER, DATA)], str(folder / "beside"))


def test_a_file_comes_from_the_storage_of_the_site_if_it_is_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "se" / "run1").mkdir(parents=True)
    here, fetcher = tmp_path / "se" / "run1" / "a.root", make(tmp_path / "1")
    near = storage_of("data/run1/a.root", [Rule("data/", f"{tmp_path}/se/")])
    here.write_bytes(b"a newer file")
    assert fetcher.fetch(DIGEST, len(DATA), near).origin == SERVER
    assert not fetcher.take_failures(), "that there is another one is no fault of the storage"
    here.write_bytes(DATA[::-1])
    fetcher = make(tmp_path / "2")
    assert fetcher.fetch(DIGEST, len(DATA), near).origin == SERVER
    assert [one.place.kind for one in fetcher.take_failures()] == [STORAGE]
    here.write_bytes(DATA)
    assert make(tmp_path / "3").fetch(DIGEST, len(DATA), near).origin == STORAGE


class Web(http.server.BaseHTTPRequestHandler):
    """Breaks off in the middle as often as `cuts` says, and knows ranges if it may."""

    cuts, ranges = 0, True
    taken = threading.Event()
    data, tag, newer = DATA, "", b""  # `newer`: what the file is once it was asked for, with another tag
    asked: list[str] = []  # noqa: RUF012 - replaced by the fixture

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Range", ""))
        data, tag = Web.data, Web.tag
        if Web.newer:
            Web.data, Web.tag, Web.newer = Web.newer, Web.tag.replace("1", "2"), b""
        if self.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"a")
            Web.asked.append(f"taken: {Web.taken.wait(10.0)}")
            self.wfile.write(b"b")
            return
        if self.path != "/x":
            self.send_error({"/busy": 503}.get(self.path, 404))
            return
        is_rest = self.ranges and "Range" in self.headers and self.headers.get("If-Range", tag) == tag
        begin = int(self.headers["Range"][6:-1]) if is_rest else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        if tag:
            self.send_header("Last-Modified" if "GMT" in tag else "ETag", tag)
        self.end_headers()
        data = data[begin:]
        if Web.cuts:
            Web.cuts -= 1
            data = data[:10_000]
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(web_source, "PAUSE", 0.001)
    for name, value in (("asked", []), ("data", DATA), ("tag", ""), ("newer", b"")):
        monkeypatch.setattr(Web, name, value)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_transfer_that_breaks_off_goes_on(
    web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    monkeypatch.setattr(Web, "ranges", ranges)
    monkeypatch.setattr(Web, "cuts", 1)
    fetched = Fetcher(HostCache(str(tmp_path / "c"))).fetch(DIGEST, None, [WebSource(f"{web}/x")])
    assert fetched.origin == ORIGIN and Path(fetched.held.path).read_bytes() == DATA
    assert Web.asked == ["", "bytes=10000-"]


@pytest.mark.parametrize("tag", ["", '"v1"', 'W/"v1"', "Thu, 01 Oct 2026 10:00:00 GMT"])
@pytest.mark.parametrize("is_changed", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changed_while_it_came_is_not_joined_of_two(
    web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str, is_changed: bool, ranges: bool
) -> None:
    """Without a digest nothing else shows it."""
    newer = DATA[::-1] if is_changed else DATA
    monkeypatch.setattr(Web, "ranges", ranges)
    monkeypatch.setattr(Web, "cuts", 1)
    monkeypatch.setattr(Web, "tag", tag)
    monkeypatch.setattr(Web, "newer", newer if is_changed else b"")
    fetcher = Fetcher(HostCache(str(tmp_path / "c")), (), str(tmp_path / "beside"))
    fetched = fetcher.fetch_unknown(WebSource(f"{web}/x"), "r1")
    assert Path(fetched.held.path).read_bytes() == newer
    assert Web.asked == ["", "bytes=10000-" if tag and "W/" not in tag else ""]


def test_what_a_url_of_unknown_content_has_is_the_same_for_the_same_key(web: str, tmp_path: Path) -> None:
    fetcher = Fetcher(HostCache(str(tmp_path / "c")), (), str(tmp_path / "beside"))
    for key, asked in (("r1", 1), ("r1", 1), ("r2", 2)):
        fetched = fetcher.fetch_unknown(WebSource(f"{web}/x"), key)
        assert hashlib.sha256(Path(fetched.held.path).read_bytes()).hexdigest() == DIGEST[7:]
        fetched.held.close()
        assert len(Web.asked) == asked
    assert os.listdir(tmp_path / "beside") == []
    assert fetcher.cache.take_changes()[0] == [(DIGEST, len(DATA))]


def test_what_comes_slowly_is_taken_as_it_comes(web: str) -> None:
    """Else nobody could stop it until there is a whole piece."""
    came = bytearray()

    class Taken:
        written = 0

        def __call__(self, data: bytes) -> None:
            came.extend(data)
            Web.taken.set()

    WebSource(f"{web}/slow").fetch("", None, Taken(), float("inf"))  # type: ignore[arg-type]  # no more is needed
    assert came == b"ab" and Web.asked[-1] == "taken: True"


def test_what_cannot_be_had_says_why(web: str, tmp_path: Path) -> None:
    fetcher = Fetcher(HostCache(str(tmp_path / "c")), (), str(tmp_path / "beside"))
    for path, text in (("none", "404"), ("busy", "503")):
        with pytest.raises(NoBlob, match=text):
            fetcher.fetch_unknown(WebSource(f"{web}/{path}"), "r1")
        with pytest.raises(NoBlob, match=text):
            fetcher.fetch(digest_of([b"x"]), None, [WebSource(f"{web}/{path}")])
    with pytest.raises(NoBlob, match="refused"):
        fetcher.fetch_unknown(WebSource("http://127.0.0.1:9/x"), "r1")
