"""The checkpoint manager over a log: Samza's checkpoint topic, with older checkpoints, claims and pins beside it."""
