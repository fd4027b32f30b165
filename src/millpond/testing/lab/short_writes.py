"""A library for LD_PRELOAD that lets each write to a file, and each copy, do only half of what was asked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

static size_t half(int fd, size_t size)
{
    struct stat status;
    return size > 1 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? (size + 1) / 2 : size;
}

#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, #name)

typedef ssize_t (*write_type)(int, const void *, size_t);
typedef ssize_t (*pwrite_type)(int, const void *, size_t, off_t);
typedef ssize_t (*sendfile_type)(int, int, off_t *, size_t);

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write, write_type);
    return real(fd, data, half(fd, size));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t place)
{
    REAL(pwrite, pwrite_type);
    return real(fd, data, half(fd, size), place);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t place)
{
    REAL(pwrite64, pwrite_type);
    return real(fd, data, half(fd, size), place);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    for (int at = 0; at < count; at++)
        if (parts[at].iov_len)
            return write(fd, parts[at].iov_base, parts[at].iov_len);
    return 0;
}

ssize_t sendfile(int to, int from, off_t *place, size_t size)
{
    REAL(sendfile, sendfile_type);
    return real(to, from, place, half(to, size));
}
"""


def build(folder: Path) -> Path | None:
    """Build the library in *folder*; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "short_writes.so"
    source = folder / "short_writes.c"
    source.write_text(_SOURCE, "ascii")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own source
    return library
