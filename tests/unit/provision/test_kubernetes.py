"""Objects for Kubernetes."""

from __future__ import annotations

import json

import pytest

from shoal.model.errors import BadInput
from shoal.provision.backend import Order, Shape
from shoal.provision.kubernetes import Kubernetes

OPTIONS = {"image": "python:3.12", "namespace": "phys", "claim": "scratch", "mount": "/data/shoal"}


def test_the_object_is_never_started_again_and_ends_in_time() -> None:
    backend = Kubernetes(OPTIONS)
    command = backend.submit(Order("shoal-x-1", Shape(4, 60, 3, 2**30, 1), "/data/shoal/a", ("true",), OPTIONS), "")
    assert command.argv == ("kubectl", "--namespace", "phys", "create", "-o", "name", "-f", "-")
    spec = json.loads(command.stdin)["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (
        3,
        3,
        0,
        60,
    )
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    container = pod["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": str(2**30), "nvidia.com/gpu": "1"}
    assert container["volumeMounts"] == [{"name": "site", "mountPath": "/data/shoal"}]


def test_an_image_is_needed() -> None:
    with pytest.raises(BadInput, match="needs an image"):
        Kubernetes().submit(Order("shoal-x-1", Shape(4, 60), "/data/shoal/a", ("true",), {}), "")
