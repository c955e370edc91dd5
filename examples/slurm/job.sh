#!/bin/bash
# A job on all its nodes, recorded: telem starts an agent on every node, and srun starts the program.
#
#   sbatch job.sh
#
# Look at it while it runs: `telem nodes` lists the nodes, and the tunnel that telem prints leads to Grafana's source.
#SBATCH --job-name=telem-example
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
# The last moment to save comes before the end of the time: SIGTERM to this script alone, a minute earlier.
#SBATCH --signal=B:TERM@60

telem="${TELEM:-telem}"
program="${PROGRAM:-$SLURM_SUBMIT_DIR/program.sh}"

# exec, so that what Slurm sends to this script reaches telem, which passes it on.
exec "$telem" run --save "$SLURM_SUBMIT_DIR/telem-$SLURM_JOB_ID" -- srun "$program"
