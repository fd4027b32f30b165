"""What a store engine promises about its images: complete, immutable, cheap to clone, damage is found."""

from __future__ import annotations

from pathlib import Path

from millpond.errors import MillpondError, StateCorruptError
from millpond.formats.digest import digest_file
from millpond.local import list_files
from millpond.local.images import matches
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.door import damages
from millpond.testing.kit.engine_bench import EngineBench, apply, expect_content

cases: Cases[EngineBench] = Cases()


def _digests(image: Path) -> dict[str, str]:
    return {file.name: digest_file(file.path) for file in list_files(image)}


@cases("image.complete", "checkpoint: an image of all that was applied; opened through a clone it holds exactly that.")
def complete(bench: EngineBench) -> None:
    """Image an empty store, a small one, one with deletions, and a larger one."""
    engine = bench.open()
    content: dict[bytes, bytes] = {}
    writes: list[dict[bytes, bytes | None]] = [
        {},
        {b"a": b"1", b"": b"", b"b": b"2"},
        {b"a": None, b"c": b"3"},
        {b"k%05d" % n: b"v" * 30 for n in range(5000)},
        {b"k%05d" % n: None for n in range(4999)},
    ]
    for number, each in enumerate(writes):
        apply(engine, each)
        content = {key: value for key, value in {**content, **each}.items() if value is not None}
        clone = bench.clone(bench.image(engine), engine)
        expect_content(content, bench.open(clone), f"image {number}")


@cases(
    "image.immutable", "checkpoint: an image never changes, whatever the engine or one opened on its clone does next."
)
def immutable(bench: EngineBench) -> None:
    """Write on, in the engine and in a clone, make more images, close; compare every file."""
    engine = bench.filled({b"k%05d" % n: b"v" * 30 for n in range(3000)})
    image = bench.image(engine)
    before = _digests(image)
    expect(before, "an image has no file")
    other = bench.open(bench.clone(image, engine))
    for each in (engine, other):
        for number in range(5):
            apply(each, {b"k%05d" % n: b"%d" % number * 20 for n in range(0, 3000, 2)})
            bench.image(each)
        each.close()
    expect_equal(before, _digests(image), "the files of an image, after its engine and a clone of it went on")
    expect_content({b"k%05d" % n: b"v" * 30 for n in range(3000)}, bench.open(bench.clone(image, engine)), "the image")


@cases("image.chain", "A database made of an image's clone goes on as if it were the first: image after image.")
def chain(bench: EngineBench) -> None:
    """Go through twelve generations of clone, write, image and close."""
    engine = bench.open()
    content: dict[bytes, bytes] = {}
    for number in range(12):
        each = {b"n": b"%d" % number, b"g%03d" % number: bytes(1000), b"g%03d" % (number - 3): None}
        apply(engine, each)
        content = {key: value for key, value in {**content, **each}.items() if value is not None}
        image = bench.image(engine)
        engine.close()
        engine = bench.open(bench.clone(image, engine))
        expect_content(content, engine, f"generation {number}")


@cases("image.cheap", "A small change costs a small image: files that `immutable` names are shared with the last.",
       level=Level.FULL)  # fmt: skip
def cheap(bench: EngineBench) -> None:
    """Change one entry of many; the files that were not linked are a small part of all."""
    engine = bench.filled({b"k%06d" % n: bytes((n * k) % 251 for k in range(60)) for n in range(bench.profile.many)})
    first = bench.image(engine)
    again = bench.open(bench.clone(first, engine))
    apply(again, {b"k000001": b"changed"})
    second = bench.image(again)
    held = {(f.path.stat().st_dev, f.path.stat().st_ino) for f in list_files(first)}
    new = sum(f.size for f in list_files(second) if (f.path.stat().st_dev, f.path.stat().st_ino) not in held)
    whole = sum(f.size for f in list_files(second))
    expect(new < whole // 2, f"after a change of one entry, {new} of the image's {whole} bytes are new")


@cases("image.parent", "checkpoint makes its folder; one that is there already is an error, and left as it is.",
       level=Level.FULL)  # fmt: skip
def parent(bench: EngineBench) -> None:
    """Make an image where one is."""
    engine = bench.filled({b"a": b"1"})
    image = bench.image(engine)
    before = _digests(image)
    engine.apply([(b"a", b"2")])
    expect_error(Exception, lambda: engine.checkpoint(image), "checkpoint into a folder that is there")
    expect_equal(before, _digests(image), "the image that was there")
    expect_content({b"a": b"2"}, engine, "the store after a checkpoint that failed")


@cases("open.read-only", "read_only changes none of its files, reads everything, and refuses to write.")
def read_only(bench: EngineBench) -> None:
    """Open a clone for reading, twice at once; compare its files."""
    content = {b"k%04d" % n: b"v" for n in range(2000)}
    engine = bench.filled(content)
    clone = bench.clone(bench.image(engine), engine)
    transient = type(engine).transient
    before = {name: digest for name, digest in _digests(clone).items() if not matches(name, transient)}
    reader = bench.open(clone, read_only=True)
    expect_content(content, reader, "a store that was opened for reading")
    expect_error(Exception, lambda: reader.apply([(b"a", b"1")]), "apply to a store that was opened for reading")
    reader.close()
    after = {name: digest for name, digest in _digests(clone).items() if not matches(name, transient)}
    expect_equal(before, after, "the files of a store that was opened for reading")


@cases(
    "open.not-ours", "What is in the folder and is no database of this engine: StateCorruptError, and it is left alone."
)
def not_ours(bench: EngineBench) -> None:
    """Open folders with a stranger's file, and with folders."""
    for name in ("stranger.txt", "sub/stranger.bin"):
        folder = bench.fresh()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"stranger")
        expect_error(StateCorruptError, lambda f=folder: bench.open(f), f"open of a folder with {name}")  # type: ignore[misc]
        expect_equal(b"stranger", (folder / name).read_bytes(), "the stranger's file")


@cases("damage.flipped-bit", "A damaged file raises StateCorruptError, at open, get or scan; a scan never ends early.")
def flipped_bit(bench: EngineBench) -> None:
    """Flip bits in each file of an image; what is read without an error has to be right."""
    _try_each(bench, same_size=True)


@cases("damage.cut", "A file that was cut short, emptied or lengthened raises StateCorruptError, or does not matter.",
       level=Level.FULL)  # fmt: skip
def cut(bench: EngineBench) -> None:
    """Change the length of each file; the core compares sizes with the image's own manifest beforehand."""
    _try_each(bench, same_size=False)


def _try_each(bench: EngineBench, *, same_size: bool) -> None:
    content = {b"k%05d" % n: b"value %d" % n * 5 for n in range(2000)}
    engine = bench.filled(content)
    image = bench.image(engine)
    noticed = 0
    for file in list_files(image):
        whole = file.path.read_bytes()
        for what, damaged in damages(whole).items():
            if (len(damaged) == len(whole)) is same_size:
                clone = bench.clone(image, engine)
                (clone / file.name).unlink()
                (clone / file.name).write_bytes(damaged)
                noticed += _is_noticed(bench, clone, content, f"{file.name} {what}")
    expect(noticed, "no damage to any file of an image is noticed")


def _is_noticed(bench: EngineBench, clone: Path, content: dict[bytes, bytes], what: str) -> bool:
    """Say whether the damage is found; what is read without an error has to be right."""
    try:
        opened = bench.open(clone)
        expect_content(content, opened, f"read without an error with {what}")
    except StateCorruptError:
        return True
    except MillpondError as error:
        raise AssertionError(f"{what} raises {type(error).__name__}, not StateCorruptError: {error}") from error
    return False


@cases(
    "damage.missing-file", "A missing file raises StateCorruptError, or the file was not needed; never an empty store."
)
def missing_file(bench: EngineBench) -> None:
    """Remove each file of an image, one at a time."""
    content = {b"k%05d" % n: b"v" * 20 for n in range(2000)}
    engine = bench.filled(content)
    image = bench.image(engine)
    for file in list_files(image):
        clone = bench.clone(image, engine)
        (clone / file.name).unlink()
        if any(clone.iterdir()):  # an empty folder is a new store: the core's own manifest knows better
            _is_noticed(bench, clone, content, f"{file.name} missing")
