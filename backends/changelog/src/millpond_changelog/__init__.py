"""Changelog topics: the embedded log and Kafka, the state backend and the checkpoint manager over them."""
