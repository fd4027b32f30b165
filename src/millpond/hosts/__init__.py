"""Hosts: what reads an input and calls the user's code, one task for each part of the input that this process owns."""
