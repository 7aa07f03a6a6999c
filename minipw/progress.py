"""The progress bar."""

import sys


def progress_bar(total, unit, quiet=False, **options):
    """A tqdm bar on standard error, if that is a terminal and `quiet` is not set."""
    from tqdm import tqdm  # imported late: many commands show no bar

    options = {"leave": False, "dynamic_ncols": True, **options}
    return tqdm(total=total, unit=unit, disable=quiet or None, file=sys.stderr, **options)
