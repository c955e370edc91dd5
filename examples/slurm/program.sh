#!/bin/bash
# Stands for your program: every task says ten times how far it is. TELEM_SOCKET is the same path on every node.
telem="${TELEM:-telem}"
for step in {1..10}; do
    sleep "${PAUSE:-0.5}"
    "$telem" -q put example_progress "$step" rank="${SLURM_PROCID:-0}" || exit 1
done
if [[ "${SLURM_PROCID:-0}" == 0 ]]; then
    "$telem" nodes "unix:$TELEM_SOCKET" || true
fi
