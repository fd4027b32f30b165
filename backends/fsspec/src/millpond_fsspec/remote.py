"""Object stores whose client is asynchronous: fsspec's loop runs it, we wait, and not for ever."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from millpond_fsspec.failures import Kind, kind_of
from millpond_fsspec.store import FsspecStore

T = TypeVar("T")

_END = object()
_AT_ONCE = 16
_SIZE_OF_REMOVAL = 32 << 10  # what one weighs in the deadline of many


class RemoteStore(FsspecStore):
    """A store behind a coroutine API. A call that is over time is cancelled, not left behind."""

    def _wait(self, fs: Any, work: Coroutine[Any, Any, T], size: int = 0) -> T:
        """Run *work*, which moves *size* bytes, on the file system's own loop."""
        future = asyncio.run_coroutine_threadsafe(work, fs.loop)
        try:
            return future.result(self.place.deadline_s(size))
        except (FutureTimeoutError, TimeoutError):
            future.cancel()
            raise TimeoutError(f"gave up after {self.place.deadline_s(size):.0f} s") from None
        except BaseException:
            future.cancel()
            raise

    def _delete(self, fs: Any, keys: Collection[str]) -> None:
        self._wait(fs, self._remove_all(fs, sorted(keys)), len(keys) * _SIZE_OF_REMOVAL)

    async def _remove_all(self, fs: Any, keys: list[str]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def remove(key: str) -> None:
            async with gate:
                await self._remove(fs, key)

        done = await asyncio.gather(*map(remove, keys), return_exceptions=True)
        for failed in (each for each in done if isinstance(each, BaseException)):
            if not isinstance(failed, Exception) or kind_of(failed) is not Kind.MISSING:
                raise failed

    @abstractmethod
    async def _remove(self, fs: Any, key: str) -> None:
        """Remove one object."""

    def _pages(self, fs: Any, pages: AsyncIterator[T]) -> Iterator[T]:
        """Give each page as it comes: the next is asked for when it is wanted."""

        async def following() -> Any:
            return await anext(pages, _END)

        while (page := self._wait(fs, following())) is not _END:
            yield page
