"""Benchmarks: each figure next to the limit that was measured in the same run.

A machine's speed drifts; the ratio to what the API server does at that moment
is what one can compare.
"""
