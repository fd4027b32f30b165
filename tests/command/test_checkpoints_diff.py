"""`millpond checkpoints diff`: files as manifests tell, keys as their content tells."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from millpond.cli import main
from millpond.reading.diff import compare

Objects = Callable[..., dict[int, str]]


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["checkpoints", "diff", *map(str, args)], env={"MILLPOND_CONFIG": None})


def said(*args: object) -> dict[str, dict]:
    result = run(*args, "--json")
    assert 0 == result.exit_code, result.output
    stores: dict[str, dict] = json.loads(result.stdout)["stores"]
    return stores


@pytest.fixture
def three(object_config: Callable[..., Path], commit_objects: Objects) -> tuple[Path, dict[int, str]]:
    """A job that keeps three checkpoints."""
    config = object_config()
    config.write_text(config.read_text().replace("retain = 1", "retain = 3"))
    return config, commit_objects(config, range(1, 4))


entries = st.dictionaries(st.binary(max_size=2), st.binary(max_size=1), max_size=12)


@given(entries, entries, st.integers(0, 5))
def test_keys_are_compared_as_two_dicts_are(old: dict[bytes, bytes], new: dict[bytes, bytes], most: int):
    """One pass over two sorted runs finds what two dicts differ in, and names the first by the order of the bytes."""
    found = compare(iter(sorted(old.items())), iter(sorted(new.items())), most)

    how = dict.fromkeys(new.keys() - old.keys(), "added") | dict.fromkeys(old.keys() - new.keys(), "removed")
    how |= {key: "changed" for key in old.keys() & new.keys() if old[key] != new[key]}
    counts = {name: [*how.values()].count(name) for name in ("added", "removed", "changed")}
    assert counts | {"same": len(old.keys() & new.keys()) - counts["changed"]} == found.counts
    assert sorted(how.items())[:most] == [*found.first]


def test_keys_are_counted_and_the_first_are_named(
    three: tuple[Path, dict[int, str]], expected_after: Callable[[int], dict]
):
    """Between two checkpoints every store's added, removed, changed and same keys are those of the model."""
    config, ids = three
    before, after = expected_after(1), expected_after(3)

    found = said(ids[1], ids[3], "-c", config, "--keys", "--first", "2")

    for name in ("counts", "raw"):
        old, new = before[name], after[name]
        both = old.keys() & new.keys()
        changed = {key for key in both if old[key] != new[key]}
        keys = found[name]["keys"]
        expected = (len(new.keys() - both), len(old.keys() - both), len(changed), len(both - changed))
        assert expected == tuple(keys[each] for each in ("added", "removed", "changed", "same"))
        assert 2 >= len(keys["first"])
    assert {"key": {"hex": b"000".hex()}, "change": "removed"} == found["raw"]["keys"]["first"][0]
    assert "removed  000" in run(ids[1], ids[3], "-c", config, "--keys").stdout


def test_files_are_those_of_the_manifests(three: tuple[Path, dict[int, str]]):
    """Sizes add up: what was shared and added is the later base; a checkpoint does not differ from itself."""
    config, ids = three

    found = said(ids[1], "-c", config)
    same = said(ids[3], ids[3], "-c", config, "--keys")

    for store in found.values():
        files = store["files"]
        assert "cloud" == store["backend"]
        assert files["shared_size"] + files["added_size"] + files["changes_size"] == files["size"]
        assert files["shared_size"] + files["removed_size"] == files["size_before"]
        assert files["added"] + files["changes"] > 0
        assert store["keys"] is None
    for store in same.values():
        assert (0, 0, 0) == tuple(store["files"][each] for each in ("added", "removed", "changes"))
        assert (0, 0, 0) == tuple(store["keys"][each] for each in ("added", "removed", "changed"))


def test_without_an_object_store_the_keys_still_tell(job: tuple[Path, list[str]]):
    """For images on a disk, keys are compared, and where files are not known the reason is told."""
    config, ids = job

    found = said(ids[1], ids[3], "-t", "EWR", "-c", config, "--keys")

    assert {"added": 0, "removed": 0, "changed": 50, "same": 0} == {
        name: count for name, count in found["delays"]["keys"].items() if name != "first"
    }
    assert {"key": "UA00", "change": "changed"} == found["delays"]["keys"]["first"][0]
    assert {"key": 0, "change": "added"} in found["days"]["keys"]["first"]
    for store in found.values():
        assert (store["files"] is None) == (store["reason"] is not None)


def test_a_checkpoint_that_is_not_there_ends_it_with_3(three: tuple[Path, dict[int, str]]):
    """Both ends are looked up; a name that nobody knows is told."""
    config, ids = three

    result = run(ids[1], "nowhere", "-c", config)

    assert 3 == result.exit_code
    assert "nowhere" in result.stderr
