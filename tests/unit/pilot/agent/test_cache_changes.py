"""What the server is told of a cache: all of it once, then what changes [CMS IV.E]."""

from __future__ import annotations

import pytest

from shoal.model.limits import MAX_CACHE_CHANGES, MAX_CATALOGUE
from shoal.pilot.agent.cache_changes import CacheChanges
from shoal.pilot.agent.events import Answered, CacheChanged, Disowned, Ended, Joined, NoAnswer, Rejected, Send, Tick
from shoal.wire.messages import Exchange, Reply
from tests.unit.pilot.agent.test_agent import REGISTERED, Driver, done, lease


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def tell(driver: Driver, *here: int, gone: tuple[int, ...] = ()) -> None:
    """Files come and go."""
    driver.see(CacheChanged(tuple((digest(at), 10) for at in here), tuple(map(digest, gone))))


def told(exchange: Exchange) -> tuple[list[str], list[str]]:
    return [one.digest for one in exchange.cached], exchange.uncached


class Server:
    """What a server knows of a cache, by the exchanges that reach it."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.files = driver, set[str]()

    def hear(self, incarnation: int = 1) -> None:
        """Take and answer all that is open."""
        for seq in sorted(self.driver.open):
            exchange = self.driver.open[seq]
            self.files |= {one.digest for one in exchange.cached}
            self.files -= set(exchange.uncached)
            del self.driver.open[seq]
            self.driver.see(Answered(Reply(seq, incarnation)))


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_what_comes_and_goes_rides_with_the_next_exchange(driver: Driver) -> None:
    server = Server(driver)
    tell(driver, 1, 2)
    server.hear()
    server.hear()
    assert server.files == {digest(1), digest(2)}
    tell(driver, 3, gone=(1,))
    server.hear()
    server.hear()
    assert server.files == {digest(2), digest(3)}
    assert driver.agent.cache.is_settled


def test_a_file_that_came_and_went_before_it_was_told_is_not_told(driver: Driver) -> None:
    tell(driver, 1)
    tell(driver, gone=(1,))
    driver.settle()
    driver.answer()
    assert all(told(exchange) == ([], []) for exchange in driver.open.values())


def test_a_removal_never_overtakes_the_arrival(driver: Driver) -> None:
    tell(driver, 1)
    driver.answer()
    carrying = [exchange for exchange in driver.open.values() if exchange.cached]
    assert len(carrying) == 1
    tell(driver, gone=(1,))
    assert not any(exchange.uncached for exchange in driver.open.values()), "its arrival is still on the way"
    server = Server(driver)
    server.hear()
    server.hear()
    assert server.files == set()


def test_a_large_cache_is_told_in_parts_one_after_another(driver: Driver) -> None:
    tell(driver, *range(2 * MAX_CACHE_CHANGES + 10))
    server, parts = Server(driver), 0
    for _ in range(5):
        parts = max([parts, *(len(exchange.cached) for exchange in driver.open.values())])
        server.hear()
    assert parts == MAX_CACHE_CHANGES
    assert len(server.files) == 2 * MAX_CACHE_CHANGES + 10


def test_a_cache_beyond_all_bounds_is_told_in_part() -> None:
    changes = CacheChanges()
    changes.change(((digest(at), 1) for at in range(MAX_CATALOGUE + 5)), ())
    assert len(changes._here) == MAX_CATALOGUE


@pytest.mark.parametrize("how", ["restart", "registration"])
def test_a_server_that_forgot_is_told_everything_again(driver: Driver, how: str) -> None:
    tell(driver, 1, 2)
    server = Server(driver)
    server.hear()
    server.hear()
    server.files.clear()
    if how == "restart":
        server.hear(incarnation=2)
    else:
        driver.see(Disowned(max(driver.open)))
        driver.open.clear()
        driver.see(Tick())
        driver.see(Joined(REGISTERED))
    server.hear(incarnation=2)
    server.hear(incarnation=2)
    assert server.files == {digest(1), digest(2)}


def test_an_exchange_that_is_repeated_tells_the_same(driver: Driver) -> None:
    tell(driver, 1)
    driver.answer()
    (seq, exchange), *_ = [(seq, exchange) for seq, exchange in driver.open.items() if exchange.cached]
    tell(driver, 2, gone=(1,))
    driver.now += 0.1
    driver.see(NoAnswer(seq))
    driver.now += 60.0
    again = [action.exchange for action in driver.see(Tick()) if isinstance(action, Send)]
    assert exchange in again


def test_changes_beside_a_report_that_is_refused_are_told_later(driver: Driver) -> None:
    driver.begin(lease(1))
    driver.settle()
    tell(driver, 1)
    driver.see(Ended(done(1)))
    (seq,) = [seq for seq, exchange in driver.open.items() if exchange.reports]
    assert driver.open.pop(seq).cached
    driver.see(Rejected(seq, "a bad report", True))
    server = Server(driver)
    for _ in range(6):
        driver.now += 60.0
        driver.see(Tick())
        assert not any(exchange.reports and exchange.cached for exchange in driver.open.values())
        server.hear()
    assert server.files == {digest(1)}


def test_what_the_server_refuses_is_not_told_for_ever(driver: Driver) -> None:
    tell(driver, 1)
    driver.answer()
    (seq,) = [seq for seq, exchange in driver.open.items() if exchange.cached]
    del driver.open[seq]
    driver.see(Rejected(seq, "bad digest", True))
    driver.now += 60.0
    driver.see(Tick())
    assert driver.agent.cache.is_settled
    assert not any(exchange.cached for exchange in driver.open.values())
