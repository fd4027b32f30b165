"""What a commit decides: functions from facts to decisions, without clock, disk or thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto

from millpond.checkpoint import CheckpointId, Markers
from millpond.errors import CommitError, CommitFailedError, FencedError


class Admission(Enum):
    """What happens to a request for a commit."""

    START = auto()
    SKIP = auto()
    REFUSE = auto()


def admit(age_s: float | None, timeout_s: float) -> Admission:
    """Decide on a new commit, *age_s* seconds after the one in flight began; None: nothing is in flight."""
    if age_s is None:
        return Admission.START
    return Admission.SKIP if age_s < timeout_s else Admission.REFUSE


def over_the_allowance(failures: int, tolerated: int) -> bool:
    """Say whether *failures* in a row are more than the operator tolerates."""
    return failures > tolerated


def superseded(
    ids: Sequence[CheckpointId], retain: int, current: CheckpointId | None = None
) -> tuple[CheckpointId, ...]:
    """
    Give those of *ids*, newest first, that go beyond the *retain* newest.

    The *current* one, on which the next checkpoint builds, is not the newest after time travel; it stays.
    """
    return tuple(id for id in ids[retain:] if id != current)


def tidying_is_due(published: int, every: int, *, doubtful: bool) -> bool:
    """
    Say whether it is time to drop superseded records and to let the backends tidy.

    Until then more stays than has to, and all of it is restorable. A commit of which nobody knew whether its record
    would still arrive is not left lying: its data goes with the next publication.

    Args:
        published: Publications since the last tidying that succeeded, this one included.
        every: Over how many publications the checkpoint manager spreads it.
        doubtful: There is such a commit.
    """
    return doubtful or published >= every


def checkpoint_markers(
    stores: Mapping[str, Collection[str]],
    last: Mapping[str, Markers],
    uploaded: Mapping[str, Markers],
    failed: Collection[str],
) -> dict[str, dict[str, str]]:
    r"""
    Give the markers of a new checkpoint, by backend and store.

    A dirty store has what was uploaded; a clean one keeps the marker of the *last* checkpoint. A backend that *failed*
    has no marker for its dirty stores: no older one stands in, since it names other content.

    Args:
        stores: Store to the backends that back it up.
        last: The last checkpoint's markers.
        uploaded: For each backend that was called, its new markers.
        failed: Pairs of backend and store that have no new marker, as ``"backend\0store"``.
    """
    markers: dict[str, dict[str, str]] = {}
    for store, backends in stores.items():
        for backend in backends:
            marker = uploaded.get(backend, {}).get(store)
            if marker is None and f"{backend}\0{store}" not in failed:
                marker = last.get(backend, {}).get(store)
            if marker is not None:
                markers.setdefault(backend, {})[store] = marker
    return markers


def mixed_stores(
    imaged: set[str], markers: Mapping[str, Mapping[str, str]], uploaded: Mapping[str, Markers]
) -> list[str]:
    """
    Give the stores of which a checkpoint would name a new image, and a marker of an earlier one. There must be none.

    On the same disk it would be restored from that image, and on an empty one from a marker that is of another.

    Args:
        imaged: Stores with an image that no earlier checkpoint has.
        markers: The new checkpoint's markers, by backend and store.
        uploaded: For each backend that was called, its new markers.
    """
    return sorted(
        {
            store
            for key, held in markers.items()
            for store in held
            if store in imaged and store not in uploaded.get(key, {})
        }
    )


def marker_problems(given: object, wanted: Collection[str]) -> str | None:
    """Say in a sentence what is wrong with the markers that a backend gave; None: nothing."""
    if not isinstance(given, Mapping):
        return f"upload() gave {type(given).__name__}, not a mapping from store to marker"
    missing, surplus = sorted(set(wanted) - set(given)), sorted(map(repr, set(given) - set(wanted)))
    if missing:
        return f"upload() gave no marker for {', '.join(missing)}"
    if surplus:
        return f"upload() gave a marker for {', '.join(surplus)}, which it was not asked for"
    wrong = [store for store, marker in given.items() if not isinstance(marker, str)]
    return f"upload() gave a marker for {wrong[0]} that is no text" if wrong else None


def outcome(error: BaseException, what: str) -> BaseException:
    """Turn what went wrong before or at the write into what the host is told."""
    if isinstance(error, (FencedError, CommitError)):
        return error
    failed = CommitFailedError(f"{what} failed and nothing was committed: {str(error) or type(error).__name__}")
    failed.__cause__ = error
    return failed
