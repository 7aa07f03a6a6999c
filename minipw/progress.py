"""The progress bar, and what stands in for it where tqdm is not installed."""

import sys


def progress_bar(total, unit, quiet=False, **options):
    """A bar on standard error, if that is a terminal and `quiet` is not set.

    options : of tqdm
    """
    try:
        from tqdm import tqdm
    except ImportError:
        return NoBar()
    options = {"leave": False, "dynamic_ncols": True, **options}
    return tqdm(total=total, unit=unit, disable=quiet or None, file=sys.stderr, **options)


class NoBar:
    """What the package uses of tqdm, without a bar."""

    n = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def update(self, count=1):
        self.n += count

    def set_description(self, text, refresh=True):
        pass

    def set_postfix_str(self, text, refresh=True):
        pass

    @staticmethod
    def write(text, file):
        print(text, file=file)
