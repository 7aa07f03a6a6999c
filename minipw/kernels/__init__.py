"""Faster forms of operations that `nn` and `rules` define, one file an operation.

The `.cu` files are CUDA C++, started through `launcher` by the `_gpu` file of their
operation. Tests run the same text on the host.
"""
