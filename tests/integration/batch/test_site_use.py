"""Sites in everyday use: scouts, several hosts, switching by one word, changing limits, and what goes wrong at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.batch.person import Person
from tests.integration.batch.slurm import ACCOUNT, SlurmCluster
from tests.integration.batch.sshd import SshServer
from tests.integration.cluster import free_port

pytestmark = [pytest.mark.integration, pytest.mark.slow]
People = Callable[..., Person]


def add_local(anna: Person, name: str, *options: str) -> None:
    anna.shoal("site", "add", name, "local://", "--cores", "1", "--no-test", *options)


def sites_of(anna: Person, run: str) -> set[str]:
    """Where the tasks of a run ran."""
    return {row["site"] for row in anna.json("acct", "--by", "run,site")["rows"] if row["run"] == run}


def broken_python(anna: Person) -> str:
    """A Python that a look at the site finds good, and in which a pilot fails."""
    path = anna.work / "python"
    path.write_text('#!/bin/sh\n[ "$1" = -c ] && exec python3 "$@"\necho "no such library: libfoo" >&2\nexit 3\n')
    path.chmod(0o700)
    return str(path)


def test_scouts_run_at_once_and_the_terminal_says_what_they_took(person: People) -> None:
    anna = person()
    add_local(anna, "box", "--max-pilots", "2")
    (anna.work / "few.toml").write_text('[provision]\npolicy = "shoal"\nscouts = 1\nscout_share = 0.0\n')
    assert "scouts = 1" in anna.shoal("site", "policy", "few.toml"), "of two pilots one is left for what scouts teach"
    said = anna.shoal("sweep", "x=1..260", "--", "sh", "-c", "sleep 0.3; echo {x}")
    assert re.search(r"^  260 tasks\. \d+ scouts? running on .*local ... first result after \S+$", said, re.M), said
    found = re.search(r"^  median \S+, p95 \S+, \S+, output \S+ -> pilots of 1 core x (\S+) x (\S+)$", said, re.M)
    assert found, said
    assert found[1] != "4h00m", "the tasks are short"
    assert found[2] == "384.0M", "the least that is asked for with a task, and what the pilot takes"
    assert "260 succeeded" in said
    assert "local" in sites_of(anna, "r1"), "what is there at once is used first"
    assert "scout" not in anna.shoal("sweep", "x=1..20", "--", "true"), "a small bag has none"


def test_an_allocation_of_two_hosts_has_a_pilot_on_each(person: People, slurm: SlurmCluster) -> None:
    anna = person(**{name: value for name, value in slurm.env.items() if name.startswith(("SLURM", "PATH"))})
    options = ("--account", ACCOUNT, "--cores", "1", "--hosts", "2", "--time", "30m", "--budget", "1.2ch", "--no-test")
    anna.shoal("site", "add", "hpc", "slurm://", "--max-pilots", "4", *options)
    assert "8 succeeded" in anna.shoal("sweep", "--site", "hpc", "x=1..8", "--", "sleep", "1.{x}")
    pilots = [row for row in anna.json("acct", "--by", "site,pilot")["rows"] if row["tasks"]]
    assert len(pilots) == 2, pilots
    word = json.loads((anna.provision / "sites.json").read_bytes())["word"]  # other tests' allocations are listed, too
    listed = slurm.run("squeue", "-h", "-t", "all", "-o", "%j|%D").stdout.splitlines()
    jobs = [line for line in listed if line.startswith(f"shoal-{word}-hpc-")]
    assert {job.split("|")[1] for job in jobs} == {"2"}
    assert len(jobs) == 1, "two hosts for half an hour are one core hour; another allocation would cross the budget"


def test_a_task_file_and_an_executor_run_elsewhere_by_one_word(person: People) -> None:
    anna = person()
    add_local(anna, "box")
    add_local(anna, "hpc")
    tasks, script = anna.work / "tasks.toml", anna.work / "script.py"
    tasks.write_text('[[tasks]]\ncommand = ["true"]\nsite = "local"\n')
    script.write_text(
        "import shoal\nwith shoal.Executor(site='local') as ex:\n    print(ex.submit(abs, -3).result(), ex.run)\n"
    )
    for number, site in enumerate(("local", "box", "hpc")):
        tasks.write_text(re.sub(r'site = ".*"', f'site = "{site}"', tasks.read_text()))
        anna.shoal("run", "tasks.toml")
        assert sites_of(anna, f"r{2 * number + 1}") == {site}
        script.write_text(re.sub(r"site='.*'", f"site='{site}'", script.read_text()))
        done = subprocess.run(
            [sys.executable, str(script)], env=anna.env, cwd=anna.work, text=True, stdout=subprocess.PIPE, check=True
        )
        value, run = done.stdout.split()
        assert (value, sites_of(anna, run)) == ("3", {site})


def test_a_site_whose_test_pilot_fails_is_not_kept_and_says_why(person: People) -> None:
    anna = person()
    said = anna.shoal("site", "add", "box", "local://", "--python", broken_python(anna), status=3, within=60.0)
    assert "(exit status 3): no such library: libfoo" in said
    assert "it was not kept, and nothing of it runs" in said
    assert anna.json("site", "list")["own"] == []
    slow = anna.work / "python"
    slow.write_text('#!/bin/sh\n[ "$1" = -c ] && exec python3 "$@"\nexec sleep 600\n')
    adding = anna.start("site", "add", "box", "local://", "--python", str(slow))
    assert adding.stdout is not None
    next(line for line in adding.stdout if "the test pilot waits" in line)
    anna.wait_for(lambda: "-box-" in anna.story().splitlines()[-1])
    adding.send_signal(signal.SIGINT)
    rest, _ = adding.communicate(timeout=90)
    assert adding.returncode == 130
    assert "interrupted: site box was not kept, and nothing of it runs" in rest
    assert anna.json("site", "list")["own"] == []
    assert not [pid for pid in anna._processes() if b"sleep\x00600" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_first_pilot_that_fails_is_told_where_somebody_waits(person: People) -> None:
    anna = person()
    add_local(anna, "box", "--python", broken_python(anna))
    run = anna.start("sweep", "x=1..4", "--", "sleep", "20")  # the own machine works on them meanwhile
    assert run.stdout is not None
    line = next(text for text in run.stdout if "libfoo" in text)
    assert line.startswith("shoal: box: an allocation ended before its pilot came (exit status 3)")
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert "libfoo" in anna.shoal("why", "box"), "without `site:`, since no run has that name"
    assert "libfoo" in anna.shoal("site", "show", "box")
    assert "an allocation ended before its pilot came" in anna.shoal("site", "list")


def test_limits_change_later_and_used_hours_are_shown(person: People) -> None:
    anna = person()
    add_local(anna, "box", "--budget", "2ch", "--time", "1h", "--max-pilots", "1")
    assert "`shoal site set box` changes its limits" in anna.shoal("site", "add", "box", "local://", status=3)
    anna.shoal("submit", "--site", "box", "--array", "1-9", "--", "sleep", "600")
    anna.wait_for(lambda: anna.json("site", "list")["own"][0]["pilots"] == 1)
    assert anna.json("site", "show", "box")["left_core_hours"] == 1.0
    anna.shoal("site", "set", "box", "--max-pilots", "3", "--budget", "3ch")
    anna.wait_for(lambda: anna.json("site", "list")["own"][0]["pilots"] == 3)
    row = anna.json("site", "show", "box")
    assert (row["left_core_hours"], row["max_pilots"], row["state"]) == (
        0.0,
        3,
        "all of its budget is used or reserved",
    )
    assert row["waits"] > 0
    anna.shoal("site", "ban", "box", "--for", "1h", "--reason", "a test")
    assert "banned for 59m" in anna.shoal("site", "list")
    anna.shoal("cancel", "r1")
    assert "nothing of it runs" in anna.shoal("site", "remove", "box")


def test_sites_serve_a_group_server_elsewhere(person: People, ssh_server: Callable[..., SshServer]) -> None:
    """The keys stay with Anna: the server only sees pilots of hers, which come through her ssh connection."""
    boss, anna, sshd = person(), person(), ssh_server()
    state = boss.folder / "group"
    boss.shoal("server", "start", "--state", str(state), "--listen", f"127.0.0.1:{free_port()}")
    boss.env |= {"SHOAL_SERVER": f"unix:{state}/sock", "SHOAL_TOKEN": (state / "token").read_text().strip()}
    try:
        boss.shoal("user", "add", "anna")
        login = next(line for line in boss.shoal("token", "new", "--user", "anna").splitlines() if line.count("#") == 2)
        anna.shoal("login", "-", stdin=login)
        config = ("--ssh-config", str(sshd.client_config()), "--cores", "1", "--tunnel", "always")
        said = anna.shoal("site", "add", "box", "ssh://login", *config)
        assert "its pilots reach the server by a tunnel over ssh" in said
        assert "test pilot" in said
        assert "from the box" in anna.shoal("run", "--site", "box", "--cwd", "own", "--", "echo", "from the box")
        assert "there is no site 'elsewhere'" in anna.shoal("run", "--site", "elsewhere", "--", "true", status=125)
        assert "nothing of it runs" in anna.shoal("site", "remove", "box")
        assert not os.path.exists(state / "provision"), "nothing of the sites is on the server"
    finally:
        boss.shoal("server", "stop", "--state", str(state), status=None)
