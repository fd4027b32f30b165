"""The host's own part of a member: what it does at each turn of the job."""

from __future__ import annotations

from millpond.coordinator.ids import JobCheckpointId, TransactionId


class Participant:
    """
    What a host does at each turn of the job; every verb may be left out. The processing thread calls, inside ``poll``.

    What a verb raises leaves ``poll``: the host then ends, as it would by an exception in a record.
    """

    def pre_restore(self) -> None:
        """The state is about to be replaced: stop, and let go of channels. Not called before the first restore."""
        return None

    def restored(self, checkpoint: JobCheckpointId | None, transaction: TransactionId) -> None:
        """The state is that of *checkpoint*: make channels for *transaction*; abort outputs of later attempts."""
        return None

    def start(self, transaction: TransactionId) -> None:
        """All members are restored: process."""
        return None

    def begin(self, attempt: JobCheckpointId) -> None:
        """
        An attempt began. A source calls ``member.save(attempt)`` between two records, and sends its barrier on.

        Others have nothing to do: their barriers come to them on their channels.
        """
        return None

    def pre_save(self, attempt: JobCheckpointId) -> None:
        """The state is about to be frozen: flush, and prepare what may go out when the job checkpoint is whole."""
        return None

    def completed(self, attempt: JobCheckpointId) -> None:
        """The job checkpoint is whole: commit what was prepared for *attempt* and before."""
        return None

    def abandoned(self, attempt: JobCheckpointId, reason: str) -> None:
        """The attempt will never be whole: tell the aligner; what was prepared goes with the next one."""
        return None
