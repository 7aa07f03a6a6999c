#!/usr/bin/env bash
# Everything that needs a GPU, in under 5 minutes and without a network: the checks, the
# full-data accuracies where MNIST is found, the bench with variants of the kernels, the
# closed form on CIFAR-10 or drawn images, the first step in PyTorch where that is
# installed, and the kernels under compute-sanitizer where that is present.
#
#     tests/gpu.sh [--data-dir DIR] [--python PROGRAM]
#
# Needs Python with numpy, scipy and CuPy; pytest, tqdm and PyTorch are used if there. What
# each part prints is kept in a folder that the last lines name; a short table comes last.
# Runs of the paper at its seeds, into the store, with the time that is left:
#
#     python run.py paper table3 --device cuda
#
# Exit status: 0 when everything held, 1 when a part failed, 2 without a device.
set -uo pipefail
python="${PYTHON:-python3}"
while [ $# -gt 0 ]; do
    case "$1" in
        --data-dir | --python) [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; exit 2; } ;;
    esac
    case "$1" in
        --data-dir) MINIPW_DATA="$(realpath "$2")"; export MINIPW_DATA; shift 2 ;;
        --python) python="$2"; [ "${2#*/}" = "$2" ] || python="$(realpath -s "$2")"; shift 2 ;;
        *) echo "error: unknown flag $1: use --data-dir DIR or --python PROGRAM" >&2; exit 2 ;;
    esac
done
cd "$(dirname "$0")/.."
out="$(mktemp -d)"
export PYTHONWARNINGS=ignore

if ! "$python" tests/gpu_checks.py --device > "$out/device.txt" 2>&1; then
    tail -n 1 "$out/device.txt" >&2
    exit 2
fi

part() {  # part NAME SECONDS COMMAND...: its output in NAME.txt, its status in NAME.status
    local name="$1" seconds="$2" began=$SECONDS
    shift 2
    timeout -k 5 "$seconds" "$@" > "$out/$name.txt" 2> "$out/$name.err"
    local status=$?
    echo "$status" > "$out/$name.status"
    echo "$name: status $status after $((SECONDS - began)) s"
}

if "$python" -c "import pytest, pytest_timeout" 2> /dev/null; then
    part checks 90 "$python" -m pytest -m "gpu and not data" -p no:cacheprovider \
        -o filterwarnings=default \
        tests/test_gpu.py tests/nn tests/test_rules.py
else
    part checks 90 "$python" tests/gpu_checks.py
fi
part accuracy 35 "$python" tests/gpu_checks.py --data
part bench 60 "$python" run.py bench --device cuda --json
part closed 40 "$python" tests/gpu_closed_form.py
if "$python" -c "import torch" 2> /dev/null; then
    part torch 20 "$python" tests/torch_baseline.py
fi
sanitizer="$(PATH="$PATH:/usr/local/cuda/bin" command -v compute-sanitizer)"
probe=(-c "import cupy; cupy.zeros(1).get()")
if [ -n "$sanitizer" ] && ! timeout 10 "$sanitizer" "$python" "${probe[@]}" > /dev/null 2>&1; then
    for tool in memcheck racecheck; do
        echo "skipped: compute-sanitizer cannot use this device" > "$out/$tool.txt"
        echo 0 > "$out/$tool.status"
    done
elif [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck; do
        part "$tool" 20 "$sanitizer" --tool "$tool" --error-exitcode 3 \
            "$python" tests/gpu_checks.py --kernels
    done
fi
echo "output of every part: $out"
echo
"$python" tests/gpu_summary.py "$out"
