"""Kubernetes: a Job for each allocation, with as many pods at once as it has hosts; through kubectl.

Pods see no file of the machine where kubectl runs: the option `claim` names a volume that is mounted at the directory of
the order, or at `mount`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.model.errors import BadInput
from shoal.provision import batch_script
from shoal.provision.backend import ENDED, QUEUED, RUNNING, BackendError, Command, Order, Result, Status
from shoal.provision.batch_values import check_options

LABEL = {"app.kubernetes.io/managed-by": "shoal"}
SELECTOR = ",".join(f"{name}={value}" for name, value in LABEL.items())
CREATED = re.compile(r"^job(?:\.batch)?/([a-z0-9][a-z0-9.-]*)$", re.M)
MAX_NAME = 63  # of a Job, which becomes a label of its pods
KEPT = 3600  # seconds for which an ended Job can still be seen


class Kubernetes:
    """Jobs of a namespace."""

    name = "kubernetes"
    options = frozenset({"image", "namespace", "claim", "mount", "gpu_resource", "service_account", "queue"})

    def __init__(self, options: Mapping[str, str] = batch_script.NO_OPTIONS) -> None:
        """Every command needs the namespace."""
        namespace = options.get("namespace")
        self._kubectl = ("kubectl", *(("--namespace", namespace) if namespace else ()))

    def script(self, order: Order) -> str:
        """What the container runs; it is part of the object."""
        batch_script.check_order(order)
        return batch_script.script(order, (), batch_script.start_here(order))

    def submit(self, order: Order, script: str) -> Command:
        """The object goes through standard input."""
        return Command((*self._kubectl, "create", "-o", "name", "-f", "-"), json.dumps(self.job(order)))

    def job(self, order: Order) -> dict[str, Any]:
        """The object: never started again, ended by Kubernetes when its time is over."""
        options = check_options(order.options, self.options, self.name)
        shape = order.shape
        if "image" not in options:
            hint = "an image with Python 3.9 or newer, such as python:3.12-slim"
            raise BadInput("a Kubernetes site needs an image", code="bad_batch_value", field="image", hint=hint)
        if len(order.name) > MAX_NAME:
            raise BadInput("the name is too long", code="bad_batch_value", field="name", hint=f"at most {MAX_NAME}")
        limits = {
            "cpu": str(shape.cores),
            **({"memory": str(shape.memory)} if shape.memory else {}),
            **({options.get("gpu_resource", "nvidia.com/gpu"): str(shape.gpus)} if shape.gpus else {}),
        }
        container: dict[str, Any] = {
            "name": "pilot",
            "image": options["image"],
            "command": ["/bin/sh", "-c", self.script(order)],
            "resources": {"requests": limits, "limits": limits},
        }
        pod: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": "service_account" in options,
            "containers": [container],
        }
        if "service_account" in options:
            pod["serviceAccountName"] = options["service_account"]
        if "claim" in options:
            container["volumeMounts"] = [{"name": "site", "mountPath": options.get("mount", order.directory)}]
            pod["volumes"] = [{"name": "site", "persistentVolumeClaim": {"claimName": options["claim"]}}]
        labels = {**LABEL, **({"kueue.x-k8s.io/queue-name": options["queue"]} if "queue" in options else {})}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": order.name, "labels": labels},
            "spec": {
                "parallelism": shape.hosts,
                "completions": shape.hosts,
                "backoffLimit": 0,
                "activeDeadlineSeconds": shape.seconds,
                "ttlSecondsAfterFinished": KEPT,
                "template": {"metadata": {"labels": LABEL}, "spec": pod},
            },
        }

    def parse_submit(self, result: Result) -> str:
        """`job.batch/NAME`: the name is the id."""
        out = batch_script.expect_success("kubectl", result)
        return batch_script.find_id("kubectl", CREATED.findall(out), result)

    def status(self, prefix: str, ids: Sequence[str]) -> Command:
        """Jobs and their pods in one answer."""
        return Command((*self._kubectl, "get", "jobs,pods", "-l", SELECTOR, "-o", "json"))

    def parse_status(self, result: Result, prefix: str, ids: Sequence[str]) -> list[Status]:
        """The conditions of a Job say whether it has ended; its pods, whether it runs and why not."""
        text = batch_script.expect_success("kubectl", result)
        try:
            items = json.loads(text)["items"]
            pods: dict[str, list[dict[str, Any]]] = {}
            for item in items:
                if item["kind"] == "Pod":
                    labels = item["metadata"].get("labels") or {}
                    owner = labels.get("batch.kubernetes.io/job-name") or labels.get("job-name", "")
                    pods.setdefault(owner, []).append(item)
            jobs = [item for item in items if item["kind"] == "Job" and item["metadata"]["name"].startswith(prefix)]
            return [_status(job, pods.get(job["metadata"]["name"], [])) for job in jobs]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise batch_script.not_understood("kubectl", result) from None

    def cancel(self, ids: Sequence[str]) -> Command:
        """Pods go with their Job."""
        if any(id.startswith("-") for id in ids):
            raise BackendError("not the name of a Job")
        return Command((*self._kubectl, "delete", "job", "--ignore-not-found", "--wait=false", *ids))


def _status(job: dict[str, Any], pods: list[dict[str, Any]]) -> Status:
    name = job["metadata"]["name"]
    hosts = ",".join(sorted({pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}))
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            failed = "" if condition["type"] == "Complete" else _why_ended(pods) or condition.get("reason", "Failed")
            return Status(name, name, ENDED, failed, hosts)
    if any(pod["status"].get("phase") == "Running" for pod in pods):
        return Status(name, name, RUNNING, "", hosts)
    waits = "Suspended" if job["spec"].get("suspend") else ""
    return Status(name, name, QUEUED, next(filter(None, map(_why_waits, pods)), waits), hosts)


def _why_waits(pod: dict[str, Any]) -> str:
    """ImagePullBackOff, Unschedulable with what is missing, ..."""
    for container in pod["status"].get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason", ""))
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
    return ""


def _why_ended(pods: list[dict[str, Any]]) -> str:
    """OOMKilled, Evicted, or an exit status other than 0."""
    for pod in pods:
        for container in pod["status"].get("containerStatuses") or []:
            ended = (container.get("state") or {}).get("terminated")
            if ended and ended.get("reason") not in (None, "Completed", "Error"):
                return str(ended["reason"])
            if ended and ended.get("exitCode"):
                return f"exit status {ended['exitCode']}"
        if pod["status"].get("reason"):
            return str(pod["status"]["reason"])
    return ""
