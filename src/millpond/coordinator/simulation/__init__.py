"""
A job in a world of its own: virtual time, a network that does everything wrong, and everybody may die at any moment.

``python -m millpond.coordinator.simulation --steps 1000000 --seeds 0-9`` runs the real state machine, the real member
protocol and the real barrier alignment in it. From one seed everything follows, so a run that fails can be run again.
"""

from millpond.coordinator.simulation.run import Outcome, simulate
from millpond.coordinator.simulation.world import Trouble

__all__ = ["Outcome", "Trouble", "simulate"]
