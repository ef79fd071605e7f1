"""Answers about the past and the present of a queue: pure functions of entries and states."""
