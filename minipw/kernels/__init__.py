"""Faster implementations of operations that `nn` and `rules` define, one file an operation.

The `_gpu` file of an operation launches its CUDA C++ kernels (`.cu`) through `launcher`.
Tests run the same kernels on the host.
"""
