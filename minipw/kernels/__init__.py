"""Faster forms of operations that `nn` defines, one file an operation."""
