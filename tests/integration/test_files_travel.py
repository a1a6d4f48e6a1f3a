"""Files of tasks that run where the submitter's directory is not seen: inputs and programs go there, outputs come back.

The pilot is in a mount namespace of its own, where an empty directory lies over the submitter's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.cluster import PATIENCE, Cluster, free_port
from tests.integration.mesh_site import Site, missing
from tests.integration.test_disk import small_disk, stuff
from tests.integration.test_visible_files import other_namespace

pytestmark = pytest.mark.integration
SIM = '#!/bin/sh\ntest ! -e secret || exit 9\ncat "in/$1.txt" common > "out/$1.txt"\npwd\n'


@pytest.fixture
def pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A server that others reach, with one pilot that does not see the submitter's directory."""
    begin(cluster, monkeypatch)
    yield cluster


def begin(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a server, and a pilot that does not see the submitter's directory."""
    if os.geteuid() != 0 or subprocess.run([*other_namespace(), "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces here: that files travel was NOT tested")
    isolate(cluster, monkeypatch, cluster.start_server("--listen", f"127.0.0.1:{free_port()}"))
    empty = cluster.folder / "empty"
    empty.mkdir()
    cluster.start_pilot(2, under=other_namespace(empty, cluster.cwd))


def isolate(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    """What is typed from now on is typed in the submitter's directory, by somebody without another server."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(cluster.folder / "home" / name.lower()))
    monkeypatch.setenv("SHOAL_SERVER", server)
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    monkeypatch.chdir(cluster.cwd)
    (cluster.cwd / "secret").write_text("of the submitter")


def typed(*words: str, status: int = 0, cwd: Path | None = None) -> str:
    """What a command of a person prints."""
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE, check=False, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


@contextlib.contextmanager
def serve(files: dict[str, bytes]) -> Iterator[str]:
    """A web server with these files; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files.get(self.path)
            self.send_response(200 if data is not None else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_sim(folder: Path) -> None:
    """A program, its input for each task, and one for all."""
    (folder / "sim").write_text(SIM)
    (folder / "sim").chmod(0o755)
    (folder / "in").mkdir()
    for number in range(1, 9):
        (folder / "in" / f"{number}.txt").write_text(f"input {number}\n")
    (folder / "common").write_bytes(os.urandom(300_000))


def test_inputs_and_the_program_go_where_the_task_runs_and_outputs_come_back(pool: Cluster) -> None:
    write_sim(pool.cwd)
    words = ("--input", "in/{x}.txt", "--input", "common", "--output", "out/{x}.txt", "x=1..8", "--", "./sim", "{x}")
    said = typed("sweep", *words)
    assert "8 succeeded" in said and "8 outputs fetched" in said, said
    common = (pool.cwd / "common").read_bytes()
    for number in range(1, 9):
        assert (pool.cwd / "out" / f"{number}.txt").read_bytes() == f"input {number}\n".encode() + common
    assert not list(pool.cwd.rglob("*.part"))
    listed = typed("get", "r1", "out/[12].txt", "--list")
    assert listed.count("out/") == 2, listed
    assert "2 files" in typed("get", "r1", "out/[12].txt", "--to", "again")
    assert (pool.cwd / "again" / "out" / "2.txt").read_bytes() == (pool.cwd / "out" / "2.txt").read_bytes()
    assert "8 files there already" in typed("get", "r1"), "what is there with the same bytes is left"
    assert "8 tasks not run again" in typed("sweep", "--resume", *words), "fetched files are those that the tasks wrote"
    (pool.cwd / "in" / "1.txt").write_text("another\n")
    typed("sweep", *words)
    assert (pool.cwd / "out" / "1.txt").read_bytes() == b"another\n" + common, "an edit between two runs counts"
    assert "1 file left that are newer" in typed("get", "r1"), "an old run does not undo a new one"
    assert (pool.cwd / "out" / "1.txt").read_bytes() == b"another\n" + common
    assert "another directory" in typed("get", "r1", status=2, cwd=pool.folder)
    blobs = {path.name for path in (pool.folder / "state").rglob("*") if path.is_file()}
    name = hashlib.sha256(common).hexdigest()
    assert sum(1 for one in blobs if name in one) == 1, "the content that all of them read was sent once"


def test_a_declared_output_that_is_missing_or_leads_out_is_the_tasks_failure(pool: Cluster) -> None:
    said = typed("run", "--output", "never", "--", "true", status=125)
    assert "output never was not written" in said
    said = typed("run", "--output", "link", "--shell", "--", "ln -s /etc/passwd link", status=125)
    assert "output_refused" in said
    said = typed("run", "--output", "twin", "--shell", "--", "touch one; ln one twin", status=125)
    assert "a second name of another file" in said


def test_an_input_that_is_not_here_is_refused_before_anything_is_sent(pool: Cluster) -> None:
    assert "gone.txt" in typed("run", "--input", "gone.txt", "--", "true", status=2)
    os.mkfifo(pool.cwd / "pipe")
    assert "pipe" in typed("run", "--input", "pipe", "--", "true", status=2)
    (pool.cwd / "folder").mkdir()
    (pool.cwd / "folder" / "round").symlink_to(pool.cwd / "folder")
    assert "is a link to a directory" in typed("run", "--input", "folder", "--", "true", status=2)
    for wrong in ("https://host/", "https://anna:secret@host/x", "https://host/x#md5=1", "file://host/x"):
        said = typed("run", "--input", wrong, "--", "true", status=2)
        assert "secret" not in said
    assert "no runs" in typed("ps")


def test_directories_go_whole_and_urls_come_from_where_they_are(pool: Cluster) -> None:
    data = pool.cwd / "data"
    (data / "deep" / "empty").mkdir(parents=True)
    (data / "deep" / "a").write_text("A")
    (data / "deep" / "run").write_text("#!/bin/sh\necho ran")
    (data / "deep" / "run").chmod(0o755)
    (data / "b").symlink_to(data / "deep" / "a")
    (pool.folder / "site.dat").write_text("of the site")
    with serve({"/web.dat": b"of the web", "/x/checked": b"checked"}) as url:
        digest = hashlib.sha256(b"checked").hexdigest()
        words = ("--input", "data", "--input", f"{url}/web.dat", "--input", f"{url}/x/checked#sha256={digest}")
        near = ("--input", f"file://{pool.folder}/site.dat", "--output", "out")
        script = "data/deep/run && cat data/b data/deep/a web.dat checked site.dat > out && test -d data/deep/empty"
        said = typed("run", *words, *near, "--shell", "--", script)
        assert "ran" in said
        assert (pool.cwd / "out").read_text() == "AAof the webcheckedof the site"
        assert not (pool.cwd / "web.dat").exists(), "nothing but outputs comes into the submitter's directory"
        other = hashlib.sha256(b"other").hexdigest()
        wrong = ("--input", f"{url}/web.dat#sha256={other}", "--", "true")
        assert f"what came is not sha256:{other}" in typed("run", *wrong, status=125)
        assert "404" in typed("run", "--input", f"{url}/none", "--", "true", status=125)


def test_outputs_go_where_the_task_says_and_are_inputs_of_later_runs(pool: Cluster) -> None:
    """A directory; a path of the hosts; a URL that pilots do not know, of which the submitter's side reads and writes; and what
    one run left on the server is read by the next, though it is not here."""
    pytest.importorskip("fsspec")
    far, near = pool.folder / "far", pool.folder / "near"
    far.mkdir()
    (far / "in").write_text("from afar\n")
    (pool.cwd / "own").write_text("own\n")
    outputs = ("--output", "out", "--output", "x", "--output", "y")
    stores = ("--store", f"x=file://{near}/x.dat", "--store", f"y=local://{far}/deep/y.dat")
    script = "mkdir -p out/deep && cat in own > out/deep/a && echo b > out/b && cat in > x && cat own > y"
    said = typed("run", "--input", f"local://{far}/in", "--input", "own", *outputs, *stores, "--shell", "--", script)
    assert "succeeded" in said, said
    assert (pool.cwd / "out" / "deep" / "a").read_text() == "from afar\nown\n"
    assert (near / "x.dat").read_text() == "from afar\n" and (far / "deep" / "y.dat").read_text() == "own\n"
    assert not (pool.cwd / "x").exists() and not (pool.cwd / "y").exists()
    assert "server" in typed("get", "r1", "--list")
    listed = json.loads(typed("get", "r1", "--list", "--json"))["outputs"]
    assert [one["url"] or one["place"] for one in listed] == [
        "",
        "",
        f"file://{near}/x.dat",
        f"local://{far}/deep/y.dat",
    ]
    assert "2 files there already" in typed("get", "r1", "out/*"), "a pattern goes into directories"
    (pool.cwd / "out" / "b").unlink()
    (pool.cwd / "out" / "deep" / "a").unlink()
    (pool.cwd / "out" / "deep").rmdir()
    (pool.cwd / "out").rmdir()
    words = ("--after", "r1", "--input", "out", "--output", "all", "--shell", "--", "cat out/b out/deep/a > all")
    typed("run", *words)
    assert (pool.cwd / "all").read_text() == "b\nfrom afar\nown\n" and not (pool.cwd / "out").exists()
    said = typed("run", "--input", f"local://{far}/none", "--", "true", status=2)
    assert "there is no file" in said
    assert "is no output" in typed("run", "--output", "x", "--store", "z=file:///z", "--", "true", status=2)


def test_many_outputs_of_one_task_all_come_back(pool: Cluster) -> None:
    """What their names take was more than what rows of tasks show of a result."""
    names = [f"out/a-file-with-a-long-name-{number}" for number in range(100)]
    options = [word for name in names for word in ("--output", name)]
    script = "for n in $(seq 0 99); do echo $n | tee out/a-file-with-a-long-name-$n; done"
    typed("run", *options, "--shell", "--", script)
    assert (pool.cwd / names[99]).read_text() == "99\n"


def test_an_output_for_which_the_server_has_no_space_waits_and_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.state.mkdir(mode=0o700)
    with small_disk(cluster.state, "96m") as disk:
        begin(cluster, monkeypatch)
        go = cluster.folder / "go"
        words = (
            "run",
            "--output",
            "big",
            "--shell",
            "--",
            f"until test -e {go}; do sleep 0.05; done; head -c 30M /dev/zero > big",
        )
        terminal = cluster.folder / "terminal"
        with terminal.open("w") as output:
            run = subprocess.Popen(
                [sys.executable, "-m", "shoal.cli", *words], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        cluster.until(lambda: "r1" in typed("ps") and "runs on" in typed("why", "r1.1"), "it runs")
        stuff(disk / "other", leave=20 << 20)
        go.touch()
        cluster.until(lambda: "no space for this blob" in typed("why", "r1"), "it is told why it waits")
        assert "waits to bring" in typed("why", "r1.1")
        told = "what tasks wrote waits on their hosts: no space for this blob"
        cluster.until(lambda: told in terminal.read_text(), "the terminal says it, too")
        (disk / "other").unlink()
        assert run.wait(timeout=PATIENCE) == 0, terminal.read_text()
        assert (cluster.cwd / "big").stat().st_size == 30 << 20
        for pilot in cluster.pilots:
            pilot.kill()
        cluster.stop_server()


WORKFLOW = """
[[tasks]]
name = "gen"
shell = "echo made {x} > mid/{x}.txt; echo stored {x} > s{x}"
params = { x = "1..3" }
outputs = ["mid/{x}.txt", "s{x}"]
store = { "s{x}" = "file://GO-store/{x}" }

[[tasks]]
name = "hold"
after = ["gen"]
shell = "touch GO-waits; while ! test -e GO; do sleep 0.05; done"
inputs = ["base"]

[[tasks]]
name = "merge"
after = ["gen", "hold"]
shell = "cat base mid/1.txt mid/2.txt mid/3.txt s2 > all"
inputs = ["base", "mid/1.txt", "mid/2.txt", "mid/3.txt", "s2"]
outputs = ["all"]
"""


def test_what_a_task_wrote_is_the_input_of_those_that_wait_for_it_also_after_a_crash(pool: Cluster) -> None:
    """Which bytes says the accepted result: not a file of this name that was there before. The last task runs where the
    submitter's directory is seen, and where what the first ones wrote is not yet."""
    go = pool.folder / "go"
    (pool.cwd / "mid").mkdir()
    (pool.cwd / "mid" / "2.txt").write_text("of an earlier run\n")
    (pool.cwd / "base").write_text("base\n")
    (pool.cwd / "flow.toml").write_text(WORKFLOW.replace("GO", str(go)))
    run = typed("submit", "flow.toml").split()[-1]
    pool.until((pool.folder / "go-waits").exists, "the first step is over")
    pool.kill_server()
    pool.pilots[0].kill()
    os.environ["SHOAL_SERVER"] = pool.start_server("--listen", f"127.0.0.1:{free_port()}")
    go.touch()
    pool.start_pilot(1)
    typed("wait", run)
    assert (pool.cwd / "all").read_text() == "base\nmade 1\nmade 2\nmade 3\nstored 2\n"
    assert (pool.folder / "go-store" / "2").read_text() == "stored 2\n" and not (pool.cwd / "s2").exists()


def test_a_task_that_declares_nothing_waits_for_a_host_that_sees_its_directory(pool: Cluster) -> None:
    """What it reads and writes is not known, and must not be lost in a directory that is removed."""
    write_sim(pool.cwd)
    run = typed("submit", "--", "./sim", "1").split()[-1]
    pool.until(lambda: "no pilot sees" in typed("why", run), "it waits for a host that sees its directory")


BETWEEN = """
[workflow]
edges = "files"

[[tasks]]
name = "p"
site = "local"
shell = "mkdir -p parts; echo p > p.out; echo a > parts/a; cat secret > /dev/null"
outputs = ["p.out", "parts"]

[[tasks]]
name = "q"
site = "far"
shell = "test ! -e 'sec''ret' && cat p.out parts/a > q.out"
inputs = ["p.out", "parts"]
outputs = ["q.out"]

[[tasks]]
name = "r"
site = "local"
shell = "cat q.out p.out > r.out"
inputs = ["q.out", "p.out"]
outputs = ["r.out"]
"""


def test_files_travel_between_a_site_that_sees_the_submitters_directory_and_one_that_does_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing():
        pytest.skip(reason)
    site = Site(cluster)
    isolate(cluster, monkeypatch, str(cluster.address()["url"]))
    site.host(site="far")
    cluster.start_pilot(1)
    (cluster.cwd / "flow.toml").write_text(BETWEEN)
    assert "3 succeeded" in typed("run", "flow.toml", "--resume")
    assert (cluster.cwd / "r.out").read_text() == "p\na\np\n"
    assert (cluster.cwd / "p.out").exists() and (cluster.cwd / "parts" / "a").exists()
    assert "3 tasks not run again" in typed("run", "flow.toml", "--resume")
