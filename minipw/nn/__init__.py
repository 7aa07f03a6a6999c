"""The mathematics: pure functions, each forward beside its backward.

A forward returns `(y, cache)`; its backward takes `(dy, cache)` and returns the
gradients in the forward's argument order; those of the scalars in `loss.py`, whose
dy is 1, take the cache alone. Axes before the named ones are open:
the functions never look at them. A backward's `dy` may have more of them in
front than the forward had, so several gradients go through one cached forward.
"""
