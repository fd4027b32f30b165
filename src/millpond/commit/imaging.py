"""The images of a commit's dirty stores: staged on the apply lane, sealed on the commit lane."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.commit.attempt import Attempt
from millpond.commit.decisions import outcome
from millpond.commit.parts import CommitPolicy, CommitTask
from millpond.commit.stores import CommittedStore
from millpond.errors import MillpondError, StoreClosedError
from millpond.events import CleanupFailed, ImageMade
from millpond.local import fsync_tree
from millpond.points import reached
from millpond.stores.images import Image, Made, Sealing, discard


class Imaging:
    """Makes, seals and drops the images of one task's stores."""

    def __init__(self, task: CommitTask, policy: CommitPolicy, stores: Mapping[str, CommittedStore]) -> None:
        """Make images of *stores*."""
        self._task = task
        self._policy = policy
        self._stores = stores

    def stage_hosted(self, attempt: Attempt) -> None:
        """
        Let the host's own databases make their images, on the processing thread.

        Raises:
            CommitFailedError: One could not; it fails this commit and nothing else.
        """
        for name in attempt.marks:
            if self._stores[name].hosted:
                try:
                    self._make(attempt, self._stores[name])
                except Exception as error:  # noqa: BLE001 - the host's own
                    told = outcome(error, f"checkpoint() of the host's database {name!r}")
                    raise told from told.__cause__

    def stage(self, attempt: Attempt) -> None:
        """Make the images of all dirty stores; on the apply lane, behind the runs that belong to them."""
        for name in attempt.marks:
            self._stage(attempt, self._stores[name])

    def _stage(self, attempt: Attempt, store: CommittedStore) -> None:
        attempt.check(self._task.now())
        if store.buffered.failure is not None:
            raise StoreClosedError(f"store {store.name!r} has failed: {store.buffered.failure}")
        if store.name in attempt.unchanged and store.image is not None:
            attempt.images[store.name] = store.image
            return
        if store.hosted:
            fsync_tree(attempt.images[store.name].path)
        else:
            self._make(attempt, store)
        reached("commit.image-staged")

    def _make(self, attempt: Attempt, store: CommittedStore) -> None:
        name = Made(attempt.id, self._task.claim.writer).image
        staged = self._task.directory.stage(store.name, name)
        attempt.images[store.name] = Image(store.name, name, staged)
        store.buffered.checkpoint(staged)

    def go_on_with_published(self, attempt: Attempt) -> None:
        """
        Drop the images of stores of which the last checkpoint turns out to hold all, and take its own; commit lane.

        An earlier commit's outcome was unknown when these images were made. Nobody is asked to back them up, since
        that commit has been: so its images are those of this one, too.
        """
        for name, mark in attempt.marks.items():
            store, image = self._stores[name], attempt.images.get(name)
            if mark == store.mark and store.image is not None and image is not None and image is not store.image:
                discard(image)
                attempt.images[name] = store.image

    def seal(self, attempt: Attempt) -> None:
        """Give the staged images their digests and manifests, and put them in their places; on the commit lane."""
        begun = self._task.now()
        sealing = Sealing(
            directory=self._task.directory,
            transfers=self._task.job.transfers,
            algorithm=self._policy.algorithm,
            check=lambda: attempt.check(self._task.now()),
        )
        made = Made(attempt.id, self._task.claim.writer)
        for name, image in attempt.images.items():
            if image.name == made.image:
                attempt.images[name] = self._seal(attempt, image, sealing, made)
                reached("commit.image-sealed")
        attempt.phases_s["image"] = attempt.phases_s.get("image", 0.0) + self._task.now() - begun

    def _seal(self, attempt: Attempt, staged: Image, sealing: Sealing, made: Made) -> Image:
        begun = self._task.now()
        store = self._stores[staged.store]
        known = {} if store.image is None else store.image.inodes()
        image = sealing.seal(staged, store.spec, known, self._task.properties.get(store.name, {}), made)
        self._task.tell(
            ImageMade(
                **self._task.where(),
                id=attempt.id,
                store=store.name,
                files=len(image.files),
                size=image.size,
                new_files=len(image.new),
                new_size=image.new_size,
                duration_s=self._task.now() - begun,
            )
        )
        return image

    def discard(self, attempt: Attempt) -> None:
        """Remove the images of an attempt that is given up."""
        for name, image in attempt.images.items():
            if image is not self._stores[name].image:
                discard(image)

    def drop_stale(self) -> None:
        """Remove the images that the published one has replaced; a failure is an event."""
        reached("commit.before-images-drop")
        try:
            for store in self._stores.values():
                if store.image is not None and store.stale_images:
                    self._task.directory.drop_images(store.name, {store.image.name})
                    store.stale_images = False
        except MillpondError as error:
            self._task.tell(CleanupFailed(**self._task.where(), backend="local images", error=error))
