#!/usr/bin/env bash
# All of tests/gpu, on one GPU or two:   tests/gpu/run_in_lanes.sh FOLDER [PYTHON]
#
# Most of these tests wait for processes that import torch and DALI, so several run beside each other, more with
# pytest-xdist. What measures has a GPU to itself, or comes last; where both GPUs are needed, the others do less.
# FOLDER gets a log a lane; packages that PYTHON lacks come from PYTHONPATH. Exit code 1 if a lane failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$1 python=${2:-python}
export GPUAUG_REQUIRE_GPU=1 GPUAUG_REQUIRE_NATIVE=1 CI=1 PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$PWD
mkdir -p "$folder"
gpus=$(nvidia-smi --list-gpus | wc -l)
several=$("$python" -c 'import xdist' 2>/dev/null && printf '%s' '-n 4')

lane() { # NAME GPUS FILES OR OPTIONS...
  local name=$1 visible=$2
  shift 2
  CUDA_VISIBLE_DEVICES=$visible "$python" -m pytest -p no:benchmark -p no:cacheprovider -v --durations=10 "$@" \
    >"$folder/$name.log" 2>&1 || touch "$folder/$name.failed"
  echo "$name, after $SECONDS s: $(tail -n 1 "$folder/$name.log")"
}
files() { printf 'tests/gpu/test_%s_gpu.py ' "$@"; }

rm -f "$folder"/*.failed
# shellcheck disable=SC2046,SC2086  # `files` and `several` are words
{
  ((gpus < 2)) || lane two_gpus 0,1 $(files ddp gpu_utilization ops throughput) -k "ddp or two_gpus or reordered or not_the_current" &
  (
    lane kernels 0 $(files ops augment nms roi_align resize_packed warp)
    lane sanitizer 0 $(files sanitizer)
  ) &
  lane others 0 $(files capture steps_ahead classifier recipes bench) &
  wait
  lane loader 0 $several $(files loader) &
  lane formats 0 $several $(files formats) &
  ((gpus > 1)) || wait
  lane measured $((gpus > 1)) $(files throughput doctor gpu_utilization)
  wait
}
! compgen -G "$folder/*.failed" >/dev/null
