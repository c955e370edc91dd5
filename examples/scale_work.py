#!/usr/bin/env python3
"""Measures how image filtering scales with workers, and logs what it measures: how long the pool took to start, how long
each iteration took, and what each worker did.

    telem run --save ./scale -- python examples/scale_work.py --workers 4
    telem run --save ./scale -- mpirun -n 4 python examples/scale_work.py
    telem sql ./scale "SELECT puid, avg(value) AS seconds FROM image_time GROUP BY puid ORDER BY puid"

Each iteration filters as many images as --memory bytes hold. The workers are processes of multiprocessing; where
mpirun or srun started several processes and mpi4py is there, they are those. It filters with SciPy, else with NumPy,
else in plain Python. The dashboard is examples/scale_work.json.
"""

import argparse
import math
import multiprocessing
import os
import pathlib
import random
import statistics
import sys
import time

try:
    from telem.dragon import Telemetry
except ImportError:  # a checkout, where the client is not installed
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients" / "python"))
    from telem.dragon import Telemetry

FILTER = 4
"""Rows and columns of a filter."""
EVERY = 5
"""Which rows and columns of a filtered image are kept."""
VALUE_BYTES = 8
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables in which launchers say how many processes they started."""


# How to filter: an image, and a filter, of the kind that `make` gives.

def with_scipy():
    import numpy
    import scipy.signal

    def make(size, rng):
        return numpy.array([[rng.gauss(0, 1) for _ in range(size)] for _ in range(size)])

    return "SciPy", lambda size: numpy.zeros((size, size)), make, lambda i, f: scipy.signal.convolve2d(i, f)[::EVERY, ::EVERY]


def with_numpy():
    import numpy

    def make(size, rng):
        return numpy.array([[rng.gauss(0, 1) for _ in range(size)] for _ in range(size)])

    def convolve(image, weights):
        rows, columns = image.shape
        whole = numpy.zeros((rows + FILTER - 1, columns + FILTER - 1))
        for row in range(FILTER):
            for column in range(FILTER):
                whole[row : row + rows, column : column + columns] += weights[row, column] * image
        return whole[::EVERY, ::EVERY]

    return "NumPy", lambda size: numpy.zeros((size, size)), make, convolve


def with_python():
    def make(size, rng):
        return [[rng.gauss(0, 1) for _ in range(size)] for _ in range(size)]

    def at(image, weights, row, column):
        return sum(
            weights[r][c] * image[row - r][column - c]
            for r in range(FILTER) if 0 <= row - r < len(image)
            for c in range(FILTER) if 0 <= column - c < len(image)
        )

    def convolve(image, weights):
        places = range(0, len(image) + FILTER - 1, EVERY)
        return [[at(image, weights, row, column) for column in places] for row in places]

    return "plain Python", lambda size: [[0.0] * size for _ in range(size)], make, convolve


def way():
    for candidate in (with_scipy, with_numpy):
        try:
            return candidate()
        except ImportError:
            continue
    return with_python()


class Worker:
    """One process that filters images. It makes them itself, so that none is sent to it."""

    def __init__(self, number, options):
        _, blank, make, self.convolve = way()
        self.image = blank(options.size)
        self.weights = make(FILTER, random.Random(number))
        self.work_time = options.work_time
        self.telemetry = Telemetry()
        self.tag = {"tagk": "puid", "tagv": number}
        self.images = 0
        self.began = time.perf_counter()

    def filter(self, _):
        """One image, again and again until `work_time` is over, but once at least."""
        began = time.perf_counter()
        self.convolve(self.image, self.weights)
        while time.perf_counter() - began < self.work_time:
            self.convolve(self.image, self.weights)
        self.images += 1
        now = time.perf_counter()
        self.telemetry.add_data("image_time", now - began, **self.tag)
        self.telemetry.add_data("images", self.images, **self.tag)
        self.telemetry.add_data("elapsed_time", now - self.began, **self.tag)


class Pool:
    """Workers of multiprocessing; this process only divides the work."""

    is_first = True

    def __init__(self, options):
        context = multiprocessing.get_context("spawn")
        self.size = options.workers
        self._ready = context.Barrier(self.size + 1)
        self._pool = context.Pool(self.size, initializer=_become_worker, initargs=(context.Value("i", 0), self._ready, options))
        self._ready.wait(options.patience)

    def run(self, images):
        self._pool.map(_filter, range(images), chunksize=max(images // (4 * self.size), 1))

    def slowest(self, seconds):
        return seconds

    def close(self):
        # Not terminated: the last points of the workers are sent as they end.
        self._pool.close()
        self._pool.join()


_worker = None


def _become_worker(counter, ready, options):
    global _worker
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    _worker = Worker(number, options)
    ready.wait(options.patience)


def _filter(number):
    _worker.filter(number)


class Ranks:
    """The processes that mpirun started, this one among them."""

    def __init__(self, mpi, options):
        self._mpi, self._world = mpi, mpi.COMM_WORLD
        self.size, rank = self._world.size, self._world.rank
        self.is_first = rank == 0
        self._rank = rank
        self._worker = Worker(rank, options)
        self._world.Barrier()

    def run(self, images):
        for number in range(self._rank, images, self.size):
            self._worker.filter(number)
        self._world.Barrier()

    def slowest(self, seconds):
        return self._world.allreduce(seconds, self._mpi.MAX)

    def close(self):
        self._worker.telemetry.shutdown()


def company(options):
    """Those who work: ranks where there are several, else a pool."""
    started = next((int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()), 1)
    if started > 1:
        try:
            from mpi4py import MPI
        except ImportError:
            sys.exit(f"error: {started} processes were started, and mpi4py is not installed: pip install mpi4py")
        return Ranks(MPI, options)
    return Pool(options)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=4, help="processes of the pool; mpirun -n says it for MPI [%(default)s]")
    parser.add_argument("--iterations", type=int, default=10, help="how often they are filtered [%(default)s]")
    parser.add_argument("--burns", type=int, default=2, help="iterations before these that are not averaged [%(default)s]")
    parser.add_argument("--size", type=int, default=1000, help="rows and columns of an image [%(default)s]")
    parser.add_argument("--memory", type=int, default=512 << 20, help="bytes of the images of an iteration [%(default)s]")
    parser.add_argument("--work-time", type=float, default=0.0, help="seconds to compute for each image [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="two workers, small images, three iterations")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.iterations, options.burns = min(options.workers, 2), 2, 1
        options.size, options.memory = min(options.size, 40), min(options.memory, 40 * 40 * VALUE_BYTES * 6)
    for name in ("workers", "iterations", "size", "memory"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; at least 1 is needed")
    if options.burns < 0 or not 0 <= options.work_time < math.inf:
        parser.error("--burns and --work-time are 0 or more")
    options.patience = 120.0
    return options


def main():
    options = arguments()
    images = max(options.memory // (options.size * options.size * VALUE_BYTES), 1)
    telemetry = Telemetry()
    began = time.perf_counter()
    workers = company(options)
    start_time = time.perf_counter() - began
    if workers.is_first:
        telemetry.add_data("pool_start_time", start_time)
        print(f"{workers.size} workers filter {images} images of {options.size}x{options.size} with {way()[0]}", flush=True)

    times = []
    for iteration in range(options.burns + options.iterations):
        began = time.perf_counter()
        workers.run(images)
        seconds = workers.slowest(time.perf_counter() - began)
        if workers.is_first:
            times.append(seconds)
            # Kept from level 3 on.
            telemetry.add_data("iteration", iteration, telemetry_level=3)
            telemetry.add_data("iteration_time", seconds)
            print(f"iteration {iteration}: {seconds:.4f} s" + (" (not averaged)" if iteration < options.burns else ""), flush=True)
    workers.close()
    telemetry.finalize()
    if workers.is_first:
        kept = times[options.burns :]
        spread = statistics.stdev(kept) if len(kept) > 1 else 0.0
        print(f"mean {statistics.fmean(kept):.4f} s, deviation {spread:.4f} s, {images / statistics.fmean(kept):.1f} images/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
