"""What a cache lets go for a new file: never more than its space, never a file in use, the least recently used first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.data.catalogue import Catalogue


def filled(*sizes: int, most: int = 100, reserve: int = 0) -> Catalogue:
    """Files a, b, c ... that were used in this order."""
    made = Catalogue(most, reserve)
    for at, size in enumerate(sizes):
        assert made.admit("abcdefgh"[at], size, float(at)) == []
    return made


def sizes(made: Catalogue) -> dict[str, int]:
    """The files with their sizes."""
    return {one: entry.size for one in made if (entry := made.get(one)) is not None}


def test_the_space_is_the_maximum_less_the_reserve() -> None:
    """[CMS IV.C] The total that can be used for caching is the maximal space less what tasks need."""
    made = filled(40, 40, most=100, reserve=20)
    assert made.space == 80 and made.held == 80
    assert made.admit("x", 1, 9.0) == ["a"]
    assert Catalogue(10, 20).space == 0


def test_least_recently_used_files_go_until_the_new_one_fits() -> None:
    made = filled(30, 30, 40)
    made.use("a", 9.0)
    assert made.admit("x", 60, 10.0) == ["b", "c"]
    assert sorted(made) == ["a", "x"] and made.held == 90


def test_what_is_in_use_stays_and_what_cannot_fit_changes_nothing() -> None:
    made = filled(50, 50)
    made.pin("a")
    assert made.admit("x", 60, 9.0) is None and sorted(made) == ["a", "b"]
    assert made.admit("x", 50, 9.0) == ["b"]
    assert made.admit("y", 101, 9.0) is None
    made.unpin("a")
    assert made.admit("y", 50, 9.0) == ["a"]


def test_a_file_that_grows_makes_others_go_but_not_itself() -> None:
    made = filled(50, 10)
    assert made.admit("b", 60, 9.0) == ["a"] and made.held == 60


def test_where_the_space_shrinks_the_next_file_makes_room_for_all() -> None:
    made = filled(40, 40)
    made.most = 50
    assert made.admit("x", 10, 9.0) == ["a"]


@given(
    st.integers(0, 200),
    st.integers(0, 50),
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 120), st.sampled_from(["admit", "pin", "unpin", "use"]))
    ),
)
def test_the_space_is_never_exceeded_and_no_used_file_goes(
    most: int, reserve: int, steps: list[tuple[str, int, str]]
) -> None:
    made, pinned = Catalogue(most, reserve), dict[str, int]()
    for now, (name, size, what) in enumerate(steps):
        before = sizes(made)
        if what == "admit" and name not in made:
            going = made.admit(name, size, float(now))
            assert (going is None) == (size + sum(before[one] for one in pinned) > made.space)
            assert going is not None or sizes(made) == before
            assert not set(going or []) & set(pinned)
        elif name in made and what == "pin":
            made.pin(name)
            pinned[name] = pinned.get(name, 0) + 1
        elif name in made and what == "unpin" and name in pinned:
            made.unpin(name)
            pinned[name] -= 1
            if not pinned[name]:
                del pinned[name]
        elif name in made and what == "use":
            made.use(name, float(now))
        assert made.held == sum(sizes(made).values()) <= made.space
