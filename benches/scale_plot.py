"""The picture of a scale benchmark: `scale_plot.py figures.csv figures.png`, made of nothing but what `scale --csv` wrote."""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def main(source, target):
    with open(source, newline="") as file:
        rows = [{name: value if name == "shape" else float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    panels = [
        ("all_cpu_ms", "CPU of the head, ms a question"),
        ("all_kb_in", "kB that the head receives"),
        ("all_ms", "time, ms (all nodes share two cores)"),
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 3.6), layout="constrained")
    for axis, (column, title) in zip(axes, panels):
        for shape, mark in [("flat", "o--"), ("tree", "s-")]:
            of_shape = [row for row in rows if row["shape"] == shape]
            axis.plot([row["nodes"] for row in of_shape], [row[column] for row in of_shape], mark, label=shape)
        axis.set(xscale="log", yscale="log", xlabel="nodes", title=title)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:3])
