"""The pure parts of object stores: files or changes, packing, reads, what may go; as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.blob import policy
from millpond.blob.body import BytesPiece, FilePiece, JoinedBody
from millpond.blob.diff import diff_stores
from millpond.blob.fetch import GAP, PART, Wanted, plan_fetches
from millpond.blob.layout import TaskKeys, job_prefix, task_of
from millpond.blob.manifests import neighbours
from millpond.blob.packing import PACK, Packer, worn
from millpond.blob.policy import Chain, Limits, Way
from millpond.blob.restore import continuation
from millpond.blob.retention import Superseded, earlier, live_bytes
from millpond.checkpoint import CheckpointId
from millpond.formats.blob_manifest import BackupManifest, StoredChanges, StoredFile
from millpond.formats.blob_marker import BlobMarker, ObjectName
from millpond.formats.digest import digest_bytes

MIB = 1 << 20
DIGESTS = [digest_bytes(bytes([number])) for number in range(8)]


def named(number: int, epoch: int = 1, id: int = 1) -> str:
    return str(ObjectName(epoch, CheckpointId(id, 0), f"{number:016x}"))


def backup(files: Any = (), changes: Any = (), **others: Any) -> BackupManifest:
    pieces = [*files, *changes]
    objects = {piece.object: 1 << 40 for piece in pieces if piece.object}
    return BackupManifest("s", "rocksdb", CheckpointId(1, 0), "w", objects, files, changes, **others)


# Files or changes


@pytest.mark.parametrize(
    ("chain", "limits", "said"),
    [
        (Chain(base=100 * MIB), Limits(), None),
        (Chain(base=100 * MIB), Limits(changes=False), "turned off"),
        (Chain(base=100 * MIB, links=64), Limits(), "64 links"),
        (Chain(base=100 * MIB, links=63), Limits(), None),
        (Chain(base=100 * MIB, links=2, size=30 * MIB, raw_size=40 * MIB), Limits(), "more than half"),
        (Chain(base=100 * MIB, links=2, size=20 * MIB, raw_size=40 * MIB), Limits(), None),
        (Chain(base=10, links=3, size=1000, raw_size=2000), Limits(), None),
    ],
)
def test_when_changes_are_out_of_the_question(chain: Chain, limits: Limits, said: str | None):
    """Changes are out by setting, by the chain's length, or by its cost; what costs nothing is never too long."""
    found = policy.why_files(chain, limits)

    assert (found is None) == (said is None)
    assert said is None or said in str(found)


@pytest.mark.parametrize(
    ("new_files", "changes", "raw", "way"),
    [
        (10 * MIB, MIB, 2 * MIB, Way.CHANGES),
        (MIB, MIB, 2 * MIB, Way.FILES),
        (0, 70, 100, Way.FILES),
        (200 * MIB, 40 * MIB, 40 * MIB, Way.FILES),
        (200 * MIB, 30 * MIB, 38 * MIB, Way.CHANGES),
    ],
)
def test_the_way_follows_from_sizes(new_files: int, changes: int, raw: int, way: Way):
    """Files go where they are no more bytes, and where the chain would cost more than half of its base of 100 MiB."""
    assert policy.choose(Chain(base=100 * MIB), new_files, changes, raw).way is way


@given(st.integers(0, 1 << 40), st.lists(st.tuples(st.integers(1, MIB), st.integers(1, 4 * MIB)), max_size=200))
def test_a_chain_never_costs_more_than_allowed(base: int, commits: list[tuple[int, int]]):
    """However commits come, replaying costs at most half of the base (or next to nothing), and links stay bounded."""
    chain = Chain(base=base)
    for size, raw in commits:
        if policy.why_files(chain, Limits()) is None and policy.choose(chain, 1 << 50, size, raw).way is Way.CHANGES:
            chain = Chain(base=base, links=chain.links + 1, size=chain.size + size, raw_size=chain.raw_size + raw)
        else:
            chain = Chain(base=base)
        assert policy.cost(chain.size, chain.raw_size) <= max(policy.FREE, base / 2)
        assert chain.links <= 64


# Packing


def packer(alone: int = 8 * MIB) -> Packer:
    numbers = iter(range(100))
    return Packer(lambda: named(next(numbers)), alone)


def test_small_pieces_share_a_pack_and_large_ones_are_alone():
    """What is below the bound lies side by side in the pack; what reaches it has an object of its own."""
    packing = packer()
    small = [packing.add(FilePiece(Path("f"), 10), DIGESTS[n]) for n in range(2)]
    large = packing.add(FilePiece(Path("g"), 8 * MIB), DIGESTS[2])

    assert [(packing.pack.name, 0), (packing.pack.name, 10)] == [(p.object, p.start) for p in small]
    assert large.object not in {p.object for p in small}
    assert {packing.pack.name: 20, large.object: 8 * MIB} == packing.sizes()


def test_the_same_content_goes_once_and_nothing_needs_no_place():
    """Two files with one digest get one place; a file without a byte gets none, so it keeps no object alive."""
    packing = packer()
    places = [packing.add(FilePiece(Path(name), 10), DIGESTS[0]) for name in "fg"]

    assert places[0] == places[1]
    assert packing.add(FilePiece(Path("empty"), 0), DIGESTS[1]).object == ""
    assert packing.pack.size == 10


def test_a_pack_has_a_bound():
    """Many small files go into several packs, none beyond the bound, and the last one gets the manifests."""
    packing = packer()
    for number in range(20):
        packing.add(FilePiece(Path("f"), 7 * MIB), digest_bytes(bytes([number])))
    packing.end([b"manifest"], lambda start, length: b"footer")

    assert all(each.size <= PACK for each in packing.objects)
    assert 2 < len(packing.objects) + 1 < 6
    assert packing.pack.pieces[-2:] == [BytesPiece(b"manifest"), BytesPiece(b"footer")]


def test_an_object_is_worn_when_little_of_it_is_needed():
    """Only an object that wastes much, and of which less than a quarter is needed, is worn."""
    sizes = {"full": 10 * MIB, "half": 10 * MIB, "worn": 10 * MIB, "small": 50_000, "unused": 10 * MIB}
    live = {"full": 10 * MIB, "half": 5 * MIB, "worn": MIB, "small": 10}

    assert {"worn", "unused"} == worn(sizes, live)


@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
def test_a_joined_body_reads_like_its_pieces_together(tmp_path_factory: Any, parts: list[bytes], data: st.DataObject):
    """From any place, and again from its start, a body of files and bytes gives what one long file would."""
    folder = tmp_path_factory.mktemp("body")
    pieces: list[Any] = []
    for number, part in enumerate(parts):
        if number % 2:
            pieces.append(BytesPiece(part))
        else:
            (folder / str(number)).write_bytes(part)
            pieces.append(FilePiece(folder / str(number), len(part)))
    whole = b"".join(parts)
    body = JoinedBody(pieces)
    with body.open() as stream:
        at = data.draw(st.integers(0, len(whole) + 2))
        stream.seek(at)
        rest = stream.read()
        stream.seek(0)
        again = stream.read()

    assert (len(whole), whole[at:], whole) == (body.size, rest, again)


# Reading


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3 * PART), st.integers(1, 2 * PART)), min_size=1, max_size=12)
)
def test_reads_cover_every_piece_and_stay_bounded(places: list[tuple[int, int, int]]):
    """Every byte that is wanted is read once for its file, and no read asks for more than its bound."""
    wanted = [
        Wanted(named(o), start, size, DIGESTS[0], Path(f"{number}"), "f")
        for number, (o, start, size) in enumerate(places)
    ]
    covered: dict[Path, list[tuple[int, int]]] = {}
    for fetch in plan_fetches(wanted):
        assert fetch.length <= PART
        for part in fetch.slices:
            assert fetch.object == part.wanted.object
            assert fetch.start + part.at == part.wanted.start + part.offset
            assert part.at + part.length <= fetch.length
            covered.setdefault(part.wanted.path, []).append((part.offset, part.length))

    for piece in wanted:
        parts = sorted(covered[piece.path])
        ends = [0, *(offset + length for offset, length in parts)]
        assert ends[:-1] == [offset for offset, _ in parts]
        assert ends[-1] == piece.size


def test_small_neighbours_come_with_one_read():
    """A hundred small files side by side are one read; a far one is another."""
    side = [Wanted(named(0), n * 100, 100, DIGESTS[0], Path(str(n)), "f") for n in range(100)]
    far = Wanted(named(0), 10_000 + GAP + 1, 10, DIGESTS[0], Path("far"), "f")

    assert [10_000, 10] == [fetch.length for fetch in plan_fetches([*side, far])]


def test_manifests_side_by_side_are_one_group():
    """Manifests in one tail are read together, those of other objects apart."""
    places = {
        "b": BlobMarker(named(0), 60, 40, DIGESTS[0]),
        "a": BlobMarker(named(0), 10, 50, DIGESTS[0]),
        "c": BlobMarker(named(0), 101, 5, DIGESTS[0]),
        "d": BlobMarker(named(1), 0, 5, DIGESTS[0]),
    }

    assert [["a", "b"], ["c"], ["d"]] == neighbours(places)


BASE = StoredFile("f", 10, DIGESTS[0], named(0), 0)
LINKS = [StoredChanges(named(n), 0, 5, DIGESTS[n], 9) for n in range(1, 4)]


@pytest.mark.parametrize(
    ("older", "newer", "rest"),
    [
        (backup([BASE]), backup([BASE], LINKS), LINKS),
        (backup([BASE], LINKS[:2]), backup([BASE], LINKS), LINKS[2:]),
        (backup([BASE], LINKS), backup([BASE], LINKS), []),
        (backup([BASE], LINKS), backup([BASE], LINKS[:2]), None),
        (backup([BASE], LINKS[1:]), backup([BASE], LINKS), None),
        (backup([BASE], properties={"key": "int"}), backup([BASE], LINKS), None),
        (backup([StoredFile("f", 10, DIGESTS[5], named(0), 0)]), backup([BASE], LINKS), None),
    ],
)
def test_a_local_image_is_brought_forward_only_along_its_own_chain(older: Any, newer: Any, rest: Any):
    """Changes are put on an older image only if it is the same base with a beginning of the same chain."""
    found = continuation(older, newer)

    assert (None if rest is None else tuple(rest)) == (None if found is None else tuple(found))


# What may go


def test_shared_bytes_count_once():
    """What two stores' manifests share is counted once among what an object still has to hold."""
    one = backup([BASE, StoredFile("g", 7, DIGESTS[1], named(0), 10)])

    assert {named(0): 17} == live_bytes([one, backup([BASE])])


def test_earlier_objects_go_unless_somebody_may_need_them():
    """Of what a listing shows only unneeded objects of smaller epochs go; what is no object's name is left alone."""
    names = [named(0, epoch=1), named(1, epoch=1, id=9), named(2, epoch=2), named(3, epoch=3), "stray", "../x"]

    assert [names[0], names[1]] == earlier(names, {named(2, epoch=2)}, 2, None)
    assert [names[1]] == earlier(names, (), 2, CheckpointId(5, 0))


def test_the_superseded_wait_for_the_grace_period():
    """An object is due only after it was unneeded for the whole grace period; needed again, it starts anew."""
    old, new = named(0), named(1, id=2)
    known = Superseded()
    known.note({old}, 0)
    known.note({new}, 10)

    assert [] == known.due(69, 60, None)
    assert [old] == known.due(70, 60, None)
    assert [] == known.due(70, 60, CheckpointId(1, 0))
    known.note({old, new}, 75)
    known.note({new}, 80)
    assert [] == known.due(130, 60, None)


# Places and differences


@pytest.mark.parametrize(
    ("one", "other"), [("a", "a b"), ("a", "ab"), ("a", "a/b"), ("flights", "flights-2"), ("ä", "ä́"), ("A", "a")]
)
def test_no_jobs_or_tasks_prefix_is_anothers(one: str, other: str):
    """Whatever two jobs or tasks are called, neither's prefix begins the other's."""
    for first, second in ((one, other), (other, one)):
        assert not job_prefix(first, "1").startswith(job_prefix(second, "1"))
        assert not TaskKeys.of("j", "1", first).prefix.startswith(TaskKeys.of("j", "1", second).prefix)
        assert not TaskKeys.of("j", "1", "t").data(first).startswith(TaskKeys.of("j", "1", "t").data(second))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_a_key_says_its_task(task: str):
    """From any key of a task its name comes back, whatever it is, and the key has only characters that stores take."""
    keys = TaskKeys.of("flights", "1", task)

    assert task == task_of(job_prefix("flights", "1"), keys.records + "x")
    assert set(keys.data(task)) <= set("abcdefghijklmnopqrstuvwxyz0123456789!-_.+%@()/")
    assert all(part not in ("", ".", "..") for part in keys.records.rstrip("/").split("/"))


def test_two_checkpoints_are_compared_by_content():
    """A renamed file is no difference; new content, lost content and new changes are, with their bytes."""
    before = {"s": backup([BASE, StoredFile("g", 7, DIGESTS[1], named(0), 10)], LINKS[:1]), "gone": backup([BASE])}
    after = {"s": backup([StoredFile("renamed", 10, DIGESTS[0], named(0), 0)], LINKS[:2]), "new": backup([BASE])}
    gone, new, s = diff_stores(before, after)

    assert (("f",), 10, 10) == (gone.removed, gone.removed_size, gone.size_before)
    assert (("f",), 10, 10) == (new.added, new.added_size, new.size)
    assert ((), ("g",), 7, 1, 5) == (s.added, s.removed, s.removed_size, s.new_changes, s.new_changes_size)
    assert all(each.same for each in diff_stores(after, after))
