#!/usr/bin/env python3
"""A worker: trains a network on the data that there is, and logs how well it predicts what the simulation computes now.

    python3 worker.py NUMBER DIRECTORY

DIRECTORY has the training data (data-N.bin) and the newest points of the simulation (observed.bin). The worker goes on
until there is a file named stop.
"""

import pathlib
import sys
import time

import numpy

import network
from place import Telemetry

POINTS = 32
"""Points of the simulation in a step, as in taylor.c."""
BATCH, STEPS = 64, 40
"""Samples of a step of training, and steps between two looks at the simulation."""
PAUSE_S = 0.05


def observed(path):
    """The newest step of the simulation: its number, its points, and their values; ``None`` before the first."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    if len(found) != 8 + 16 * POINTS:
        return None
    values = numpy.frombuffer(found[8:]).copy()
    return int.from_bytes(found[:8], sys.byteorder), values[:POINTS], values[POINTS:]


class TrainingData:
    """All pairs of x and y so far; those of the newest file are half of what is drawn."""

    def __init__(self, directory):
        self.directory, self.files = directory, {}

    def look(self):
        """Reads files that are new. How many there are."""
        for path in self.directory.glob("data-*.bin"):
            number = int(path.stem.split("-")[1])
            if number not in self.files:
                self.files[number] = numpy.fromfile(path).reshape(-1, 2)
        return len(self.files)

    def draw(self, rng):
        newest = self.files[max(self.files)]
        older = numpy.concatenate(list(self.files.values()))
        pairs = numpy.concatenate([rng.choice(newest, BATCH // 2), rng.choice(older, BATCH // 2)])
        return pairs[:, 0], pairs[:, 1]


def main():
    number, directory = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    telemetry = Telemetry(tags={"worker": number})
    rng = numpy.random.default_rng(number)
    model, data, seen, training = network.network(number), TrainingData(directory), -1, None
    while not (directory / "stop").exists():
        files = data.look()
        if files:
            training = [model.learn(*data.draw(rng)) for _ in range(STEPS)][-1]
        now = observed(directory / "observed.bin")
        if now is not None and now[0] != seen and training is not None:
            seen, x, actual = now
            predicted = model.predict(x)
            loss = float(((predicted - actual) ** 2).mean())
            telemetry.log(
                {
                    "loss": loss, "training_loss": training, "data_files": files,
                    "taylor_sin_predicted": float(predicted[0]),
                    "taylor_sin_difference": float(predicted[0] - actual[0]),
                },
                step=seen,
            )
        time.sleep(PAUSE_S)
    telemetry.finalize()
    print(f"worker {number}: {model.name}, {len(data.files)} files of data", flush=True)


if __name__ == "__main__":
    main()
