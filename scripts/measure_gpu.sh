#!/usr/bin/env bash
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
#
# The tests that need a GPU, and every GPU figure of docs/performance.md, one after the other:
#
#     LINGBOT_REF=/path/to/reference bash scripts/measure_gpu.sh FOLDER
#
# Needs PyTorch, FlashInfer and pytest, but no ROS. Reports and logs go to FOLDER as they come. A step
# that fails is named at the end, and the others go on.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?usage: measure_gpu.sh FOLDER}" && cd "$1" && pwd)
export PYTHONPATH=$PWD:$PWD/scripts${PYTHONPATH:+:$PYTHONPATH}
failed=()

step() {
    local name=$1
    shift
    echo "$(date +%T) $name"
    "$@" >"$out/$name.log" 2>&1 || failed+=("$name")
}

# Without the conftest, which sets up ROS.
step tests python -m pytest --noconftest -o addopts= --continue-on-collection-errors -ra -q \
    -m gpu $(grep -l "mark\.gpu" test/*.py)
step benchmark python scripts/benchmark.py --reference-fa3 --exact 100 --output "$out/benchmark.json"
step endless python scripts/gpu_endurance.py --frames 10000 --seconds 400 --output "$out/endless.json"
step attention python scripts/benchmark_attention.py --output "$out/attention.json"
step caps python scripts/gpu_endurance.py --cap 6 8 12 16 24 --output "$out/caps.json"
step fidelity python scripts/gpu_fidelity.py --output "$out/fidelity.json"
echo "$(date +%T) done; failed: ${failed[*]:-none}"
((${#failed[@]} == 0))
