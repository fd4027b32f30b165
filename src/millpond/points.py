"""
Named steps at which a test may stop the process, or look in.

A step calls :func:`reached` where it would hurt most to die. Nothing happens unless a test has armed a hook.
"""

from __future__ import annotations

from collections.abc import Callable

ENGINE_POINTS = (
    "commit.frozen",
    "commit.image-staged",
    "commit.image-sealed",
    "commit.before-hooks",
    "commit.before-upload",
    "commit.uploaded",
    "commit.before-write",
    "commit.written",
    "commit.before-records-drop",
    "commit.before-cleanup",
    "commit.before-images-drop",
    "commit.ended",
    "restore.claimed",
    "restore.planned",
    "restore.store-filled",
    "restore.store-sealed",
    "restore.store-opened",
    "restore.before-cleanup",
)
"""The steps of every commit and every restore, whatever the plugins are."""

ROOM_POINTS = (
    "local.file-written",
    "local.file-linked",
    "local.manifest-written",
    "local.image-unmade",
    "local.quarantined",
    "records.before-claim",
    "records.claimed",
    "records.before-removal",
    "checkpoints.written",
    "checkpoints.before-write",
    "checkpoints.sent",
    "checkpoints.claimed",
    "checkpoints.before-claim",
    "blob.objects-sent",
    "blob.pack-sent",
    "blob.before-removal",
    "gc.before-removal",
    "rocksdb-local.files-brought",
    "rocksdb-local.image-published",
    "rocksdb-local.image-unmade",
    "fsspec.file-written",
    "fsspec.file-replaced",
    "changelog.claimed",
    "changelog.sent",
    "changelog.committed",
    "changelog.flushed",
    "changelog.before-decision",
    "changelog.decided",
    "changelog.segment-sealed",
    "changelog.compacted",
)
"""The steps within one plugin or one folder: reached where that plugin is at work."""

POINTS = (*ENGINE_POINTS, *ROOM_POINTS)
"""Every step that has a point: a name that is not here cannot be reached, and a test sees that each is used."""

_hook: Callable[[str], None] | None = None


def reached(name: str) -> None:
    """Say that the step *name* is reached; any thread."""
    if _hook is not None:
        _hook(name)


def arm(hook: Callable[[str], None] | None) -> None:
    """Call *hook* with the name of each step from now on, on the thread that reached it; None disarms."""
    global _hook  # noqa: PLW0603 - one process has one set of points
    _hook = hook
