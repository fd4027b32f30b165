"""A walk through folders gives what a sorted, filtered list of keys would."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from millpond_fsspec.walking import Child, unfinished, walk

parts = st.text(alphabet="ab-.!+z0", min_size=1, max_size=3).filter(lambda part: part not in (".", ".."))
keys = st.lists(parts, min_size=1, max_size=4).map("/".join)


def without_folders(found: list[str]) -> list[str]:
    return [key for key in found if not any(other.startswith(f"{key}/") for other in found)]


def folder_of(names: list[str], asked: list[str]):
    def list_folder(folder: str) -> Iterable[Child]:
        asked.append(folder)
        below = [name[len(folder) :].partition("/") for name in names if name.startswith(folder)]
        return [Child(name, slash == "/", 1, 2) for name, slash in {(head, slash) for head, slash, _ in below}]

    return list_folder


@given(st.lists(keys, max_size=30).map(without_folders), keys, st.integers(0, 5), st.one_of(st.just(""), keys))
def test_a_walk_is_a_sorted_filtered_list(names: list[str], near: str, cut: int, after: str):
    """For any keys, prefix and start the walk gives those keys in order, each once, and looks into no folder twice."""
    prefix, asked = near[:cut], []

    found = [entry.key for entry in walk(folder_of(names, asked), prefix, after)]

    assert sorted({name for name in names if name.startswith(prefix) and name > after}) == found
    assert len(asked) == len(set(asked))


def test_a_walk_asks_for_one_folder_where_one_matters():
    """A listing of one task's records looks into no other folder."""
    asked: list[str] = []
    names = [f"job/task-{number}/records/{record}" for number in range(50) for record in range(3)]

    list(walk(folder_of(names, asked), "job/task-7/records/"))

    assert ["job/task-7/records/"] == asked


def test_a_walk_looks_only_as_far_as_it_is_followed():
    """The first object of a large tree costs the folders above it."""
    asked: list[str] = []
    names = [f"job/task-{number:02d}/records/{record}" for number in range(50) for record in range(3)]

    next(walk(folder_of(names, asked), "job/", after="job/task-30/~"))

    assert ["job/", "job/task-30/", "job/task-31/", "job/task-31/records/"] == asked


def test_unfinished_uploads_are_no_objects():
    """What a killed writer left is in no listing of objects, and in the one of unfinished uploads."""
    names = ["a/data/1", "a/data/2~0123", "a/data/.new-0123", "a/data/~0"]

    assert ["a/data/1"] == [entry.key for entry in walk(folder_of(names, []), "a/")]
    assert [("a/data/.new-0123", "a/data/.new-0123"), ("a/data/2~0123", "a/data/2"), ("a/data/~0", "a/data/")] == [
        (entry.key, key) for entry, key in unfinished(folder_of(names, []), "a/")
    ]
