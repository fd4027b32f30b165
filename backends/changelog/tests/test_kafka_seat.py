"""How a producer is closed, without a broker."""

from __future__ import annotations

import warnings

from millpond_changelog.kafka import seat


class _Fenced:
    """Warns when it is closed, in its caller's name, as the driver's producer does."""

    def __init__(self) -> None:
        self.is_closed = False

    def purge(self) -> None:
        """Have nothing to drop."""

    def flush(self, _: float) -> None:
        """Have nothing to send."""

    def close(self) -> None:
        """Warn."""
        warnings.warn(f"{seat._LAST_WORDS}: fenced", RuntimeWarning, stacklevel=2)
        self.is_closed = True


def test_a_fenced_producers_last_words_are_kept_back_and_nobody_elses() -> None:
    """What the driver says of a producer that we close is not shown, even as an error; the same of another one is."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seat._end(_Fenced())  # type: ignore[arg-type]
        assert told == []
        _Fenced().close()
        assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer = _Fenced()
        seat._end(producer)  # type: ignore[arg-type]
        assert producer.is_closed
