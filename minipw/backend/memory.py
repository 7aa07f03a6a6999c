"""Free memory of the host."""

import os

from minipw import InputError


def available_memory():
    """Bytes that this process can still allocate, or None where the system does not say."""
    found = [_system_memory(), _group_memory()]
    return min((free for free in found if free is not None), default=None)


def _system_memory():
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _group_memory(folder="/sys/fs/cgroup"):
    """Bytes that are left under the limit of a container."""
    try:
        with open(f"{folder}/memory.max") as limit, open(f"{folder}/memory.current") as used:
            return int(limit.read()) - int(used.read())
    except (OSError, ValueError):  # no such files, or the limit is the word "max"
        return None


def require_memory(size, what):
    """Raise InputError when `size` bytes are more than what is free.

    Parameters
    ----------
    size : int
        Bytes that will be allocated.
    what : str
        What needs them and how to need less, for the message.
    """
    free = available_memory()
    if free is not None and size > free:
        needed, there = (f"{n / 2**30:,.1f} GiB" for n in (size, free))
        raise InputError(f"not enough memory, {needed} needed, {there} free: {what}")
