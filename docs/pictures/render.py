#!/usr/bin/env python3
"""Draws a dashboard of grafana/ from its own queries, asked of a running telem.

    pip install -r docs/pictures/requirements.txt
    python3 docs/pictures/render.py grafana/dashboards/telem-node.json -o docs/pictures/node-overview.png \\
        --url http://localhost:4242 --from 2026-01-01T12:00:00Z --to 2026-01-01T12:05:00Z --height 30

It is no Grafana: it knows the panels and the settings that our dashboards use, and looks like a Grafana so that one
knows what to expect. Every number and every line comes out of the answers to the dashboard's queries, asked as
Grafana asks them. `--height` is how many rows of the dashboard's grid are drawn; `--var NAME=VALUE` chooses.
`--row TITLE` draws that row of the dashboard alone, unfolded, and `--above REGEX` the numbers of these titles above it.
"""

import argparse
import json
import re
import sys
import urllib.parse
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from PIL import Image

WIDTH_PX, UNIT_PX, GAP_PX, HEAD_PX, FOOT_PX, MARGIN_PX = 1600, 36, 8, 56, 30, 14
DPI = 100
# Points are drawn where they are at least this far apart, in the mean.
POINT_PX = 20
CANVAS, PANEL, BORDER, GRID, TEXT, DIM = "#111217", "#181b1f", "#26282e", "#2c2f36", "#d5d6dc", "#8e9099"
PALETTE = ["#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0", "#37872D", "#FADE2A",
           "#447EBC", "#C15C17", "#890F02", "#0A437C", "#6D1F62", "#584477"]
NAMED = {"green": "#73BF69", "yellow": "#FADE2A", "orange": "#FF9830", "red": "#F2495C", "blue": "#5794F2",
         "purple": "#B877D9", "light-purple": "#CA95E5"}
# What Grafana calls `continuous-BlPu`: these, in even steps.
SHADES = LinearSegmentedColormap.from_list("BlPu", [NAMED["blue"], NAMED["purple"]])
# Below these many milliseconds, the interval that Grafana rounds to.
INTERVALS = [(10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1500, 1000), (3500, 2000),
             (7500, 5000), (12500, 10000), (17500, 15000), (25000, 20000), (45000, 30000), (90000, 60000),
             (210000, 120000), (450000, 300000), (750000, 600000), (1050000, 900000), (1500000, 1200000),
             (2700000, 1800000), (5400000, 3600000)]


def color(name):
    found = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", name)
    if found:
        return "#%02x%02x%02x" % tuple(int(part) for part in found.groups())
    return NAMED.get(name, name)


# --- asking ----------------------------------------------------------------------------------------------------

class Telem:
    def __init__(self, url, start_ms, end_ms):
        self.url, self.start, self.end = url.rstrip("/"), start_ms, end_ms

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data=data), timeout=60) as answer:
            return json.load(answer)

    def names(self, query):
        """What the query of a variable finds."""
        function, arguments = re.fullmatch(r"(\w+)\((.*)\)", query).groups()
        if function == "metrics":
            asked = {"type": "metrics", "q": arguments, "max": 100000}
            return self.ask("/api/suggest?" + urllib.parse.urlencode(asked))
        metric, _, key = arguments.partition(",")
        m = metric if function == "tag_names" else f"{metric}{{{key.strip()}=*}}"
        found = self.ask("/api/search/lookup?" + urllib.parse.urlencode({"m": m, "limit": 100000}))["results"]
        tags = [series["tags"] for series in found]
        return sorted({name for one in tags for name in one} if function == "tag_names" else
                      {one[key.strip()] for one in tags})

    def series(self, panel, variables, width_px):
        """The lines of a panel: name, times in seconds, values."""
        targets = panel["targets"]
        interval = next((step for below, step in INTERVALS if (self.end - self.start) / width_px < below), 7200000)
        if panel.get("interval"):
            interval = max(interval, milliseconds(replace(panel["interval"], variables)))
        subs = []
        for target in targets:
            sub = {"metric": replace(target["metric"], variables),
                   "aggregator": replace(target["aggregator"], variables),
                   "downsample": f"{target.get('downsampleInterval') or f'{interval}ms'}-"
                                 f"{target['downsampleAggregator']}",
                   "filters": [dict(one, tagk=replace(one["tagk"], variables), filter=replace(one["filter"], variables))
                               for one in target["filters"]]}
            if target.get("shouldComputeRate"):
                sub |= {"rate": True, "rateOptions": {"counter": target["isCounter"], "dropResets": True}}
            subs.append(sub)
        body = {"start": self.start, "end": self.end, "queries": subs, "msResolution": True, "showQuery": True}
        lines = []
        for one in self.ask("/api/query", body):
            target = targets[one["query"]["index"]]
            tags = {f"tag_{key}": value for key, value in one["tags"].items()}
            grouped = [f["tagk"] for f in one["query"].get("filters", [])]
            name = replace(target["alias"], variables | tags) if target.get("alias") else one["metric"] + (
                "{" + ", ".join(f"{key}={value}" for key, value in one["tags"].items() if key in grouped) + "}")
            times = [int(time) / 1000 for time in one["dps"]]
            name = name.replace("{}", "")
            for step in panel.get("transformations", []):
                name = re.sub(step["options"]["regex"].strip("/"), step["options"]["renamePattern"].replace("$", "\\"),
                              name)
            lines.append({"name": name, "times": times, "values": list(one["dps"].values())})
        return [line for line in lines if line["values"]]


def milliseconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()
    return int(number) * {"ms": 1, "s": 1000, "m": 60000}[unit]


def replace(text, variables):
    def value(found):
        name, form = found.group(1) or found.group(2), found.group(3)
        if name not in variables:
            return found.group(0)
        chosen = variables[name]
        if isinstance(chosen, str):
            return re.escape(chosen) if form == "regex" else chosen
        if chosen is None:
            return ".*"
        return "(" + "|".join(re.escape(one) for one in chosen) + ")" if form == "regex" else " + ".join(chosen)

    return re.sub(r"\$(\w+)|\$\{(\w+)(?::(\w+))?\}", value, text)


def choose(telem, board, chosen):
    """Each variable: a text, a list, or None for all."""
    variables = {}
    for variable in board["templating"]["list"]:
        name, kind = variable["name"], variable["type"]
        if kind == "datasource":
            variables[name] = "telem"
            continue
        query = replace(variable["query"], variables)
        values = query.split(",") if kind == "custom" else telem.names(query)
        excluded = re.fullmatch(r"/\^\(\?!(.*)\)/", variable.get("regex", ""))
        if excluded:
            values = [value for value in values if not re.match(excluded.group(1), value)]
        values = sorted(values, reverse=variable.get("sort") == 2) if kind == "query" else values
        if name in chosen:
            variables[name] = chosen[name].split("|") if variable["multi"] else chosen[name]
        elif variable["multi"]:
            variables[name] = None if variable.get("allValue") else values
        else:
            variables[name] = values[0] if values else ""
    return variables


# --- numbers ---------------------------------------------------------------------------------------------------

def scaled(value, base, units, digits):
    step = 0
    while abs(value) >= base and step < len(units) - 1:
        value, step = value / base, step + 1
    return f"{short(value, digits)}{units[step]}"


def short(value, digits):
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    text = f"{float(text):g}" if abs(float(text)) < 1e6 else f"{value:.3g}"
    return text.replace("e-0", "e-")


def shown(value, unit, decimals=None, digits=3):
    value = 0.0 if abs(value) < 1e-12 else value
    if unit in ("percent", "percentunit"):
        value = value * 100 if unit == "percentunit" else value
        return f"{value:.{decimals}f}%" if decimals is not None else f"{short(value, digits)}%"
    if unit == "bytes":
        return scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], digits)
    if unit == "Bps":
        return scaled(value, 1000, [" B/s", " kB/s", " MB/s", " GB/s", " TB/s"], digits)
    if unit == "s":
        seconds = abs(value) >= 1 or value == 0
        return f"{short(value, digits)} s" if seconds else f"{short(value * 1000, digits)} ms"
    if unit == "celsius":
        return f"{short(value, digits)} °C"
    if unit == "hertz":
        return scaled(value, 1000, [" Hz", " kHz", " MHz", " GHz"], digits)
    if unit in ("watt", "joule"):
        letter = unit[0].upper()
        return scaled(value, 1000, [f" {prefix}{letter}" for prefix in ("", "k", "M", "G")], digits)
    behind = {"iops": " io/s", "cps": " c/s", "pps": " p/s", "reqps": " req/s", "ops": " ops/s"}.get(unit, "")
    if decimals is not None and abs(value) < 1000:
        return f"{value:.{decimals}f}{behind}"
    return scaled(value, 1000, ["", " K", " Mil", " Bil"], digits) + behind


# --- drawing ---------------------------------------------------------------------------------------------------

class Picture:
    def __init__(self, rows):
        self.height = HEAD_PX + rows * UNIT_PX + FOOT_PX
        self.figure = plt.figure(figsize=(WIDTH_PX / DPI, self.height / DPI), dpi=DPI, facecolor=CANVAS)

    def axes(self, x, y, w, h):
        return self.figure.add_axes((x / WIDTH_PX, 1 - (y + h) / self.height, w / WIDTH_PX, h / self.height))

    def text(self, x, y, words, size=9.5, **more):
        more = {"color": TEXT, "va": "center"} | more
        return self.figure.text(x / WIDTH_PX, 1 - y / self.height, words, fontsize=size, **more)

    def width(self, drawn):
        """Pixels that a text takes."""
        return drawn.get_window_extent(self.figure.canvas.get_renderer()).width

    def box(self, x, y, w, h, face=PANEL, edge=BORDER, radius=3):
        axes = self.axes(x, y, w, h)
        axes.set(xlim=(0, w), ylim=(0, h))
        axes.axis("off")
        axes.add_patch(FancyBboxPatch((0.5, 0.5), w - 1, h - 1, boxstyle=f"round,pad=0,rounding_size={radius}",
                                      facecolor=face, edgecolor=edge, linewidth=0.8))
        return axes


def place(grid, top):
    column = (WIDTH_PX - 2 * MARGIN_PX + GAP_PX) / 24
    return (MARGIN_PX + grid["x"] * column, HEAD_PX + (grid["y"] - top) * UNIT_PX, grid["w"] * column - GAP_PX,
            grid["h"] * UNIT_PX - GAP_PX)


def properties(panel, name):
    """Settings of one line: the defaults of the panel and what its overrides say for this name."""
    config = panel["fieldConfig"]
    found = dict(config["defaults"]["custom"])
    for rule in config["overrides"]:
        if re.search(rule["matcher"]["options"], name):
            for one in rule["properties"]:
                found[one["id"].removeprefix("custom.")] = one["value"]
    return found


def fixed(setting):
    return color(setting["fixedColor"]) if setting and setting.get("mode") == "fixed" else None


def threshold(panel, value):
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return color([step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1])


def reduced(panel, values):
    calc = panel["options"]["reduceOptions"]["calcs"][0]
    return {"diff": values[-1] - values[0], "mean": sum(values) / len(values), "max": max(values)}.get(calc, values[-1])


def draw_stat(picture, panel, box, lines):
    x, y, w, h = box
    defaults = panel["fieldConfig"]["defaults"]
    if not lines:
        picture.text(x + w / 2, y + h / 2 + 8, defaults.get("noValue", "No data"), 12, color=DIM, ha="center")
        return
    line = lines[0]
    value = reduced(panel, line["values"])
    tint = fixed(defaults["color"]) or threshold(panel, value)
    if panel["options"]["graphMode"] == "area" and len(line["times"]) > 1:
        axes = picture.axes(x + 1, y + h * 0.66, w - 2, h * 0.34 - 1)
        axes.axis("off")
        axes.fill_between(line["times"], line["values"], min(0, min(line["values"])), color=tint, alpha=0.18, lw=0)
        axes.plot(line["times"], line["values"], color=tint, lw=1, alpha=0.8)
        axes.set_xlim(line["times"][0], line["times"][-1])
        axes.set_ylim(bottom=min(0, min(line["values"])), top=(max(line["values"]) or 1) * 1.05)
    words = shown(value, defaults["unit"], defaults.get("decimals"))
    for mapping in defaults["mappings"]:
        said = mapping["options"].get(f"{value:g}")
        if said:
            words, tint = said["text"], color(said["color"])
    picture.text(x + w / 2, y + h * 0.46, words, 20, color=tint, ha="center", weight="bold")


def draw_bars(picture, panel, box, lines):
    x, y, w, h = box
    defaults = panel["fieldConfig"]["defaults"]
    lines = lines[: max(1, int((h - 40) // 22))]
    if not lines:
        picture.text(x + w / 2, y + h / 2, "No data", 12, color=DIM, ha="center")
        return
    values = [reduced(panel, line["values"]) for line in lines]
    low, high = min(0, *values), max(0, *values)
    each = min(panel["options"]["maxVizHeight"] + 8, (h - 44) / len(lines))
    drawn = [picture.text(x + 12, y, line["name"], 9) for line in lines]
    label_px = min(w * 0.42, 16 + max(picture.width(one) for one in drawn))
    axes = picture.axes(x + 12 + label_px, y + 36, w - label_px - 110, each * len(lines))
    axes.axis("off")
    axes.set(xlim=(low, high or 1), ylim=(len(lines), 0))
    for at, (line, value) in enumerate(zip(lines, values)):
        tint = SHADES((value - low) / ((high - low) or 1) )
        axes.add_patch(Rectangle((low, at + 0.15), (high or 1) - low, 0.7, facecolor="#22252b", lw=0))
        axes.add_patch(Rectangle((min(value, 0), at + 0.15), abs(value), 0.7, facecolor=tint, lw=0))
        middle = y + 36 + each * (at + 0.5)
        drawn[at].set_y(1 - middle / picture.height)
        picture.text(x + w - 12, middle, shown(value, defaults["unit"]), 10, color=tint, ha="right", weight="bold")


def draw_states(picture, panel, box, lines):
    """A row for each line, in which each value is a colour for as long as it holds."""
    x, y, w, h = box
    defaults = panel["fieldConfig"]["defaults"]
    if not lines:
        picture.text(x + w / 2, y + h / 2, "No data", 12, color=DIM, ha="center")
        return
    drawn = [picture.text(x + 12, y, line["name"], 8.5) for line in lines]
    label_px = 24 + max(picture.width(one) for one in drawn)
    height = h - 34 - 26
    axes = picture.axes(x + label_px, y + 34, w - label_px - 14, height)
    axes.set_facecolor(PANEL)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(colors=DIM, labelsize=8, length=0, pad=4)
    axes.set(xlim=(picture.start, picture.end), ylim=(len(lines), 0), yticks=[])
    known = [value for line in lines for value in line["values"]]
    low, high = defaults.get("min", min(known)), defaults.get("max", max(known))
    thick = panel["options"]["rowHeight"]
    for at, line in enumerate(lines):
        times = line["times"]
        apart = min((b - a for a, b in zip(times, times[1:])), default=picture.end - picture.start)
        for time, until, value in zip(times, [*times[1:], times[-1] + apart], line["values"]):
            # What nobody told is left out.
            until = min(until, time + 3 * apart, picture.end)
            axes.add_patch(Rectangle((time, at + (1 - thick) / 2), until - time, thick, lw=0, antialiased=False,
                                     facecolor=SHADES((value - low) / ((high - low) or 1)), alpha=0.9))
        drawn[at].set_y(1 - (y + 34 + height * (at + 0.5) / len(lines)) / picture.height)
    form, times = instants(*axes.get_xlim(), int((w - 80) // 85))
    axes.xaxis.set_major_locator(FixedLocator(times))
    axes.xaxis.set_major_formatter(FuncFormatter(
        lambda value, _: datetime.fromtimestamp(value, timezone.utc).strftime(form)))


def draw_graph(picture, panel, box, lines):
    x, y, w, h = box
    options = panel["options"]
    table = options["legend"]["displayMode"] == "table"
    rows = min(len(lines), 6)
    legend_px = 22 + 17 * rows if table else 24 if options["legend"]["showLegend"] else 4
    height = h - 34 - legend_px - 24
    axes = picture.axes(x + 66, y + 34, w - 66 - 14, height)
    axes.set_facecolor(PANEL)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.grid(True, color=GRID, lw=0.6)
    axes.tick_params(colors=DIM, labelsize=8, length=0, pad=4)
    axes.minorticks_off()
    axes.set_xlim(picture.start, picture.end)
    if not lines:
        axes.set_yticks([])
        axes.set_xticks([])
        picture.text(x + w / 2, y + h / 2, "No data", 12, color=DIM, ha="center")
        return
    entries, drawn = draw_lines(axes, panel, lines, w)
    draw_scales(axes, panel, drawn, int((w - 80) // 85))
    label = panel["fieldConfig"]["defaults"]["custom"]["axisLabel"]
    picture.text(x + 10, y + 34 + height / 2, label, 8.5, color=DIM, rotation=90, ha="center")
    if options["legend"]["showLegend"]:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        draw_legend(picture, (x, y + h - legend_px, w), entries, unit, table, rows)


def draw_lines(axes, panel, lines, width_px):
    """Names, colours and values for the legend, and the values as they are drawn."""
    # Half of a line at the very edge would be cut off without these pixels.
    clip = axes.bbox.padded(2)
    entries, drawn, bottom, by_name = [], [], None, {}
    for at, line in enumerate(lines):
        style = properties(panel, line["name"])
        tint = fixed(style.get("color")) or PALETTE[at % len(PALETTE)]
        sign = -1 if style.get("transform") == "negative-Y" else 1
        times, values, floor = line["times"], [sign * value for value in line["values"]], 0
        entries.append((line["name"], tint, line["values"]))
        by_name[line["name"]] = (times, values, tint, style)
        if style["stacking"]["mode"] != "none":
            known = dict(zip(*bottom)) if bottom else {}
            floor = [known.get(time, 0) for time in times]
            values = [value + below for value, below in zip(values, floor)]
            bottom = (times, values)
        drawn.append(values)
        axes.plot(times, values, color=tint, lw=style["lineWidth"] * 1.1, zorder=3, clip_box=clip,
                  dashes=[4, 3] if style.get("lineStyle", {}).get("dash") else (None, None))
        if style["showPoints"] == "auto" and len(times) * POINT_PX < width_px:
            axes.plot(times, values, color=tint, lw=0, marker="o", markersize=4, zorder=3, clip_box=clip)
        if style["fillOpacity"] and not style.get("fillBelowTo"):
            axes.fill_between(times, values, floor, color=tint, alpha=style["fillOpacity"] / 100, lw=0, zorder=2)
    for times, values, tint, style in by_name.values():
        if style.get("fillBelowTo") in by_name:
            below = dict(zip(*by_name[style["fillBelowTo"]][:2]))
            axes.fill_between(times, values, [below.get(time, value) for time, value in zip(times, values)],
                              color=tint, alpha=style["fillOpacity"] / 100 + 0.08, lw=0)
    return entries, drawn


def draw_scales(axes, panel, drawn, times_max):
    defaults = panel["fieldConfig"]["defaults"]
    custom, unit = defaults["custom"], defaults["unit"]
    if custom["scaleDistribution"]["type"] == "log" and any(value > 0 for values in drawn for value in values):
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        limit(axes, defaults, drawn)
        axes.yaxis.set_major_locator(FixedLocator(ticks(axes.get_ylim(), unit)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit, digits=4)))
    if custom["thresholdsStyle"]["mode"] != "off":
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is not None:
                axes.axhline(step["value"], color=color(step["color"]), lw=1, ls=(0, (5, 4)), alpha=0.8, zorder=1)
    form, times = instants(*axes.get_xlim(), times_max)
    axes.xaxis.set_major_locator(FixedLocator(times))
    axes.xaxis.set_major_formatter(FuncFormatter(
        lambda value, _: datetime.fromtimestamp(value, timezone.utc).strftime(form)))


def ticks(limits, unit):
    """About five round numbers, round in GiB where the unit counts so."""
    low, high = limits
    scale = 1
    while unit == "bytes" and max(abs(low), abs(high)) >= 1024 * scale:
        scale *= 1024
    found = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low / scale, high / scale) * scale
    return [tick for tick in found if low <= tick <= high]


def instants(start, end, most):
    """How times are written, and round ones between start and end, in seconds."""
    steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]
    step = next((step for step in steps if (end - start) / step <= most), 86400)
    first = -(-start // step) * step
    # What is written at the very end would hang out of the panel.
    times = [first + step * at for at in range(int((end - first) // step) + 1)]
    times = [time for time in times if end - time > (end - start) / 25]
    return ("%H:%M:%S" if step % 60 else "%H:%M"), times


def limit(axes, defaults, drawn):
    low = min(min(values) for values in drawn)
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    elif low >= 0 and defaults["unit"] != "short":
        axes.set_ylim(bottom=0)
    if "max" in defaults:
        axes.set_ylim(top=defaults["max"])
    bottom, top = axes.get_ylim()
    if all(value == 0 for values in drawn for value in values):
        axes.set_ylim(min(bottom, 0), 1)


def draw_legend(picture, box, entries, unit, table, rows):
    x, y, w = box
    if table:
        columns = [("Last", lambda v: v[-1]), ("Max", lambda v: max(v, key=abs)), ("Mean", lambda v: sum(v) / len(v))]
        for at, (title, _) in enumerate(columns):
            picture.text(x + w - 16 - 84 * at, y + 8, title, 8, color="#6e9fff", ha="right", weight="bold")
        for at, (name, tint, values) in enumerate(entries[:rows]):
            middle = y + 25 + 17 * at
            swatch(picture, x + 14, middle, tint)
            picture.text(x + 34, middle, name, 8.5)
            for column, (_, calc) in enumerate(columns):
                picture.text(x + w - 16 - 84 * column, middle, shown(calc(values), unit), 8.5, ha="right")
        return
    left = x + 14
    for at, (name, tint, _) in enumerate(entries):
        drawn = picture.text(left + 19, y + 8, name if len(name) < 40 else name[:38] + "…", 8.5)
        width = 19 + picture.width(drawn)
        if left + width > x + w - (0 if at == len(entries) - 1 else 20):
            drawn.set_text("…")
            break
        swatch(picture, left, y + 8, tint)
        left += width + 14


def swatch(picture, x, y, tint):
    picture.figure.add_artist(plt.Line2D([x / WIDTH_PX, (x + 13) / WIDTH_PX], [1 - y / picture.height] * 2, color=tint,
                                         lw=3, solid_capstyle="round"))


DRAW = {"timeseries": draw_graph, "stat": draw_stat, "bargauge": draw_bars, "state-timeline": draw_states}


def repeated(panels, variables):
    """Panels as they stand once each repeated one is there for each of its values."""
    shift = 0
    for panel in panels:
        grid = dict(panel["gridPos"], y=panel["gridPos"]["y"] + shift)
        if not panel.get("repeat"):
            yield panel | {"gridPos": grid}, variables
            continue
        most = panel.get("maxPerRow", 4)
        values = variables[panel["repeat"]]
        width = 24 // min(most, max(1, len(values)))
        for at, value in enumerate(values):
            spot = dict(grid, x=at % most * width, w=width, y=grid["y"] + at // most * grid["h"])
            yield panel | {"gridPos": spot}, variables | {panel["repeat"]: value}
        shift += (max(len(values), 1) - 1) // most * grid["h"]


def unfolded(panels, title, above):
    """The row of that title without its panels inside, those below it, and before it the numbers that match `above`."""
    at = next(at for at, panel in enumerate(panels) if panel["type"] == "row" and panel["title"] == title)
    row, members = panels[at], panels[at]["panels"]
    if not row["collapsed"]:
        after = panels[at + 1:]
        members = after[:next((n for n, panel in enumerate(after) if panel["type"] == "row"), len(after))]
    numbers = [panel for panel in panels if panel["type"] == "stat" and above and re.fullmatch(above, panel["title"])]
    found, x, y = [], 0, 0
    for panel in numbers:
        grid = panel["gridPos"]
        x, y = (x, y) if x + grid["w"] <= 24 else (0, y + grid["h"])
        found.append(panel | {"gridPos": grid | {"x": x, "y": y}})
        x += grid["w"]
    y += numbers[-1]["gridPos"]["h"] if numbers else 0
    found.append(row | {"collapsed": False, "gridPos": row["gridPos"] | {"y": y}})
    shift = y + 1 - min(panel["gridPos"]["y"] for panel in members)
    return found + [panel | {"gridPos": panel["gridPos"] | {"y": panel["gridPos"]["y"] + shift}} for panel in members]


def draw_head(picture, board, variables, note):
    left = MARGIN_PX + 4
    left += picture.width(picture.text(left, 26, board["title"], 15, weight="bold")) + 24
    for variable in board["templating"]["list"][1:]:
        chosen = variables[variable["name"]]
        words = "All" if chosen is None else chosen if isinstance(chosen, str) else " + ".join(chosen)
        if not isinstance(chosen, str) and chosen and len(chosen) > 2:
            words = f"All ({len(chosen)})"
        label = picture.text(left + 10, 26, variable["label"], 9, color="#6e9fff", zorder=5)
        value = picture.text(left + 20 + picture.width(label), 26, words, 9, zorder=5)
        width = 32 + picture.width(label) + picture.width(value)
        picture.box(left, 12, width, 28, face="none")
        left += width + 8
    first, last = (datetime.fromtimestamp(at, timezone.utc) for at in (picture.start, picture.end))
    when = f"{first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC"
    picture.text(WIDTH_PX - MARGIN_PX, 26, when, 9.5, ha="right", color=TEXT)
    picture.text(MARGIN_PX, picture.height - FOOT_PX / 2 - 1, note, 8.5, color=DIM)


def draw(board, telem, chosen, rows, top, note):
    variables = choose(telem, board, chosen)
    picture = Picture(rows)
    picture.start, picture.end = telem.start / 1000, telem.end / 1000
    draw_head(picture, board, variables, note)
    for panel, own in repeated(board["panels"], variables):
        grid = panel["gridPos"]
        if grid["y"] < top or grid["y"] + grid["h"] > top + rows:
            continue
        x, y, w, h = place(grid, top)
        if panel["type"] == "row":
            sign = "›" if panel["collapsed"] else "⌄"
            picture.text(x + 4, y + h / 2, f"{sign}  {panel['title']}", 11, weight="bold")
            continue
        if panel["type"] == "text":
            picture.text(x + 12, y + h / 2, re.sub("[`*]", "", panel["options"]["content"]), 9.5, color=DIM)
            continue
        picture.box(x, y, w, h)
        picture.text(x + 12, y + 17, replace(panel["title"], own), 10, weight="bold")
        DRAW[panel["type"]](picture, panel, (x, y, w, h), telem.series(panel, own, w))
    return picture.figure


def instant(text):
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dashboard", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--url", default="http://localhost:4242")
    parser.add_argument("--from", dest="start", help="RFC 3339; the last 5 minutes without it")
    parser.add_argument("--to", dest="end")
    parser.add_argument("--var", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--height", type=int, default=30, help="rows of the dashboard's grid")
    parser.add_argument("--top", type=int, default=0, help="the first of them")
    parser.add_argument("--row", help="the title of the only row that is drawn")
    parser.add_argument("--above", help="titles of the numbers that are drawn above it, a regular expression")
    parser.add_argument("--note", default="")
    args = parser.parse_args()
    now = datetime.now(timezone.utc)
    start = instant(args.start or (now - timedelta(minutes=5)).isoformat())
    end = instant(args.end or now.isoformat())
    board = json.loads(args.dashboard.read_text(encoding="utf-8"))
    if args.row:
        board["panels"] = unfolded(board["panels"], args.row, args.above)
    chosen = dict(one.split("=", 1) for one in args.var)
    note = ("Drawn by docs/pictures/render.py, not by Grafana, from the answers to the queries of "
            f"{args.dashboard.name}. ")
    figure = draw(board, Telem(args.url, start, end), chosen, args.height, args.top, note + args.note)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.output, dpi=DPI, facecolor=CANVAS)
    # Without transparency, which nothing has. A palette would be smaller, and give two lines of a legend one colour.
    Image.open(args.output).convert("RGB").save(args.output, optimize=True)
    print(f"{args.output}: {args.output.stat().st_size // 1024} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
