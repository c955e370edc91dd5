"""Dragon's widget for notebooks: one metric of the job, drawn with matplotlib, else as text."""

from __future__ import annotations

import datetime
import math
import time
from importlib import import_module
from typing import Any, Dict, List, Optional, Set

from ._analysis import AnalysisClient
from ._telemetry import Telemetry

METRIC = "num_running_processes"
"""What is shown where no metric is named."""
CONNECT_S = 60.0
"""How long ``connect()`` waits for the service, in seconds."""
COLUMNS = 60
"""Width of a line that is drawn as text."""
BLOCKS = "▁▂▃▄▅▆▇█"


class DragonTelemetryWidget:
    """Draws metrics of the job that it runs in, from its own start on.

        widget = DragonTelemetryWidget()
        slider = widget.custom_slider()
        widget.render("used_RAM", slider.value)

    With matplotlib ``render`` gives a figure, else a :class:`TextFigure`, which notebooks and ``print`` show.
    """

    def __init__(self) -> None:
        self._telemetry_started = Telemetry().level > 0
        self._start_time = int(time.time())
        self.tac: Optional[AnalysisClient] = None

    def connect(self) -> None:
        """Waits for the service up to 60 s. Raises ``RuntimeError``."""
        client = AnalysisClient()
        try:
            client.connect(timeout=CONNECT_S)
        except Exception as error:
            raise RuntimeError(f"Could not connect to telemetry analysis server. {error}") from error
        self.tac = client
        self._telemetry_started = True

    def get_start_time(self) -> int:
        """Seconds since 1970 when the widget was made. Raises ``RuntimeError`` where there is no telemetry."""
        self._check()
        return self._start_time

    def get_metrics(self) -> Set[str]:
        self._check()
        return self._client().get_metrics()

    def get_data(self, metric_name: Optional[str] = None, start_time: Optional[float] = None) -> List[Dict[str, Any]]:
        """As :meth:`AnalysisClient.get_data`, by default since the widget was made, with a line for each GPU if there are any."""
        since = self._start_time if start_time is None else start_time
        name = METRIC if metric_name is None else metric_name
        return self._client().get_data(name, tags=["host", "gpu"], start_time=since) or self._client().get_data(
            name, start_time=since
        )

    def render(self, metric_name: Optional[str], percentage_window: float) -> Any:
        """``metric_name`` as a figure; ``percentage_window``, from 0 to 1, leaves out as much of the time at its beginning."""
        began = self.get_start_time()
        share = min(max(float(percentage_window), 0.0), 1.0)
        data = self.get_data(metric_name, int(began + (time.time() - began) * share))
        title = f"Metric: {metric_name or METRIC}"
        try:
            pyplot: Any = import_module("matplotlib.pyplot")
        except ImportError:
            return TextFigure(title, data)
        return _figure(pyplot, title, data)

    def custom_slider(self) -> Any:
        """A slider for ``percentage_window`` of ipywidgets; without that, something with a ``value`` that can be set."""
        try:
            widgets: Any = import_module("ipywidgets")
        except ImportError:
            return TextSlider()
        return widgets.FloatSlider(min=0, max=1, step=0.01, description="Time Zoom:")

    def _check(self) -> None:
        if not self._telemetry_started:
            why = "start the notebook or program with `telem run`, or name a service in TELEM_CONNECTION, and call connect()"
            raise RuntimeError(f"Telemetry has not been started: {why}.")

    def _client(self) -> AnalysisClient:
        if self.tac is None:
            self.connect()
        assert self.tac is not None, "connected, or it has raised"
        return self.tac


def _label(tags: Dict[str, str]) -> str:
    return f"{tags['host']} (gpu:{tags['gpu']})" if tags.get("gpu") is not None else tags["host"]


def _figure(pyplot: Any, title: str, data: List[Dict[str, Any]]) -> Any:
    dates = import_module("matplotlib.dates")
    figure, axes = pyplot.subplots()
    for line in data:
        times = [datetime.datetime.fromtimestamp(int(second)) for second in line["dps"]]
        axes.plot(times, list(line["dps"].values()), label=_label(line["tags"]))
    axes.set_title(title)
    axes.set_xlabel("time")
    if data:
        axes.legend()
        axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M:%S"))
        figure.autofmt_xdate()
    # A notebook shows what a cell returns: left open, the figure would be drawn twice.
    pyplot.close(figure)
    return figure


class TextSlider:
    """In place of a slider."""

    def __init__(self) -> None:
        self.value = 0.0

    def __repr__(self) -> str:
        return f"Time Zoom: {self.value:g} (ipywidgets is not installed; set .value from 0 to 1)"


class TextFigure:
    """A line of blocks for each series, between its least and its greatest value."""

    def __init__(self, title: str, data: List[Dict[str, Any]]) -> None:
        self.title = title
        self._lines = [(_label(line["tags"]), line["dps"]) for line in data]

    def __str__(self) -> str:
        if not self._lines:
            return f"{self.title}\n(no points)"
        width = max(len(label) for label, _ in self._lines)
        return "\n".join([self.title, *(f"{label:<{width}}  {_drawn(dps)}" for label, dps in self._lines)])

    __repr__ = __str__


def _drawn(dps: Dict[str, float]) -> str:
    points = sorted((int(second), value) for second, value in dps.items() if math.isfinite(value))
    if not points:
        return "(no finite points)"
    first, last = points[0][0], points[-1][0]
    columns: List[List[float]] = [[] for _ in range(min(COLUMNS, last - first + 1))]
    for second, value in points:
        columns[(second - first) * (len(columns) - 1) // max(last - first, 1)].append(value)
    values = [value for _, value in points]
    least, greatest = min(values), max(values)
    drawn = "".join(" " if not column else _block(sum(column) / len(column), least, greatest) for column in columns)
    return f"{drawn}  {least:g} to {greatest:g}, last {values[-1]:g}"


def _block(value: float, least: float, greatest: float) -> str:
    share = 0.5 if greatest <= least else (value - least) / (greatest - least)
    return BLOCKS[min(max(int(share * len(BLOCKS)), 0), len(BLOCKS) - 1)]
