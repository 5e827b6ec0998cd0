#!/usr/bin/env bash
# What is measured of 3v3 Snakes on a GPU: the game's speed, ten minutes of training, and the arena with what came out.
#
#   benchmarks/snakes3v3_gpu.sh [FOLDER]
#
# Everything it finds lies in FOLDER (default snakes3v3-gpu). For a trial on a CPU, in seconds:
#
#   PRESET=debug DEVICE=cpu BOARDS=64 SECONDS_EACH=1 GAMES=4 benchmarks/snakes3v3_gpu.sh /tmp/trial
set -eu -o pipefail
cd "$(dirname "$0")/.."
folder=${1:-snakes3v3-gpu}
python=${PYTHON:-python3}
device=${DEVICE:-cuda}
games=${GAMES:-400}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$folder"

"$python" benchmarks/snakes3v3_game.py --device "$device" --boards "${BOARDS:-4096,16384,65536,262144}" \
    --seconds "${SECONDS_EACH:-3}" | tee "$folder/game.txt"

# --max-hours counts training only: the rest of ten minutes is for starting, compiling and evaluating.
"$python" -m lockstep train snakes3v3 --preset "${PRESET:-base}" --device "$device" --run-name gpu --runs-dir "$folder" \
    --max-hours "${HOURS:-0.14}" | tee "$folder/train.txt"

for opponent in greedy random; do
    "$python" -m lockstep eval "$folder/gpu/best" --against "$opponent" --episodes "$games" --device "$device" \
        --output "$folder/arena-$opponent.json" | tee "$folder/arena-$opponent.txt"
done
cp "$folder/gpu/metrics.jsonl" "$folder/metrics.jsonl"
