"""A task's directories on the local disk: names, owner lock, atomic swaps, quarantine."""

from millpond.local.durable import (
    create_durably,
    explained,
    fsync_directory,
    fsync_file,
    fsync_tree,
    is_temporary,
    links_fail,
    make_folders,
    write_durably,
)
from millpond.local.images import (
    MANIFEST,
    FileIdentity,
    ImageFile,
    clone_image,
    current_boot,
    describe_image,
    known_digests,
    list_files,
    read_manifest,
    verify_files,
)
from millpond.local.names import escape_name, job_folder, unescape_name
from millpond.local.task import ReadOnlyTaskDirectory, TaskDirectory, refuse_to_leave, task_root

__all__ = [
    "MANIFEST",
    "FileIdentity",
    "ImageFile",
    "ReadOnlyTaskDirectory",
    "TaskDirectory",
    "clone_image",
    "create_durably",
    "current_boot",
    "describe_image",
    "escape_name",
    "explained",
    "fsync_directory",
    "fsync_file",
    "fsync_tree",
    "is_temporary",
    "job_folder",
    "known_digests",
    "links_fail",
    "list_files",
    "make_folders",
    "read_manifest",
    "refuse_to_leave",
    "task_root",
    "unescape_name",
    "verify_files",
    "write_durably",
]
