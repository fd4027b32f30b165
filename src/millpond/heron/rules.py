"""What an operator decides about stored states."""

from __future__ import annotations

from attrs import frozen

from millpond.heron.ids import Order, number_order


@frozen(kw_only=True)
class StateRules:
    """
    What an operator decides about stored states.

    Attributes:
        unsealed_too: States without a seal are accepted, since Heron wrote some into this place.
        order: How ids are compared.
        by_age_too: A clean keeps what was written after the oldest checkpoint to keep.
        refuse_cleaned: A save for a checkpoint that was cleaned is refused.
        keep: How many whole checkpoints a node keeps by itself; None: all.
    """

    unsealed_too: bool = False
    order: Order = number_order
    by_age_too: bool = True
    refuse_cleaned: bool = True
    keep: int | None = None
