#!/bin/bash
# The same the other way round: srun starts telem, once for every task. The first task of each node records that node,
# the one with rank 0 is the head, and the working directory must be one that all nodes share.
#
#   sbatch tasks.sh
#SBATCH --job-name=telem-tasks
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00

telem="${TELEM:-telem}"
program="${PROGRAM:-$SLURM_SUBMIT_DIR/program.sh}"

srun "$telem" run --save "$SLURM_SUBMIT_DIR/telem-$SLURM_JOB_ID" -- "$program"
