"""The benchmarks: `python -m tests.bench` measures, and prints what it measured side by side.

One file for each part; `measure` runs the cases of a part in turns, `table` shows the figures.
Nothing here decides whether a test is green: figures are read by people.
"""
