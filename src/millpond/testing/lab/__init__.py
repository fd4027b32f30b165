"""
The crash lab: jobs that are killed at a named step or at any moment, and have to go on exactly.

``python -m millpond.testing.lab --backend rocksdb-local --seeds 0-300``. Each seed is one trial: a small job is driven
by random operations, killed, restored on the same or an empty disk, compared with the model, and goes on; at its end
nothing is left that no checkpoint needs.
"""
