#!/usr/bin/env bash
# Everything that needs a GPU, in under 6 minutes and without a network: the checks, the
# full-data accuracies where MNIST is found, the bench, the same step in PyTorch where that
# is installed, and the kernels under compute-sanitizer where that is present.
#
#     tests/gpu.sh [--data-dir DIR] [--python PROGRAM]
#
# Needs Python with numpy, scipy and CuPy; pytest, tqdm and PyTorch are used if there. What
# each part prints is kept in a folder that the last lines name; a short table comes last.
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
    part checks 105 "$python" -m pytest -m "gpu and not data" -p no:cacheprovider \
        -o filterwarnings=default \
        tests/test_gpu.py tests/nn tests/test_rules.py
else
    part checks 105 "$python" tests/gpu_checks.py
fi
part accuracy 50 "$python" tests/gpu_checks.py --data
part bench 75 "$python" run.py bench --device cuda --json
if "$python" -c "import torch" 2> /dev/null; then
    part torch 25 "$python" tests/torch_baseline.py
fi
sanitizer="$(PATH="$PATH:/usr/local/cuda/bin" command -v compute-sanitizer)"
probe=(-c "import cupy; cupy.zeros(1).get()")
if [ -n "$sanitizer" ] && ! timeout 30 "$sanitizer" "$python" "${probe[@]}" > /dev/null 2>&1; then
    for tool in memcheck racecheck; do
        echo "skipped: compute-sanitizer cannot use this device" > "$out/$tool.txt"
        echo 0 > "$out/$tool.status"
    done
elif [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck; do
        part "$tool" 35 "$sanitizer" --tool "$tool" --error-exitcode 3 \
            "$python" tests/gpu_checks.py --kernels
    done
fi
echo "output of every part: $out"
echo
"$python" tests/gpu_summary.py "$out"
