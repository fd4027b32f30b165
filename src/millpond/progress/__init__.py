"""
What a person sees of a job's events: a log line for each, and a bar for restores.

``words`` writes sizes and durations, ``lines`` has the line of each event, ``log`` hands lines to the logger
``millpond``, ``pace`` tells how fast something goes, and ``bar`` draws restores on a terminal.
"""

from millpond.progress.bar import ProgressBar
from millpond.progress.log import LogListener

__all__ = ["LogListener", "ProgressBar"]
