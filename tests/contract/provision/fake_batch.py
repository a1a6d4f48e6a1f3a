"""Stands in for the commands of every batch system: it is called by their names, and keeps jobs in a file beside itself.

`jobs.json` is {id: [name, state]} with the states of Shoal; tests change them. A file `mode` makes it misbehave.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
JOBS = os.path.join(HERE, "jobs.json")
Jobs = dict[str, list[str]]


def load() -> Jobs:
    try:
        with open(JOBS) as file:
            jobs: Jobs = json.load(file)
            return jobs
    except FileNotFoundError:
        return {}


def save(jobs: Jobs) -> None:
    with open(JOBS, "w") as file:
        json.dump(jobs, file)


def add(text: str, pattern: str, id_form: str = "{}") -> str:
    """A new job, by the name that a directive gives it."""
    match = re.search(pattern, text, re.M)
    if not match:
        sys.exit("no name")
    jobs = load()
    id = id_form.format(100 + len(jobs))
    jobs[id] = [match[1], "queued"]
    save(jobs)
    return id


def end(ids: list[str]) -> None:
    jobs = load()
    for id in ids:
        if id in jobs:
            jobs[id][1] = "ended"
    save(jobs)


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def word(queued: str, running: str, ended: str, state: str) -> str:
    return {"queued": queued, "running": running, "ended": ended}[state]


def main() -> None:
    program, args = os.path.basename(sys.argv[0]), sys.argv[1:]
    mode = read(os.path.join(HERE, "mode")) if os.path.exists(os.path.join(HERE, "mode")) else ""
    if mode == "hang":
        print("trying again", file=sys.stderr, flush=True)
        time.sleep(60)
    if mode == "garbage":
        print("\x1b[1mlorem <ipsum> {dolor | 1 2 3")
        return
    if mode == "silent":
        return
    if mode == "fail":
        print("earlier\nerror: the controller does not answer", file=sys.stderr)
        sys.exit(3)
    jobs = load()
    live = {id: job for id, job in jobs.items() if job[1] != "ended"}
    if program == "sbatch":
        print(add(read(args[-1]), r"^#SBATCH --job-name=(\S+)$"))
    elif program == "squeue":
        for id, (name, state) in live.items():
            print(f"|{id}|{name}|{word('PENDING', 'RUNNING', '', state)}||{word('Priority', 'None', '', state)}")
    elif program == "sacct":
        ids = next(one.partition("=")[2] for one in args if one.startswith("--jobs=")).split(",")
        for id in ids:
            print(f"{id}|{jobs[id][0]}|TIMEOUT|n1|0:0")
    elif program == "qsub" and args[0] == "-terse":
        print(add(read(args[-1]), r"^#\$ -N (\S+)$"))
    elif program == "qsub":
        print(add(read(args[-1]), r"^#PBS -N (\S+)$", "{}.srv"))
    elif program == "qselect":
        print("\n".join(live))
    elif program == "qstat" and args[0] == "-xml":
        lines = [
            f"<job_list><JB_job_number>{id}</JB_job_number><JB_name>{name}</JB_name>"
            f"<state>{word('qw', 'r', '', state)}</state><queue_name/></job_list>"
            for id, (name, state) in live.items()
        ]
        print(f"<?xml version='1.0'?><job_info><queue_info>{''.join(lines)}</queue_info><job_info/></job_info>")
    elif program == "qstat":
        shown = {
            id: {"Job_Name": jobs[id][0], "job_state": word("Q", "R", "F", jobs[id][1]), "Exit_status": 1}
            for id in args
            if id in jobs
        }
        print(json.dumps({"timestamp": 1, "Jobs": shown}))
    elif program == "bsub":
        id = add(sys.stdin.read(), r"^#BSUB -J (\S+)$")
        print(f"Job <{id}> is submitted to default queue <normal>.")
    elif program == "bjobs":
        records = [
            {"JOBID": id, "JOB_NAME": name, "STAT": word("PEND", "RUN", "EXIT", state), "EXIT_CODE": "1"}
            for id, (name, state) in jobs.items()
        ]
        print(json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}))
    elif program == "condor_submit":
        id = add(sys.stdin.read(), r'^\+ShoalName = "(\S+)"$')
        print(f"{id}.0 - {id}.0")
    elif program in ("condor_q", "condor_history"):
        shown_here = live if program == "condor_q" else {id: jobs[id] for id in args if id in jobs}
        ads = [
            {
                "ClusterId": int(id),
                "ProcId": 0,
                "ShoalName": name,
                "JobStatus": int(word("1", "2", "4", state)),
                "ExitCode": 1,
            }
            for id, (name, state) in shown_here.items()
        ]
        print(json.dumps(ads, indent=2) if ads else "")
    elif program == "kubectl" and "create" in args:
        name = json.load(sys.stdin)["metadata"]["name"]
        save({**jobs, name: [name, "queued"]})
        print(f"job.batch/{name}")
    elif program == "kubectl" and "get" in args:
        items = []
        for name, state in jobs.values():
            ended = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
            items.append(
                {"kind": "Job", "metadata": {"name": name}, "spec": {}, "status": ended if state == "ended" else {}}
            )
            pod = {"phase": word("Pending", "Running", "Failed", state)}
            items.append({"kind": "Pod", "metadata": {"labels": {"job-name": name}}, "spec": {}, "status": pod})
        print(json.dumps({"items": items}))
    elif program == "mysub":
        jobs[f"J{len(jobs)}"] = [args[0], "queued"]
        save(jobs)
        print(f"J{len(jobs) - 1}")
    elif program == "mystat":
        for id in args:
            print(id, jobs[id][1], "because")
    else:  # scancel, qdel, bkill, condor_rm, kubectl delete, mykill
        end(args)


main()
