"""The checks on a device, and the checks themselves where there is none."""

import json

import gpu_checks
import gpu_closed_form
import gpu_operations
import pytest
from gpu_checks import DATA, OPERATIONS, WHOLE, host

from minipw import InputError, datasets
from minipw.backend import cuda


@pytest.fixture
def device():
    """CuPy with a device, or the reason why there is none."""
    try:
        return cuda.device_module("cuda")
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.gpu
@pytest.mark.parametrize("check", OPERATIONS + WHOLE, ids=lambda check: check.__name__)
def test_on_the_device(device, check):
    check(device)


@pytest.mark.gpu
@pytest.mark.data
@pytest.mark.parametrize("check", DATA, ids=lambda check: check.__name__)
def test_on_full_mnist(device, check):
    try:
        datasets.load("mnist", download=False)
    except InputError as error:
        pytest.skip(str(error))
    check(device)


# Over the stand-in every check holds, and sees a fault.


@pytest.mark.parametrize("check", OPERATIONS + WHOLE[:2], ids=lambda check: check.__name__)
def test_over_the_stand_in(cupy, check):
    check(cupy)


def test_the_closed_form_over_the_stand_in(cupy, isolated, monkeypatch, capsys):
    monkeypatch.setattr("minipw.nn.patches.SAMPLE", 5000)
    gpu_checks.check_closed_form(cupy, 300, 10)
    plain, small = gpu_closed_form.drawn, gpu_closed_form.drawn(300, 50)
    monkeypatch.setattr(gpu_closed_form, "drawn", lambda *_: small)
    monkeypatch.setattr(gpu_closed_form, "FILTERS", 10)
    gpu_closed_form.main()
    row = json.loads(capsys.readouterr().out)
    assert (row["data"], row["images"], row["features"]) == ("drawn", 300, 80)
    assert row["accuracy"] > 50 and plain(20, 5).x_test.shape == (5, 32, 32, 3)


@pytest.fixture
def one_sum_in_a_thousand_is_off(monkeypatch):
    """What comes back to the host is off by a thousandth in one entry."""

    def off(x):
        found = host(x).copy()
        if found.dtype.kind == "f" and found.size:
            found.reshape(-1)[found.size // 2] *= 1.001
            found.reshape(-1)[-1] += 1e-3
        return found

    monkeypatch.setattr("gpu_operations.host", lambda x: off(x) if hasattr(x, "get") else host(x))
    monkeypatch.setattr("golden_steps.host", off)


@pytest.mark.parametrize("check", OPERATIONS + WHOLE[:2], ids=lambda check: check.__name__)
def test_a_fault_is_seen(cupy, one_sum_in_a_thousand_is_off, check):
    with pytest.raises(AssertionError):
        check(cupy)


def test_without_pytest(cupy, capsys, monkeypatch):
    def check_wrong(xp):
        raise AssertionError("1 is not\n2")

    monkeypatch.setattr("gpu_operations.SIZES", gpu_operations.SIZES)  # put back at the end
    cupy.cuda.set_allocator = lambda allocator: None
    assert gpu_checks.main(["--kernels"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "7 of 7 checks hold"
    monkeypatch.setattr(gpu_checks, "OPERATIONS", (check_wrong, OPERATIONS[0]))
    monkeypatch.setattr(gpu_checks, "WHOLE", ())
    assert gpu_checks.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("check_wrong 0.0 s FAILED AssertionError: 1 is not 2")
    assert lines[-1] == "1 of 2 checks hold"
    assert gpu_checks.main(["--device"]) == 0
    assert capsys.readouterr().out == "Stand-in device, 4 GiB\n"


def test_data_that_are_not_there_are_skipped(cupy, capsys, isolated):
    assert gpu_checks.main(["--data"]) == 0
    assert capsys.readouterr().out.startswith("skipped: mnist is not in")
