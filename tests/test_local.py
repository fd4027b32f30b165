"""Tests of ``local``: names, the owner's lock, images, quarantine, and what a kill or a full disk leaves."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from millpond.checkpoint import CheckpointId
from millpond.errors import ConfigError, MillpondError, StateCorruptError, StateNotFoundError, TransientError
from millpond.formats.digest import digest_file
from millpond.formats.manifest import ImageManifest, ManifestFile
from millpond.local import (
    ReadOnlyTaskDirectory,
    TaskDirectory,
    clone_image,
    create_durably,
    current_boot,
    describe_image,
    escape_name,
    job_folder,
    known_digests,
    list_files,
    refuse_to_leave,
    unescape_name,
    write_durably,
)
from millpond.local.task import QUARANTINE_KEPT

NAME = "5-0-ab"
STEPS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}


def opened(state_dir: Path, task: str = "Partition 0") -> TaskDirectory:
    return TaskDirectory.open(state_dir, "flights", "1", task)


@pytest.fixture
def task(tmp_path: Path) -> Iterator[TaskDirectory]:
    directory = opened(tmp_path / "state")
    yield directory
    directory.close()


def manifest_of(folder: Path, store: str = "s", name: str = NAME) -> ImageManifest:
    millis, nanos, writer = name.split("-")
    files = [ManifestFile(f.name, f.size, digest_file(f.path)) for f in list_files(folder)]
    return ImageManifest(store, "memory", CheckpointId(int(millis), int(nanos)), writer, files, current_boot())


def stage(task: TaskDirectory, name: str = NAME) -> Path:
    staged = task.stage("s", name)
    staged.mkdir()
    (staged / "000001.sst").write_bytes(b"x" * 100)
    (staged / "sub").mkdir()
    (staged / "sub" / "CURRENT").write_bytes(b"MANIFEST-000004\n")
    return staged


def seal(task: TaskDirectory, name: str = NAME, *, boot: str | None = None) -> Path:
    manifest = manifest_of(stage(task, name), name=name)
    return task.seal("s", name, manifest if boot is None else evolve(manifest, boot=boot))


def identity(path: Path) -> tuple[int, int]:
    return path.stat().st_dev, path.stat().st_ino


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from pathlib import Path\nimport os, sys\n" + code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def killed_at_each_step(act: Callable[[], object]) -> Iterator[int]:
    """Run *act* in forked children that die before their first, second, … step on the disk, until one ends."""
    step = 0
    while True:
        step += 1
        pid = os.fork()
        if pid == 0:
            _die_at(step)
            act()
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        yield step
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            assert step > 3
            return


def _die_at(step: int) -> None:
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    fsync = os.fsync

    def counted_fsync(descriptor: int) -> None:
        count()
        fsync(descriptor)

    os.fsync = counted_fsync
    sys.addaudithook(lambda event, _: count() if event in STEPS else None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of its own with 256 KiB."""
    disk = tmp_path / "small disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a small file system")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


# Names


@given(st.text(min_size=1, max_size=15))
def test_a_name_comes_back(name: str) -> None:
    """Escaping loses nothing, whatever the name holds."""
    try:
        escaped = escape_name(name)
    except ConfigError:
        assert any(0xD800 <= ord(c) < 0xE000 for c in name)
        return
    assert name == unescape_name(escaped)
    assert set(escaped) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.+%")
    assert not escaped.startswith(".")


@given(st.text("abAB@/.%+ \0", min_size=1, max_size=8), st.text("abAB@/.%+ \0", min_size=1, max_size=8))
def test_different_names_differ_where_case_does_not(one: str, other: str) -> None:
    """Two names share a file name on no file system, not even on one that ignores case."""
    assert (one == other) == (escape_name(one).casefold() == escape_name(other).casefold())


@given(st.text("abAB@/.%+ 0f5e", min_size=1, max_size=8))
def test_only_escaped_names_are_taken_back(text: str) -> None:
    """A text that no name escapes to is refused instead of being read as some name."""
    try:
        name = unescape_name(text)
    except ValueError:
        return
    assert text == escape_name(name)


@pytest.mark.parametrize("name", [".", "..", "...", "a/../b", "/", "~", "é", "日本", "a\nb", "@", "%", "Partition 0"])
def test_awkward_names_stay_one_plain_part(name: str) -> None:
    """No name becomes a path with several parts, a hidden file, or the folder above."""
    escaped = escape_name(name)

    assert (escaped,) == Path(escaped).parts
    assert escaped.isascii()
    assert name == unescape_name(escaped)


def test_a_name_needs_a_length_from_1_to_200() -> None:
    """An empty name and one over 200 bytes when escaped are refused; 200 bytes are fine."""
    assert "a" * 200 == escape_name("a" * 200)
    for name in ("", "a" * 201, "A" * 101, "é" * 40):
        with pytest.raises(ConfigError):
            escape_name(name)


def test_a_job_id_is_no_part_of_the_name() -> None:
    """A job called like another one with its id has a folder of its own."""
    assert "flights" == job_folder("flights", "1")
    assert "flights@2" == job_folder("flights", "2")
    assert "flights@2" != job_folder("flights@2", "1")
    with pytest.raises(ConfigError):
        job_folder("a" * 200, "b" * 100)


# The owner


def test_a_second_owner_in_this_process_is_refused(task: TaskDirectory, tmp_path: Path) -> None:
    """One process cannot open a task twice, and the message says that it was this process."""
    with pytest.raises(TransientError, match=rf"already open in this process \(pid {os.getpid()}\)"):
        opened(tmp_path / "state")

    task.close()
    opened(tmp_path / "state").close()


def test_the_owner_is_named_and_its_death_frees_the_task(tmp_path: Path) -> None:
    """A living owner is named in the error; killed, it holds nothing, though its file is still there."""
    code = """
from millpond.local import TaskDirectory
task = TaskDirectory.open(Path(sys.argv[1]), "flights", "1", "Partition 0")
print(task.root, flush=True); sys.stdin.read()
"""
    with child(code, tmp_path) as owner:
        assert owner.stdout is not None
        root = owner.stdout.readline().strip()
        with pytest.raises(TransientError) as refused:
            opened(tmp_path)
        owner.kill()
        owner.wait()

    assert f"process {owner.pid} on" in str(refused.value)
    assert root in str(refused.value)
    assert (Path(root) / "OWNER").exists()
    opened(tmp_path).close()


def test_a_forked_child_releases_nothing(tmp_path: Path) -> None:
    """A child that closes the task that it inherited, and ends, leaves its parent the owner."""
    code = """
from millpond.local import TaskDirectory
task = TaskDirectory.open(Path(sys.argv[1]), "flights", "1", "Partition 0")
if os.fork() == 0:
    task.close()
    del task
    sys.exit()
os.wait()
print("forked", flush=True); sys.stdin.read()
"""
    with child(code, tmp_path) as owner:
        assert owner.stdout is not None
        assert "forked\n" == owner.stdout.readline()
        with pytest.raises(TransientError, match=f"process {owner.pid} "):
            opened(tmp_path)
        owner.kill()


def test_a_forked_child_does_not_keep_the_lock_alive(tmp_path: Path) -> None:
    """When the owner is killed the task is free, even if a child that it forked lives on."""
    code = """
from millpond.local import TaskDirectory
task = TaskDirectory.open(Path(sys.argv[1]), "flights", "1", "Partition 0")
pid = os.fork()
if pid == 0:
    print("child", flush=True); sys.stdin.read(); os._exit(0)
os.wait()
"""
    with child(code, tmp_path) as owner:
        assert owner.stdout is not None
        assert "child\n" == owner.stdout.readline()
        owner.kill()
        owner.wait()

        opened(tmp_path).close()


def test_two_tasks_of_which_one_is_a_prefix_do_not_meet(tmp_path: Path) -> None:
    """Tasks whose names begin alike have owners of their own."""
    first, second = opened(tmp_path, "Partition 1"), opened(tmp_path, "Partition 11")

    assert first.root != second.root
    first.close()
    second.close()


# Places


def test_a_missing_state_dir_is_made(tmp_path: Path) -> None:
    """Opening makes every missing folder, under a path with spaces and letters of any script."""
    task = opened(tmp_path / "my stäte" / "日本")

    assert task.root.is_dir()
    task.close()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """A state_dir that is a file is a ConfigError with its path."""
    (tmp_path / "state").write_text("")

    with pytest.raises(ConfigError, match=r"state.*a file is where a folder must be"):
        opened(tmp_path / "state")


def test_a_state_dir_without_permission_is_named(tmp_path: Path) -> None:
    """A folder that this user may not write is a ConfigError with its path, not a bare OSError."""
    code = """
from millpond.errors import ConfigError
from millpond.local import TaskDirectory
os.chmod(sys.argv[1], 0o500)
if os.getuid() == 0: os.setuid(65534)
try: TaskDirectory.open(Path(sys.argv[1]) / "x", "flights", "1", "t")
except ConfigError as error: print(error)
"""
    closed = tmp_path / "closed"
    closed.mkdir()
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)

    said = child(code, closed).communicate()[0]

    assert str(closed) in said
    assert "permission denied" in said


@pytest.mark.parametrize("inner", ["", "images", "images/s", "scratch", "backends/log"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, inner: str) -> None:
    """A symbolic link in a task's folder that leaves it is followed by nothing, and what it names is untouched."""
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    link = tmp_path / "state" / "flights" / "t" / inner
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)

    with pytest.raises(ConfigError, match="leads out"):
        task = TaskDirectory.open(tmp_path / "state", "flights", "1", "t")
        try:
            task.backend("log")
            task.image_names("s")
        finally:
            task.close()
    assert (outside / "kept").is_dir()


def test_what_leads_out_of_a_folder_is_refused_however_it_does(tmp_path: Path) -> None:
    """Links out, links to links, circles and ``..`` are refused; names, links within, a root that is a link are not."""
    real = tmp_path / "real"
    (real / "a" / "b").mkdir(parents=True)
    root = tmp_path / "root"
    root.symlink_to(real)
    (real / "within").symlink_to(real / "a")
    (real / "out").symlink_to(tmp_path)
    (real / "a" / "far").symlink_to(root / "out")
    (real / "circle").symlink_to(real / "circle")
    for inside in ("", "a", "a/b", "a/missing/too", "within/b", "a/../a"):
        assert refuse_to_leave(root, root / inside) == root / inside
    for outside in ("out", "out/x", "a/far", "a/far/x", "within/far", "circle", "..", "a/../..", "../root-too"):
        with pytest.raises(ConfigError, match="leads out"):
            refuse_to_leave(root, root / outside)
    with pytest.raises(ConfigError, match="leads out"):
        refuse_to_leave(root, tmp_path / "root-too")


def test_opening_removes_what_was_left_unfinished_and_nothing_else(tmp_path: Path) -> None:
    """Opening removes live folders, scratch, spill and unsealed images; sealed ones and the backends' own stay."""
    task = opened(tmp_path)
    seal(task)
    stage(task, "6-0-ab")
    (task.image("s", "7-0-ab")).mkdir()
    for folder in (task.new_live(), task.scratch("log"), task.spill(), task.clones(), task.backend("log")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text("")
    task.close()

    task = opened(tmp_path)

    assert {"OWNER", "images", "backends"} == {p.name for p in task.root.iterdir()}
    assert [NAME] == [p.name for p in task.image("s", NAME).parent.iterdir()]
    assert (task.backend("log") / "file").exists()
    task.close()


def test_the_cores_folders_are_no_backends(task: TaskDirectory) -> None:
    """Whatever a backend is called, what it may empty holds nothing of ours."""
    for name in ("clones", "images", "spill", "main.images", ".."):
        assert task.clones() not in (task.scratch(name), *task.scratch(name).parents, task.backend(name))


def test_a_refused_owner_removes_nothing(task: TaskDirectory, tmp_path: Path) -> None:
    """An opening that is refused leaves the live folder of the real owner alone."""
    live = task.new_live()

    with pytest.raises(TransientError):
        opened(tmp_path / "state")

    assert live.is_dir()


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "x.new", "MANIFEST\0"])
def test_an_image_name_cannot_leave(task: TaskDirectory, name: str) -> None:
    """What is not an image's name is refused before it becomes a path."""
    with pytest.raises(ConfigError):
        task.image("s", name)


# Images


def test_a_sealed_image_is_listed_and_verified(task: TaskDirectory, tmp_path: Path) -> None:
    """Only after seal is an image listed, also to a reader without the lock, and it is what was staged."""
    manifest = manifest_of(stage(task))
    assert [] == task.image_names("s")

    task.seal("s", NAME, manifest)

    reader = ReadOnlyTaskDirectory.at(tmp_path / "state", "flights", "1", "Partition 0")
    assert [NAME] == task.image_names("s") == reader.image_names("s")
    assert ["s"] == reader.stores()
    assert manifest == task.verify("s", NAME) == reader.manifest("s", NAME)


def test_a_reader_makes_nothing(tmp_path: Path) -> None:
    """Looking at a task that never was finds nothing and creates no folder."""
    reader = ReadOnlyTaskDirectory.at(tmp_path / "state", "flights", "1", "t")

    assert [] == reader.image_names("s")
    with pytest.raises(StateNotFoundError):
        reader.manifest("s", NAME)
    assert not (tmp_path / "state").exists()


def test_a_complete_image_is_not_sealed_again(task: TaskDirectory) -> None:
    """An image never changes: sealing its name once more is refused."""
    seal(task)

    with pytest.raises(ConfigError, match="never changes"):
        seal(task)


def test_a_manifest_of_another_image_is_refused(task: TaskDirectory) -> None:
    """Neither seal nor a read accepts the manifest of another commit or store."""
    manifest = manifest_of(stage(task))
    with pytest.raises(ConfigError):
        task.seal("s", NAME, evolve(manifest, writer="cd"))

    image = task.seal("s", NAME, manifest)
    image.rename(image.with_name("5-0-cd"))
    with pytest.raises(StateCorruptError, match="belongs to"):
        task.manifest("s", "5-0-cd")


def damage_missing(image: Path) -> None:
    (image / "000001.sst").unlink()


def damage_extra(image: Path) -> None:
    (image / "sub" / "more").write_text("")


def damage_size(image: Path) -> None:
    (image / "000001.sst").write_bytes(b"x" * 99)


def damage_link(image: Path) -> None:
    (image / "000001.sst").unlink()
    (image / "000001.sst").symlink_to("/dev/zero")


def damage_cut_manifest(image: Path) -> None:
    os.truncate(image / "MANIFEST", 120)


def damage_empty_manifest(image: Path) -> None:
    os.truncate(image / "MANIFEST", 0)


def damage_newer_manifest(image: Path) -> None:
    data = (image / "MANIFEST").read_bytes()
    (image / "MANIFEST").write_bytes(data.replace(b"millpond-manifest 1 ", b"millpond-manifest 9 ", 1))


@pytest.mark.parametrize("damage", [f for n, f in sorted(globals().items()) if n.startswith("damage_")])
def test_damage_is_found_in_the_same_boot(task: TaskDirectory, damage: Callable[[Path], None]) -> None:
    """A lost, superfluous, shortened or replaced file, or a bad manifest, is StateCorruptError even without digests."""
    damage(seal(task))

    with pytest.raises(StateCorruptError):
        task.verify("s", NAME)


@pytest.mark.parametrize("boot", ["another", ""])
def test_a_flipped_bit_is_found_after_a_reboot(task: TaskDirectory, boot: str) -> None:
    """Unless an image was sealed in this boot its digests are computed: one flipped bit is an error with the path."""
    image = seal(task, boot=boot)
    task.verify("s", NAME)
    (image / "000001.sst").write_bytes(b"x" * 99 + b"y")

    with pytest.raises(StateCorruptError, match=r"000001\.sst is damaged"):
        task.verify("s", NAME)


def test_digests_go_over_the_transfers_and_only_after_a_reboot(task: TaskDirectory) -> None:
    """Verification hands each file to the transfer pool, and none if the image was sealed in this boot."""
    handed: list[str] = []

    class Recorder:
        def map(self, work: Callable[[ManifestFile], None], items, check=None) -> list[None]:  # type: ignore[no-untyped-def]
            handed.extend(item.name for item in items)
            return [work(item) for item in items]

    seal(task, boot="another")
    seal(task, "6-0-ab")
    task.verify("s", "6-0-ab", transfers=Recorder())
    assert [] == handed

    task.verify("s", NAME, transfers=Recorder())
    assert ["000001.sst", "sub/CURRENT"] == handed


def test_a_clone_links_what_never_changes_and_copies_the_rest(task: TaskDirectory) -> None:
    """Writing to a clone's other files leaves the image as it was; lock file and manifest are not cloned."""
    image = seal(task)
    (image / "LOCK").write_text("")
    target = task.new_live() / "s"

    clone_image(image, target, immutable=["*.sst"], transient=["LOCK"])
    (target / "sub" / "CURRENT").write_bytes(b"changed")

    assert ["000001.sst", "sub/CURRENT"] == [f.name for f in list_files(target)]
    assert (image / "000001.sst").samefile(target / "000001.sst")
    assert b"MANIFEST-000004\n" == (image / "sub" / "CURRENT").read_bytes()
    assert not (target / "MANIFEST").exists()


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_a_clone_copies_where_links_fail(task: TaskDirectory, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A file system that does not link gets a full copy."""

    def refuse(source: object, target: object) -> None:
        raise OSError(number, "no links")

    image = seal(task)
    monkeypatch.setattr(os, "link", refuse)
    target = task.new_live() / "s"

    clone_image(image, target, immutable=["*.sst"], transient=[])

    assert b"x" * 100 == (target / "000001.sst").read_bytes()
    assert not (image / "000001.sst").samefile(target / "000001.sst")


def test_a_linked_file_keeps_its_digest(task: TaskDirectory) -> None:
    """A file that an earlier image holds keeps that image's digest; a new file of the same name and size has none."""
    image = seal(task)
    known = known_digests(image, task.manifest("s", NAME).files)
    staged = task.stage("s", "6-0-ab")
    clone_image(image, staged, immutable=["*.sst"], transient=[])

    found = {f.name: f.digest for f in describe_image(staged, known)}

    assert {"000001.sst": digest_file(image / "000001.sst"), "sub/CURRENT": None} == found


def test_a_file_that_grew_has_no_known_digest(task: TaskDirectory) -> None:
    """The same file with another size than its manifest says is not what was digested."""
    image = seal(task)
    known = known_digests(image, task.manifest("s", NAME).files)
    with (image / "000001.sst").open("ab") as file:
        file.write(b"y")

    assert [None, known[identity(image / "sub" / "CURRENT")].digest] == [f.digest for f in describe_image(image, known)]
    assert {identity(image / "sub" / "CURRENT")} == set(known_digests(image, task.manifest("s", NAME).files))


def test_dropped_images_are_gone_and_their_links_unchanged(task: TaskDirectory) -> None:
    """Dropping an image leaves those that are kept, and the mode and content of files that others link to."""
    first = seal(task)
    seal(task, "6-0-ab")
    live = task.new_live() / "s"
    clone_image(first, live, immutable=["*.sst"], transient=[])
    mode = (live / "000001.sst").stat().st_mode

    task.drop_images("s", keep=["6-0-ab"])

    assert ["6-0-ab"] == task.image_names("s")
    assert not first.exists()
    assert (mode, b"x" * 100) == ((live / "000001.sst").stat().st_mode, (live / "000001.sst").read_bytes())


def test_quarantine_keeps_the_newest_with_their_reasons(task: TaskDirectory) -> None:
    """What is damaged moves aside with its reason, and only the newest few are kept."""
    moved = [task.quarantine(seal(task), f"reason {n}") for n in range(QUARANTINE_KEPT + 2)]

    assert QUARANTINE_KEPT == len(list((task.root / "quarantine").iterdir()))
    assert "reason 4" in (moved[-1].parent / "REASON").read_text()
    assert (moved[-1] / "MANIFEST").exists()
    assert [] == task.image_names("s")


def test_two_stores_go_to_quarantine_at_once(task: TaskDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are restored side by side: a place that another one has just taken is passed over."""
    monkeypatch.setattr("millpond.local.task._folders", lambda _: [])  # both have looked before either has moved

    moved = [task.quarantine(seal(task), f"reason {n}") for n in range(2)]

    assert ["reason 0", "reason 1"] == [(path.parent / "REASON").read_text().splitlines()[-1] for path in moved]


def test_nothing_outside_goes_to_quarantine(task: TaskDirectory, tmp_path: Path) -> None:
    """Only parts of the task's folder can be moved aside."""
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "other", task.root, task.root / ".." / "x"):
        with pytest.raises(ConfigError):
            task.quarantine(path, "")
    assert (tmp_path / "other").is_dir()


# Kills and full disks


def test_a_kill_at_any_step_of_a_seal_leaves_a_whole_image_or_none(tmp_path: Path) -> None:
    """Whenever the process dies, the next owner finds a complete image that verifies, or none and no remains."""

    def act() -> None:
        seal(opened(tmp_path), boot="another")

    outcomes = set()
    for _ in killed_at_each_step(act):
        task = opened(tmp_path)
        names = task.image_names("s")
        outcomes.add(len(names))
        for name in names:
            task.verify("s", name)
        assert names == sorted(path.name for path in (task.root / "images").glob("s/*"))
        task.drop_images("s", keep=[])
        task.close()
    assert {0, 1} == outcomes


def test_a_kill_at_any_step_of_a_removal_leaves_a_whole_image_or_none(tmp_path: Path) -> None:
    """Whenever the process dies while it drops an image, what is still listed verifies, and the rest is cleared."""

    def act() -> None:
        opened(tmp_path).drop_images("s", keep=[])

    task = opened(tmp_path)
    seal(task, boot="another")
    task.close()
    for _ in killed_at_each_step(act):
        task = opened(tmp_path)
        names = task.image_names("s")
        for name in names:
            task.verify("s", name)
        assert names == sorted(path.name for path in (task.root / "images").glob("s/*"))
        if not names:
            seal(task, boot="another")
        task.close()


def test_a_kill_at_any_step_of_a_creation_leaves_the_whole_file_or_none(tmp_path: Path) -> None:
    """Whenever a creator dies, its file is there with all its bytes, or not there at all."""
    path = tmp_path / "record"
    outcomes = set()
    for _ in killed_at_each_step(lambda: create_durably(path, b"data" * 1000)):
        outcomes.add(path.read_bytes() if path.exists() else None)
        path.unlink(missing_ok=True)
    assert {None, b"data" * 1000} == outcomes


def test_a_kill_at_any_step_of_a_replacement_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Whenever a writer dies, the file has its old bytes or its new ones."""
    path = tmp_path / "file"
    outcomes = set()
    path.write_bytes(b"old")
    for _ in killed_at_each_step(lambda: write_durably(path, b"new")):
        outcomes.add(path.read_bytes())
        path.write_bytes(b"old")
    assert {b"old", b"new"} == outcomes


def test_a_full_disk_shows_nothing_half_done_and_is_over_when_there_is_space(small_disk: Path) -> None:
    """A seal on a full disk is a TransientError with the path, no image appears, and the same seal works later."""
    task = opened(small_disk)
    manifest = manifest_of(stage(task))
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)

    with pytest.raises(TransientError, match=r"small disk.*the disk is full"):
        task.seal("s", NAME, manifest)
    assert [] == task.image_names("s")
    with pytest.raises(TransientError, match="the disk is full"):
        create_durably(small_disk / "record", b"x" * 4096)
    assert not (small_disk / "record").exists()

    filler.unlink()
    task.seal("s", NAME, manifest)
    assert manifest == task.verify("s", NAME)
    task.close()


def test_a_read_only_disk_is_said_to_be_one(small_disk: Path) -> None:
    """On a disk that is mounted read-only opening is an error of ours that says so."""
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    with pytest.raises(MillpondError, match="read-only"):
        opened(small_disk / "state")


def test_a_state_dir_that_vanished_is_an_error_of_ours(task: TaskDirectory, tmp_path: Path) -> None:
    """When someone removes the folder of a running task, the next step is a TransientError that says what happened."""
    manifest = manifest_of(stage(task))
    (tmp_path / "state").rename(tmp_path / "away")

    with pytest.raises(TransientError, match="something other than Millpond removes files"):
        task.seal("s", NAME, manifest)
