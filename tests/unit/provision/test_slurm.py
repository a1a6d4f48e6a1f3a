"""Scripts for Slurm."""

from __future__ import annotations

from shoal.provision.backend import Order, Result, Shape
from shoal.provision.slurm import Slurm


def test_the_script_asks_for_what_was_ordered() -> None:
    options = {"partition": "gpu", "account": "phys", "constraint": "a100&[r1|r2]", "gres": "gpu:a100"}
    order = Order("shoal-x-1", Shape(8, 90_061, 1, 3 * 2**30, 2), "/data/shoal", ("sh", "a b"), options)
    assert Slurm().script(order).splitlines() == [
        "#!/bin/sh",
        "#SBATCH --no-requeue",
        "#SBATCH --job-name=shoal-x-1",
        "#SBATCH --output=/data/shoal/shoal-x-1.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --export=PATH,HOME,USER,LOGNAME,SHELL,LANG",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --time=1-1:01:01",
        "#SBATCH --mem=3072M",
        "#SBATCH --gres=gpu:a100:2",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=phys",
        "#SBATCH --constraint=a100&[r1|r2]",
        "umask 077",
        "SHOAL_ALLOCATION_ENDS=$(( $(date +%s) + 90061 ))",
        "export SHOAL_ALLOCATION_ENDS",
        "exec sh 'a b'",
    ]


def test_several_hosts_get_a_pilot_each_with_the_environment_of_the_script() -> None:
    lines = Slurm().script(Order("shoal-x-1", Shape(8, 60, 3), "/data/shoal", ("sh", "a b"), {})).splitlines()
    assert lines[-2] == "unset SLURM_EXPORT_ENV"
    assert lines[-1].startswith("exec srun --ntasks=3 --ntasks-per-node=1 --cpus-per-task=8 --export=ALL ")
    assert lines[-1].endswith(" sh 'a b'")


def test_limits_are_those_of_the_partition_that_is_used_and_of_its_smallest_host() -> None:
    out = "1-00:00:00|long|64|512000\n1:00:00|short*|32|128000\n1:00:00|short*|16|96000\n"
    assert Slurm().parse_limits(Result(0, out, "")) == (3600.0, 16, 96_000 * 2**20)
    assert Slurm({"partition": "long"}).limits().argv[-2:] == ("-p", "long")
    assert Slurm().parse_limits(Result(0, "infinite|all|4|8000\n", "")) == (None, 4, 8_000 * 2**20)
    assert Slurm().parse_limits(Result(1, "", "sinfo: error")) == (None, 0, 0)
