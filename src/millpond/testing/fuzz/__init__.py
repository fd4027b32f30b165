"""
The fuzzer: every reader of bytes, with bytes that are nearly right.

``python -m millpond.testing.fuzz --seeds 0-2000``. A reader gives a value or one of our errors, soon, in memory of the
order of its input, touches no file but its own, and names no path outside. :mod:`millpond.testing.fuzz.readers` is the
table of all of them.
"""
