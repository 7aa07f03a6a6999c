"""Median times."""

import statistics
import time


def median_seconds(function, repeats):
    """Median time of a call, after one that is not counted."""
    function()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
