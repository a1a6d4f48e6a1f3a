"""The network of simulated worlds."""

from __future__ import annotations

from random import Random

import pytest

from shoal.sim.clock import Clock
from shoal.sim.distributions import Constant, Uniform
from shoal.sim.network import REPLY, REQUEST, Link, Network

TIMEOUT = 30.0


class Net:
    """A network with one link, and what happened on it."""

    def __init__(self, link: Link) -> None:
        self.clock = Clock(0.0)
        self.kinds: list[str] = []
        self.network = Network(self.clock, Random(1), lambda end: link, TIMEOUT, self.kinds.append)
        self.arrived: list[tuple[float, int]] = []
        self.lost: list[float] = []

    def send(self, number: int = 0, kind: str = REQUEST, size: int = 0, end: str = "a") -> None:
        """Send one message."""
        self.network.send(
            kind,
            end,
            lambda: self.arrived.append((self.clock.now, number)),
            lambda: self.lost.append(self.clock.now),
            size,
        )

    def settle(self) -> None:
        """Let everything arrive."""
        while self.clock.step():
            pass


def test_latency_and_bandwidth_add_up() -> None:
    net = Net(Link(Constant(0.5), bandwidth=100.0))
    net.send(size=200)
    net.settle()
    assert net.arrived == [(2.5, 0)]


def test_messages_are_lost_and_duplicated_as_often_as_asked() -> None:
    net = Net(Link(Constant(0.1), loss=0.2, duplicate=0.1))
    for number in range(5_000):
        net.send(number)
    net.settle()
    assert len(net.lost) == pytest.approx(1_000, rel=0.1)
    assert net.lost[0] == TIMEOUT
    assert len(net.arrived) - len({number for _, number in net.arrived}) == pytest.approx(400, rel=0.2)


def test_a_slow_message_is_overtaken() -> None:
    net = Net(Link(Uniform(0.01, 0.02), slow=0.1, delay=Constant(5.0)))
    for number in range(200):
        net.clock.at(float(number), lambda n=number: net.send(n))  # type: ignore[misc]  # bound now
    net.settle()
    order = [number for _, number in net.arrived]
    assert order != sorted(order)
    assert "reorder" in net.kinds


def test_a_one_way_cut_loses_one_kind_only_until_it_is_mended() -> None:
    net = Net(Link(Constant(0.1)))
    net.network.cut(["a"], (REPLY,))
    net.send(1, REPLY)
    net.send(2, REQUEST)
    net.send(3, REPLY, end="b")
    net.settle()
    assert sorted(number for _, number in net.arrived) == [2, 3]
    assert len(net.lost) == 1
    net.network.mend(["a"])
    net.send(4, REPLY)
    net.settle()
    assert net.arrived[-1][1] == 4


def test_a_partition_loses_both_kinds_of_several_ends() -> None:
    net = Net(Link(Constant(0.1)))
    net.network.cut(["a", "b"])
    for kind in (REQUEST, REPLY):
        for end in "abc":
            net.send(kind=kind, end=end)
    net.settle()
    assert len(net.arrived) == 2
    assert len(net.lost) == 4
