"""A step as a CUDA graph: launched by one call instead of a hundred.

Opt-in, and not measured so far; `--bench --device cuda` times it beside plain launches.
"""

import os
import sys

import numpy as np

from minipw.backend import first_line


def repeated(xp, function, capturable=True):
    """A function without arguments to be called many times, as it is best called.

    With MINIPW_CUDA_GRAPH=1 on a device: through a CUDA graph of it, where the function
    is `capturable`: reads and writes the same arrays every time and uploads nothing.
    Whether that is faster has not been measured.
    """
    if xp is np or not capturable or os.environ.get("MINIPW_CUDA_GRAPH") != "1":
        return function
    return Graph(xp, function)


class Graph:
    """Calls a function once, then repeats what it launched; plainly where that fails.

    What the function allocates comes from a pool that nothing else uses, since every
    repetition writes there again. The stream waits for the default one, and that for it.
    """

    told = False  # that a capture has failed, in this process

    def __init__(self, cupy, function):
        self.cupy, self.function, self.graph, self.failed = cupy, function, None, False
        self.stream, self.pool = cupy.cuda.Stream(), cupy.cuda.MemoryPool()

    def __call__(self):
        if self.graph is not None:
            self.graph.launch(self.stream)
        elif self.failed:
            self.function()
        else:
            with self.stream, self.cupy.cuda.using_allocator(self.pool.malloc):
                self.function()  # compiles and allocates what no capture may
                self._capture()

    def _capture(self):
        try:
            self.stream.begin_capture()
            try:
                self.function()
            finally:
                graph = self.stream.end_capture()
        except Exception as error:  # whatever a capture does not take
            self.failed = True
            if not Graph.told:
                print(f"no CUDA graph, plain launches: {first_line(error)}", file=sys.stderr)
            Graph.told = True
        else:
            self.graph = graph
