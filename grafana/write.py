#!/usr/bin/env python3
"""Writes the dashboards: `python3 grafana/write.py` puts dashboards/*.json beside this file.

The JSON is what Grafana and the binary read; this script is where it is edited, so that a panel is a few lines
and every panel looks alike. `--check` writes nothing and fails when a file is not what this script writes.

Rules that every panel follows:
* The data source is the variable `datasource`, so that a dashboard works in any Grafana it is imported into.
* Hosts are chosen by a regular expression, `^${host:regex}$`. A list of names would be refused as a whole when
  one of them is unknown, and would be empty before the first host has written.
* A sum over everything that is not grouped by is right at every level: level 2 stores one series a host (and
  mode), level 3 stores one a core, disk or interface instead.
* Counters are downsampled to the first value of a bucket and then turned into a rate: the last bucket, which is
  seldom whole, would otherwise always show a fall. A reset gives no point.
* A number that says by how much a counter grew in the time range is made of the growth of each series. The difference
  of sums would count the whole life of every host or GPU that came or went in the range.
* Intervals are Grafana's own: nothing asks for more points than the panel has pixels. But a rate is never asked more
  finely than its counter is sampled, or in steps that cut between samples: buckets would then hold one sample here
  and none there, and a steady counter would be drawn as a comb.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = {"type": "opentsdb", "uid": "${datasource}"}
# Grafana 10.4 writes this version; later ones read it and migrate it as they load it.
SCHEMA_VERSION = 39

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE = "green", "#EAB839", "orange", "red", "blue", "purple"


# --- queries ---------------------------------------------------------------------------------------------------

def only(tag, pattern, kind="regexp", group=False):
    return {"type": kind, "tagk": tag, "filter": pattern, "groupBy": group}


def each(tag):
    """One line for each value of a tag; series without the tag are left out."""
    return only(tag, "*", "wildcard", group=True)


def per_host(group=True):
    return only("host", "^${host:regex}$", group=group)


def ask(metric, *filters, name="", by="sum", within="avg", counter=False):
    """One query: `within` makes one value of a series' samples in a bucket, `by` one of the series of a group."""
    target = {
        "datasource": SOURCE,
        "metric": metric,
        "aggregator": by,
        "downsampleAggregator": "first" if counter else within,
        "downsampleFillPolicy": "none",
        "filters": list(filters),
    }
    if name:
        target["alias"] = name
    if counter:
        target |= {"shouldComputeRate": True, "isCounter": True}
    return target


def grown(metric, *filters):
    """By how much counters grew in the whole time range: the growth of each series, added up."""
    return ask(metric, *filters, within="diff") | {"downsampleInterval": "0all"}


# --- panels ----------------------------------------------------------------------------------------------------

def steps(*pairs, base=GREEN):
    return {"mode": "absolute", "steps": [{"color": base, "value": None}] + [
        {"color": color, "value": value} for value, color in pairs]}


def override(pattern, **properties):
    """Properties of the lines whose name matches; `custom__x` sets `custom.x`."""
    return {
        "matcher": {"id": "byRegexp", "options": pattern},
        "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()],
    }


def colored(pattern, color, **properties):
    return override(pattern, color={"mode": "fixed", "fixedColor": color}, **properties)


def below(pattern):
    """Draws the lines below zero: what is sent beside what is received."""
    return override(pattern, custom__transform="negative-Y")


def panel(kind, title, targets, help, unit, width, height, **more):
    defaults = {"unit": unit, "color": more.pop("color", {"mode": "palette-classic"}), "mappings": []}
    defaults["thresholds"] = more.pop("thresholds", steps())
    for key in ("min", "max", "decimals", "noValue", "mappings"):
        if key in more:
            defaults[key] = more.pop(key)
    defaults["custom"] = more.pop("custom", {})
    body = {
        "type": kind,
        "title": title,
        "description": help,
        "datasource": SOURCE,
        "size": (width, height),
        "fieldConfig": {"defaults": defaults, "overrides": more.pop("overrides", [])},
        "options": more.pop("options"),
        "targets": [dict(target, refId=chr(ord("A") + at)) for at, target in enumerate(targets)],
    }
    if any(target.get("shouldComputeRate") for target in targets):
        more.setdefault("interval", "$finest")
    return body | more


def graph(title, targets, help, unit, width=8, height=8, stack=None, legend="list", fill=10, scale="linear",
          **more):
    style = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 0 if stack else 1,
        "fillOpacity": fill,
        "gradientMode": "none" if stack else "opacity",
        "showPoints": more.pop("points", "never"),
        "pointSize": 4,
        "spanNulls": False,
        "axisPlacement": "auto",
        "axisBorderShow": False,
        "axisCenteredZero": False,
        "axisColorMode": "text",
        "axisLabel": more.pop("axis", ""),
        "barAlignment": 0,
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
        "scaleDistribution": {"type": "log", "log": 10} if scale == "log" else {"type": "linear"},
        "stacking": {"group": "A", "mode": stack or "none"},
        "thresholdsStyle": {"mode": "dashed" if "thresholds" in more else "off"},
    }
    calcs = ["mean", "max", "lastNotNull"] if legend == "table" else []
    options = {
        "legend": {"calcs": calcs, "displayMode": legend, "placement": "bottom", "showLegend": legend != "hidden"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    more.setdefault("min", 0)
    if more["min"] is None:
        del more["min"]
    return panel("timeseries", title, targets, help, unit, width, height, custom=style, options=options, **more)


def number(title, targets, help, unit, width=3, height=4, calc="lastNotNull", sparkline=True, **more):
    more.setdefault("color", {"mode": "thresholds"})
    options = {
        "colorMode": "value",
        "graphMode": "area" if sparkline else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": [calc], "fields": "", "values": False},
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    }
    return panel("stat", title, targets, help, unit, width, height, options=options, **more)


def states(title, targets, help, unit, width=24, height=10, **more):
    """A row for each series and a colour for each value: what lines cannot say of hundreds of series."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": False,
        "rowHeight": 0.95,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    more.setdefault("color", {"mode": "continuous-BlPu"})
    style = {"fillOpacity": 90, "hideFrom": {"legend": False, "tooltip": False, "viz": False}, "insertNulls": False,
             "lineWidth": 0, "spanNulls": False}
    return panel("state-timeline", title, targets, help, unit, width, height, custom=style, options=options, **more)


def bars(title, targets, help, unit, width=8, height=8, calc="lastNotNull", **more):
    options = {
        "displayMode": "gradient",
        "maxVizHeight": 52,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": [calc], "fields": "", "values": False},
        "showUnfilled": True,
        "sizing": "manual",
        "valueMode": "color",
    }
    more.setdefault("color", {"mode": "continuous-BlPu"})
    return panel("bargauge", title, targets, help, unit, width, height, options=options, **more)


def text(content, width=24, height=2):
    return {
        "type": "text",
        "title": "",
        "description": "",
        "transparent": True,
        "size": (width, height),
        "options": {
            "mode": "markdown",
            "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
            "content": content,
        },
        "fieldConfig": {"defaults": {}, "overrides": []},
    }


# --- dashboards ------------------------------------------------------------------------------------------------

def lay_out(sections):
    """Panels in rows of 24 columns, top down; a section of a folded row holds its panels inside."""
    panels, y, last_id = [], 0, 0
    for title, folded, members in sections:
        row = None
        if title:
            last_id += 1
            row = {"id": last_id, "type": "row", "title": title, "collapsed": folded, "panels": [],
                   "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}}
            panels.append(row)
            y += 1
        top, x, tallest = y, 0, 0
        for member in members:
            last_id += 1
            width, height = member["size"]
            if x + width > 24:
                top, x, tallest = top + tallest, 0, 0
            placed = {"id": last_id} | {key: value for key, value in member.items() if key != "size"}
            placed["gridPos"] = {"x": x, "y": top, "w": width, "h": height}
            (row["panels"] if folded else panels).append(placed)
            x, tallest = x + width, max(tallest, height)
        if not folded:
            y = top + tallest
    return panels


def source_variable():
    return {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "opentsdb", "regex": "",
        "current": {"selected": True, "text": "telem", "value": "telem"}, "options": [], "refresh": 1, "hide": 0,
        "includeAll": False, "multi": False, "skipUrlSync": False,
        "description": "A data source of type OpenTSDB that asks telem.",
    }


def variable(name, label, query, help, several=False, every=".*", regex="", sort=7):
    """Asked again whenever the time range moves, so that hosts and metrics that come later show up.

    `every` stands for All in a filter; without it All is the list of all there are.
    """
    body = {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query, "query": query,
        "regex": regex, "refresh": 2, "sort": sort, "hide": 0, "skipUrlSync": False, "multi": several,
        "includeAll": several, "options": [], "description": help,
    }
    if several:
        body["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    if several and every:
        body["allValue"] = every
    return body


def choice(name, label, values, help):
    options = [{"selected": at == 0, "text": value, "value": value} for at, value in enumerate(values)]
    return {
        "name": name, "label": label, "type": "custom", "query": ",".join(values), "options": options,
        "current": options[0], "hide": 0, "skipUrlSync": False, "multi": False, "includeAll": False,
        "description": help,
    }


def finest():
    return choice("finest", "Finest step", ["1s", "100ms", "200ms", "500ms", "2s", "5s", "10s", "30s", "1m"],
                  "Rates are not asked more finely than this. It must be a multiple of the interval of the collectors "
                  "(1 s, unless --interval says otherwise): 100ms zooms into a job that was sampled as often.")


def dashboard(uid, title, help, variables, sections):
    return {
        "uid": uid,
        "title": title,
        "description": help,
        "tags": ["telem"],
        "editable": True,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "timezone": "browser",
        "weekStart": "",
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "timepicker": {"refresh_intervals": ["1s", "5s", "10s", "30s", "1m", "5m", "15m"]},
        "annotations": {"list": []},
        "links": [{
            "title": "telem", "type": "dashboards", "tags": ["telem"], "asDropdown": False, "icon": "external link",
            "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": "",
        }],
        "templating": {"list": [source_variable(), *variables]},
        "panels": lay_out(sections),
    }


NOT_BUSY = only("mode", "idle|iowait", "not_literal_or")
GREY = "rgb(90, 90, 96)"
# From the bottom of the stack to its top.
MODES = [("user", "user", BLUE), ("nice", "nice", GREEN), ("system", "system", ORANGE),
         ("interrupts", "irq|softirq", PURPLE), ("steal", "steal", YELLOW), ("iowait", "iowait", RED),
         ("idle", "idle", GREY)]


def node():
    host = per_host()
    all_hosts = per_host(group=False)
    in_blue = {"mode": "fixed", "fixedColor": BLUE}
    glance = [
        number("Hosts", [ask("load_average", all_hosts, by="count")],
               "How many of the chosen hosts report.", "none", color=in_blue, sparkline=False, decimals=0, width=2),
        number("Cores", [ask("node_cpu_seconds_total", all_hosts, counter=True)],
               "CPU seconds of all modes, idle too, that pass in a second: the cores of the chosen hosts.",
               "none", color=in_blue, sparkline=False, decimals=0, width=2, calc="mean"),
        number("CPU", [ask("cpu_percent", all_hosts, by="avg")],
               "How busy the cores are, the mean of the chosen hosts. A job that computes wants this high.",
               "percent", color=in_blue, min=0, max=100, decimals=0),
        number("Memory, fullest host", [ask("used_RAM", all_hosts, by="max")],
               "Share of memory that cannot be had without swapping, of the host where it is largest. "
               "Near 100 % the kernel ends processes.",
               "percent", thresholds=steps((80, YELLOW), (92, RED)), min=0, max=100, decimals=0),
        number("OOM kills", [grown("node_vmstat_oom_kill", all_hosts)],
               "Processes that the kernel ended in this time range because memory ran out, on the chosen hosts.",
               "none", thresholds=steps((1, RED)), sparkline=False, decimals=0, width=2),
        number("Read from disks", [ask("node_disk_read_bytes_total", all_hosts, counter=True)],
               "Bytes a second from the disks of the chosen hosts.", "Bps", color=in_blue),
        number("Written to disks", [ask("node_disk_written_bytes_total", all_hosts, counter=True)],
               "Bytes a second to the disks of the chosen hosts.", "Bps", color=in_blue),
        number("Received", [ask("node_network_receive_bytes_total", all_hosts, counter=True)],
               "Bytes a second that the network interfaces of the chosen hosts receive, loopback left out.", "Bps",
               color=in_blue),
        number("Sent", [ask("node_network_transmit_bytes_total", all_hosts, counter=True)],
               "Bytes a second that the network interfaces of the chosen hosts send, loopback left out.", "Bps",
               color=in_blue),
    ]
    # Hosts without such hardware show a dash.
    none = {"noValue": "-", "sparkline": False, "width": 3}
    glance += [
        number("GPUs that answer", [ask("gpu_up", all_hosts)],
               "GPUs of the chosen hosts that answer. One that is lost or needs a reset is missing here; one that sleeps "
               "is not counted.", "none", color=in_blue, decimals=0, **none),
        number("GPUs lost", [ask("gpu_up", all_hosts, by="min", within="last") | {"downsampleInterval": "0all"}],
               "Whether the last word of some GPU of the chosen hosts in this time range is that it does not answer. Some "
               "say so once and never again.", "none", decimals=0, thresholds=steps((1, GREEN), base=RED),
               mappings=[{"type": "value", "options": {
                   "0": {"text": "LOST", "color": RED, "index": 0}, "1": {"text": "none", "color": GREEN, "index": 1}}}],
               **none),
        number("GPU", [ask("gpu_utilization_percent", all_hosts, by="avg")],
               "Share of time in which the GPUs computed, the mean of the chosen hosts. It says nothing of how full "
               "they were.", "percent", color=in_blue, min=0, max=100, decimals=0, **none),
        number("GPU memory, fullest", [ask("gpu_memory_used_bytes", all_hosts, by="max")],
               "Memory in use of the GPU where that is largest, or of its fullest part.", "bytes", color=in_blue, **none),
        number("GPU power", [ask("gpu_power_watts", all_hosts)], "What the GPUs of the chosen hosts draw together.",
               "watt", color=in_blue, **none),
        number("GPU energy", [grown("gpu_energy_joules_total", all_hosts)],
               "What the GPUs of the chosen hosts used in this time range. A driver that was loaded again in it shows too "
               "little here: the table job_energy knows of that.", "joule", color=in_blue, **none),
        number("Hottest GPU", [ask("gpu_temperature_celsius", all_hosts, by="max", within="max")],
               "Temperature of the hottest GPU of the chosen hosts.", "celsius",
               thresholds=steps((80, YELLOW), (90, RED)), **none),
        number("Idlest GPU", [ask("gpu_utilization_percent", all_hosts, by="min")],
               "Share of time in which the GPU computed that did so least: others wait for it, or it has no work.",
               "percent", color=in_blue, min=0, max=100, decimals=0, **none),
    ]
    glance += [
        number("Power", [ask("node_power_watts", all_hosts)],
               "What the chosen hosts draw, each by its best source: see the row Power for what that covers.", "watt",
               color=in_blue, **none),
        number("Energy", [grown("node_energy_joules_total", all_hosts)],
               "What the chosen hosts used in this time range, each by its sources. A counter that begins anew in it shows "
               "too little here: the table job_energy knows of that.", "joule", color=in_blue, **none),
        number("Memory of the job, fullest host", [ask("cgroup_memory_used_bytes", all_hosts, by="max")],
               "Memory that counts towards the limit of the job, of the host where it is largest.", "bytes",
               color=in_blue, **none),
        number("OOM kills in the job", [grown("cgroup_memory_oom_kills_total", all_hosts)],
               "Processes of the job that the kernel ended in this time range because memory ran out.", "none",
               thresholds=steps((1, RED)), decimals=0, **none),
    ]
    power = [
        graph("Power by source", [ask("node_power_watts", host, each("source"), name="${tag_host} ${tag_source}")],
              "What each host draws, by its best source, which says what is covered: pm_counters and acpi_power_meter the "
              "whole node, rapl_gpu CPUs, memory and GPUs, gpu or rapl these alone.", "watt", legend="table", fill=0,
              width=12),
        graph("Power by energy", [ask("node_energy_joules_total", host, each("source"),
                                      name="${tag_host} ${tag_source}", counter=True)],
              "Joules a second that the counter of each host grows. Far from the power beside it, one of the two is wrong.",
              "watt", legend="table", fill=0, width=12),
        graph("CPUs and memory (RAPL)",
              [ask("node_rapl_package_joules_total", host, name="${tag_host} packages", counter=True),
               ask("node_rapl_dram_joules_total", host, name="${tag_host} memory", counter=True)],
              "Watts of the CPU packages of each host, and of its memory beside them.", "watt", fill=0),
        graph("Parts of the node (Cray EX)",
              [ask("cray_pm_node_power_watts", host, name="${tag_host} node"),
               ask("cray_pm_cpu_power_watts", host, name="${tag_host} CPUs"),
               ask("cray_pm_memory_power_watts", host, name="${tag_host} memory"),
               ask("cray_pm_accel_power_watts", host, name="${tag_host} accelerators")],
              "The node contains the others.", "watt", fill=0),
    ]
    cgroup = [
        graph("Memory of the job against its limit",
              [ask("cgroup_memory_used_bytes", host, name="${tag_host} used"),
               ask("cgroup_memory_limit_bytes", host, name="${tag_host} limit")],
              "Memory that counts towards the limit of the job, cached files included. Without a limit there is no line.",
              "bytes", fill=0),
        graph("CPU of the job",
              [ask("cgroup_cpu_user_seconds_total", host, name="${tag_host} user", counter=True),
               ask("cgroup_cpu_system_seconds_total", host, name="${tag_host} system", counter=True)],
              "Cores that the job keeps busy on each host.", "none", axis="cores", fill=0),
        graph("Job kept from CPUs",
              [ask("cgroup_cpu_throttled_seconds_total", host, name="${tag_host}", counter=True)],
              "Seconds a second for which the job was kept from CPUs because it had used up its share.", "percentunit",
              fill=0),
        graph("Job waiting (pressure)",
              [ask(f"cgroup_pressure_{what}_waiting_seconds_total", host, name=f"${{tag_host}} {name}", counter=True)
               for what, name in [("cpu", "for a core"), ("memory", "for memory"), ("io", "for files")]],
              "Share of time in which some thread of the job waited, kept from `--level 3` on. Empty without control "
              "groups of version 2.", "percentunit", max=1, fill=0),
        graph("Memory limit",
              [ask("cgroup_memory_limit_hits_total", host, name="${tag_host} about to exceed", counter=True),
               ask("cgroup_memory_oom_kills_total", host, name="${tag_host} OOM kills", counter=True)],
              "How often a second the job ran into its memory limit, and how many of its processes that ended.", "cps",
              fill=0, overrides=[colored("OOM kills$", RED)]),
    ]
    files = [
        graph("Lustre throughput",
              [ask("lustre_client_read_bytes_total", host, each("fs"), name="${tag_host} ${tag_fs} read", counter=True),
               ask("lustre_client_written_bytes_total", host, each("fs"), name="${tag_host} ${tag_fs} write",
                   counter=True)],
              "Bytes a second of programs and each Lustre file system: reads above zero, writes below. Empty where only "
              "root may know.", "Bps", min=None, fill=0, overrides=[below(" write$")]),
        graph("Lustre operations", [ask("lustre_client_operations_total", host, each("fs"),
                                        name="${tag_host} ${tag_fs}", counter=True)],
              "Operations a second on files. Many small ones cost everybody who shares the file system.", "ops", fill=0),
        graph("NFS throughput",
              [ask("node_mountstats_nfs_total_read_bytes_total", host, each("mountpoint"),
                   name="${tag_host} ${tag_mountpoint} read", counter=True),
               ask("node_mountstats_nfs_total_write_bytes_total", host, each("mountpoint"),
                   name="${tag_host} ${tag_mountpoint} write", counter=True)],
              "Bytes a second of each NFS mount: reads above zero, writes below.", "Bps", min=None, fill=0,
              overrides=[below(" write$")]),
        graph("NFS operations",
              [ask("node_mountstats_nfs_operations_requests_total", host, each("operation"),
                   name="${tag_host} ${tag_operation}", counter=True)],
              "Requests a second of all NFS mounts by operation, kept from `--level 3` on. Many of GETATTR, LOOKUP and "
              "ACCESS are a program that looks for files, such as the modules of Python.", "ops", fill=0, width=24,
              height=6),
    ]
    fabric = [
        graph("Slingshot throughput",
              [ask("cxi_received_bytes_total", host, name="${tag_host} received", counter=True),
               ask("cxi_transmitted_bytes_total", host, name="${tag_host} sent", counter=True)],
              "Bytes a second of all Slingshot cards of a host: received above zero, sent below.", "Bps", min=None,
              fill=0, overrides=[below(" sent$")]),
        graph("Errors of InfiniBand",
              [ask("node_infiniband_symbol_error_total", host, name="${tag_host} symbol errors", counter=True),
               ask("node_infiniband_link_downed_total", host, name="${tag_host} links down", counter=True),
               ask("node_infiniband_port_errors_received_total", host, name="${tag_host} packets with errors",
                   counter=True),
               ask("node_infiniband_port_discards_transmitted_total", host, name="${tag_host} packets dropped",
                   counter=True)],
              "Events a second, kept from `--level 3` on. Anything but 0 for long is a cable or a port that fails.", "cps",
              fill=0),
        graph("Congestion of InfiniBand",
              [ask("node_infiniband_port_transmit_wait_total", host, name="${tag_host}", counter=True)],
              "Ticks a second of the ports' clocks in which data waited for the other side, kept from `--level 3` on.",
              "cps", fill=0),
        graph("RoCE: congestion and lost packets",
              [ask("node_infiniband_np_ecn_marked_roce_packets_received_total", host, name="${tag_host} marked",
                   counter=True),
               ask("node_infiniband_np_cnp_packets_sent_total", host, name="${tag_host} notices sent", counter=True),
               ask("node_infiniband_rp_cnp_packets_handled_total", host, name="${tag_host} notices obeyed",
                   counter=True),
               ask("node_infiniband_out_of_sequence_packets_received_total", host, name="${tag_host} out of order",
                   counter=True),
               ask("node_infiniband_roce_adp_retransmits_total", host, name="${tag_host} sent again", counter=True)],
              "Packets a second that switches marked because of congestion, notices of it, and packets that came out of "
              "order or had to be sent again; kept from `--level 3` on.", "pps", fill=0),
        graph("Errors of Slingshot",
              [ask("cxi_pcs_uncorrected_codewords_total", host, name="${tag_host} uncorrected code words", counter=True),
               ask("cxi_retry_spt_timeouts_total", host, name="${tag_host} timeouts", counter=True),
               ask("cxi_link_restarts_total", host, name="${tag_host} link restarts", counter=True)],
              "Events a second, kept from `--level 3` on.", "cps", fill=0),
    ]
    health = [
        graph("CPU temperature", [ask("node_cpu_temperature_celsius", host, by="max", within="max", name="${tag_host}")],
              "Temperature of the hottest CPU package of each host.", "celsius", width=6, height=6, fill=0),
        graph("Sensors", [ask("node_hwmon_temp_celsius", host, each("chip"), by="max", within="max",
                              name="${tag_host} ${tag_chip}"),
                          ask("node_thermal_zone_temp", host, each("type"), by="max", within="max",
                              name="${tag_host} ${tag_type}")],
              "Temperature of the hottest sensor of each chip, and of the zones that the kernel cools; kept from `--level "
              "3` on.", "celsius", width=6, height=6, fill=0, legend="hidden"),
        graph("CPUs slowed down by heat",
              [ask("node_cpu_core_throttles_total", host, name="${tag_host} cores", counter=True),
               ask("node_cpu_package_throttles_total", host, name="${tag_host} packages", counter=True)],
              "How often a second cores and packages were slowed down. Anything but 0 is a cooling that does not suffice.",
              "cps", width=6, height=6, fill=0, interval="5s"),
        graph("Memory errors (EDAC)",
              [ask("node_edac_correctable_errors_total", host, name="${tag_host} corrected", counter=True),
               ask("node_edac_uncorrectable_errors_total", host, name="${tag_host} NOT corrected", counter=True)],
              "Errors a second of the memory. Many that are corrected come before one that is not, which ends programs or "
              "the node.", "cps", width=6, height=6, fill=0, interval="5s", overrides=[colored("NOT corrected$", RED)]),
    ]
    numa = [
        graph("Memory in use by NUMA node",
              [ask("node_memory_numa_MemUsed_bytes", host, each("node"), name="${tag_host} node ${tag_node}")],
              "Memory in use of each NUMA node, cached files included. One that is full makes others serve it.", "bytes",
              height=6, fill=0),
        graph("Pages from another NUMA node",
              [ask("node_memory_numa_numa_miss_total", host, each("node"), name="${tag_host} node ${tag_node}",
                   counter=True)],
              "Pages a second that were taken from a NUMA node though the process wanted another, which was full.", "cps",
              height=6, fill=0, interval="5s"),
        graph("Pages of processes that run elsewhere",
              [ask("node_memory_numa_other_node_total", host, each("node"), name="${tag_host} node ${tag_node}",
                   counter=True)],
              "Pages a second that were taken from a NUMA node by processes on another. Processes that are bound to cores "
              "need none.", "cps", height=6, fill=0, interval="5s"),
    ]
    of_gpu = [host, each("gpu")]
    named = "${tag_host} GPU ${tag_gpu}"
    gpus = [
        states("GPU utilisation, a row for each GPU", [ask("gpu_utilization_percent", *of_gpu, by="avg", name=named)],
               "Share of time in which each GPU computed, by colour. A straggler, or a GPU without work, is a row that "
               "differs from the others.", "percent", min=0, max=100),
        graph("GPU utilisation", [ask("gpu_utilization_percent", *of_gpu, by="avg", name=named)],
              "Share of time in which each GPU computed; says nothing of how full it was.", "percent", max=100,
              legend="table", fill=0, width=12),
        graph("GPU memory", [ask("gpu_memory_used_bytes", *of_gpu, name=named)],
              "Memory of each GPU that is in use.", "bytes", legend="table", fill=0, width=12),
        graph("GPU power", [ask("gpu_power_watts", *of_gpu, name=named)],
              "What each GPU draws. Many average it over about 1 s.", "watt", fill=0),
        graph("GPU temperature", [ask("gpu_temperature_celsius", *of_gpu, by="max", name=named)],
              "Temperature of each GPU, of its hottest place where it tells that.", "celsius", fill=0,
              thresholds=steps((90, RED))),
        graph("GPU power by energy", [ask("gpu_energy_joules_total", *of_gpu, name=named, counter=True)],
              "Joules a second that the energy counter of each GPU grows: its power without the spikes that fall between "
              "samples. Far from the panel of power, one of the two is wrong.", "watt", fill=0),
        bars("Idlest GPUs", [ask("gpu_utilization_percent", *of_gpu, by="avg", name=named)],
             "The mean utilisation of each GPU in this time range.", "percent", calc="mean", min=0, max=100, width=12),
        bars("Hottest GPUs", [ask("gpu_temperature_celsius", *of_gpu, by="max", within="max", name=named)],
             "The highest temperature of each GPU in this time range.", "celsius", calc="max", width=12),
    ]
    gpus_in_detail = [
        text("Kept from `--level 3` on. What a GPU does not tell stays empty."),
        graph("GPU clocks", [ask("gpu_clock_hertz", *of_gpu, each("clock"), name=f"{named} ${{tag_clock}}")],
              "Clocks of the processors (sm) and of the memory of each GPU.", "hertz", fill=0),
        graph("GPU power limit", [ask("gpu_power_limit_watts", *of_gpu, name=f"{named} limit"),
                                  ask("gpu_power_watts", *of_gpu, name=named)],
              "What each GPU draws beside what it may draw.", "watt", fill=0),
        graph("GPUs held back", [ask("gpu_throttled_seconds_total", *of_gpu, each("reason"),
                                     name=f"{named} ${{tag_reason}}", counter=True)],
              "Share of time in which the clocks of a GPU were held down, by reason.", "percentunit", max=1, fill=0),
        graph("Tensor cores and multiprocessors",
              [ask("gpu_tensor_active_percent", *of_gpu, by="avg", name=f"{named} tensor cores"),
               ask("gpu_sm_active_percent", *of_gpu, by="avg", name=f"{named} multiprocessors"),
               ask("gpu_sm_occupancy_percent", *of_gpu, by="avg", name=f"{named} occupancy")],
              "Share of time in which parts of each GPU had work: a GPU that is busy all the time may still be nearly "
              "empty.", "percent", max=100, fill=0),
        graph("GPU memory traffic",
              [ask("gpu_memory_bandwidth_percent", *of_gpu, by="avg", name=f"{named} of what is possible"),
               ask("gpu_memory_activity_percent", *of_gpu, by="avg", name=f"{named} of the time")],
              "How much the memory of each GPU is read and written.", "percent", max=100, fill=0),
        graph("Links between GPUs",
              [ask("gpu_link_received_bytes_total", *of_gpu, name=f"{named} received", counter=True),
               ask("gpu_link_transmitted_bytes_total", *of_gpu, name=f"{named} sent", counter=True)],
              "Bytes a second over all links of each GPU to other GPUs: received above zero, sent below.", "Bps", min=None,
              fill=0, overrides=[below(" sent$")]),
        graph("Errors of GPUs",
              [ask("gpu_ecc_errors_total", *of_gpu, each("severity"), name=f"{named} ${{tag_severity}}", counter=True),
               ask("gpu_pcie_replays_total", *of_gpu, name=f"{named} PCI Express", counter=True),
               ask("gpu_xid_errors_total", *of_gpu, each("xid"), name=f"{named} Xid ${{tag_xid}}", counter=True)],
              "Errors a second of the memory, of the PCI Express link and of the driver. Uncorrected ones end programs.",
              "cps", fill=0),
        graph("GPU memory temperature",
              [ask("gpu_memory_temperature_celsius", *of_gpu, by="max", name=named)],
              "Temperature of the memory of each GPU.", "celsius", fill=0),
    ]
    dragon = [
        text("What Dragon's telemetry has of GPUs, under its own names. Kept from `--level 3` on."),
        graph("Device Utilization", [ask("DeviceUtilization", *of_gpu, by="avg", name=named)],
              "Share of time in which each GPU computed.", "percent", max=100, fill=0),
        graph("Device Memory Utilization", [ask("DeviceMemoryUtilization", *of_gpu, by="avg", name=named)],
              "Share of the memory of each GPU that is in use.", "percent", max=100, fill=0),
        graph("Device Power Usage", [ask("DevicePowerUsage", *of_gpu, name=named)], "What each GPU draws.", "watt",
              fill=0),
    ]
    cpu = [
        graph("CPU by host", [ask("cpu_percent", host, name="${tag_host}")],
              "How busy all cores of a host are together. A host below the others waits for them, or slows them.",
              "percent", width=12, max=100, legend="table"),
        graph("CPU by mode",
              [ask("node_cpu_seconds_total", all_hosts, only("mode", f"^({modes})$"), name=name, counter=True)
               for name, modes, _ in MODES],
              "What the cores of all chosen hosts do; the stack is as high as there are cores. "
              "iowait waits for disks, steal is taken by the machine that runs this one, system is the kernel.",
              "none", width=12, stack="normal", fill=70, axis="cores",
              overrides=[colored(f"^{name}$", color) for name, _, color in MODES]),
        graph("Load average", [ask("load_average", host, name="${tag_host}")],
              "Threads that ran or waited for a core or a disk, over the last minute. "
              "More than there are cores means that they queue.",
              "none"),
        graph("Threads and processes", [ask("node_procs_running", host, name="${tag_host} running"),
                            ask("node_procs_blocked", host, name="${tag_host} blocked"),
                            ask("num_running_processes", host, name="${tag_host} processes of the user")],
              "Threads on a core or waiting for one, threads that wait for a disk or a file system, and all processes "
              "of the user that telem runs as.", "none"),
        graph("Waiting for a core",
              [ask("node_pressure_cpu_waiting_seconds_total", host, name="${tag_host}", counter=True)],
              "Share of time in which at least one thread was ready and had no core (pressure, PSI). "
              "Empty where the kernel does not measure it.", "percentunit", max=1),
    ]
    memory = [
        graph("Memory used by host", [ask("used_RAM", host, name="${tag_host}")],
              "Share of memory that cannot be had without swapping.", "percent", max=100,
              thresholds=steps((92, RED))),
        graph("Memory of all chosen hosts",
              [ask("node_memory_AnonPages_bytes", all_hosts, name="programs"),
               ask("node_memory_Slab_bytes", all_hosts, name="kernel"),
               ask("node_memory_Buffers_bytes", all_hosts, name="buffers"),
               ask("node_memory_Cached_bytes", all_hosts, name="files and shared"),
               ask("node_memory_MemFree_bytes", all_hosts, name="free"),
               ask("node_memory_MemTotal_bytes", all_hosts, name="installed")],
              "Where the memory is. What holds files is given back when programs need it, unless it is shared memory "
              "or a file system in memory.", "bytes", stack="normal", fill=70,
              overrides=[colored("^programs$", BLUE), colored("^kernel$", ORANGE), colored("^buffers$", PURPLE),
                         colored("^files and shared$", "rgb(88, 120, 104)"), colored("^free$", GREY),
                         colored("^installed$", "rgb(160, 160, 170)", custom__fillOpacity=0, custom__lineWidth=1,
                                 custom__stacking={"group": "A", "mode": "none"},
                                 custom__lineStyle={"fill": "dash", "dash": [6, 6]})]),
        graph("Waiting for memory",
              [ask("node_pressure_memory_waiting_seconds_total", host, name="${tag_host} some", counter=True),
               ask("node_pressure_memory_stalled_seconds_total", host, name="${tag_host} all", counter=True)],
              "Share of time in which some, or all, threads waited for memory to be freed or read back "
              "(pressure, PSI). Anything but 0 costs the job time. Empty where the kernel does not measure it.",
              "percentunit", max=1),
        graph("Memory from disk", [ask("node_vmstat_pgmajfault", host, name="${tag_host} page faults", counter=True),
                                   ask("node_vmstat_pswpin", host, name="${tag_host} swapped in", counter=True),
                                   ask("node_vmstat_pswpout", host, name="${tag_host} swapped out", counter=True)],
              "Page faults a second that read from a disk, and pages a second from and to swap space. "
              "A job that swaps crawls.", "cps", width=12),
        graph("Swap space", [ask("node_memory_SwapTotal_bytes", host, name="${tag_host} installed"),
                             ask("node_memory_SwapFree_bytes", host, name="${tag_host} free")],
              "Both lines are 0 on a host without swap space.", "bytes", width=12, fill=0),
    ]
    disk = [
        graph("Disk throughput", [ask("node_disk_read_bytes_total", host, name="${tag_host} read", counter=True),
                                  ask("node_disk_written_bytes_total", host, name="${tag_host} write", counter=True)],
              "Bytes a second of all disks of a host: reads above zero, writes below.", "Bps", min=None,
              overrides=[below(" write$")]),
        graph("Disk operations",
              [ask("node_disk_reads_completed_total", host, name="${tag_host} read", counter=True),
               ask("node_disk_writes_completed_total", host, name="${tag_host} write", counter=True)],
              "Completed operations a second of all disks of a host: reads above zero, writes below. "
              "Many small ones cost more than few large ones.", "iops", min=None, overrides=[below(" write$")]),
        graph("Waiting for disks",
              [ask("node_pressure_io_waiting_seconds_total", host, name="${tag_host} some", counter=True),
               ask("node_pressure_io_stalled_seconds_total", host, name="${tag_host} all", counter=True)],
              "Share of time in which some, or all, threads waited for a disk or a file system (pressure, PSI). "
              "Empty where the kernel does not measure it.",
              "percentunit", max=1),
        graph("Space left", [ask("node_filesystem_avail_bytes", host, each("mountpoint"),
                                 name="${tag_host} ${tag_mountpoint}")],
              "Bytes that a user can still write to each file system.", "bytes", fill=0),
        graph("Files in memory that wait for the disk",
              [ask("node_memory_Dirty_bytes", host, name="${tag_host} waiting"),
               ask("node_memory_Writeback_bytes", host, name="${tag_host} being written")],
              "What programs have written and no disk has yet. It grows where they write faster than the disks.",
              "bytes"),
        graph("Disks busy", [ask("node_disk_io_time_seconds_total", host, name="${tag_host}", counter=True)],
              "Seconds a second in which the disks of a host had work, added up: 2 is two disks busy all the time.",
              "none"),
    ]
    network = [
        graph("Network throughput",
              [ask("node_network_receive_bytes_total", host, name="${tag_host} received", counter=True),
               ask("node_network_transmit_bytes_total", host, name="${tag_host} sent", counter=True)],
              "Bytes a second of all interfaces of a host but loopback: received above zero, sent below.", "Bps",
              min=None, overrides=[below(" sent$")]),
        graph("InfiniBand throughput",
              [ask("node_infiniband_port_data_received_bytes_total", host, name="${tag_host} received", counter=True),
               ask("node_infiniband_port_data_transmitted_bytes_total", host, name="${tag_host} sent", counter=True)],
              "Bytes a second of all InfiniBand ports of a host, RDMA included: received above zero, sent below. "
              "Empty on hosts without such ports.", "Bps", min=None, overrides=[below(" sent$")]),
        graph("Errors and drops",
              [ask("node_network_receive_errs_total", host, name="${tag_host} receive errors", counter=True),
               ask("node_network_transmit_errs_total", host, name="${tag_host} send errors", counter=True),
               ask("node_network_receive_drop_total", host, name="${tag_host} receive drops", counter=True),
               ask("node_network_transmit_drop_total", host, name="${tag_host} send drops", counter=True)],
              "Packets a second that were broken or thrown away. Anything but 0 for long deserves a look.", "pps"),
    ]
    detail = [
        text("Kept from `--level 3` on. At level 2 a host stores sums instead, and these panels stay empty."),
        graph("Cores", [ask("node_cpu_seconds_total", host, each("cpu"), NOT_BUSY, name="${tag_host} ${tag_cpu}",
                            counter=True)],
              "How busy each core is. One busy core beside idle ones is work that does not run in parallel.",
              "percentunit", width=24, height=9, max=1, fill=0),
        graph("Disks", [ask("node_disk_read_bytes_total", host, each("device"), name="${tag_host} ${tag_device} read",
                            counter=True),
                        ask("node_disk_written_bytes_total", host, each("device"),
                            name="${tag_host} ${tag_device} write", counter=True)],
              "Bytes a second of each disk: reads above zero, writes below.", "Bps", min=None,
              overrides=[below(" write$")]),
        graph("Each disk busy", [ask("node_disk_io_time_seconds_total", host, each("device"),
                                     name="${tag_host} ${tag_device}", counter=True)],
              "Share of time in which each disk had work.", "percentunit", max=1, fill=0),
        graph("Interfaces", [ask("node_network_receive_bytes_total", host, each("device"),
                                 name="${tag_host} ${tag_device} received", counter=True),
                             ask("node_network_transmit_bytes_total", host, each("device"),
                                 name="${tag_host} ${tag_device} sent", counter=True)],
              "Bytes a second of each interface: received above zero, sent below.", "Bps", min=None,
              overrides=[below(" sent$")]),
    ]
    job = [
        graph("CPU by command of the job", [ask("job_process_cpu_seconds_total", all_hosts, each("comm"),
                                                name="${tag_comm}", counter=True)],
              "Cores that the job's processes of each command keep busy, short ones included: what nobody saw of a "
              "process stands under its name, else under that of its parent.",
              "none", stack="normal", fill=60, axis="cores"),
        graph("CPU by rank", [ask("job_process_cpu_seconds_total", all_hosts, each("rank"), name="rank ${tag_rank}",
                                  counter=True)],
              "Cores that each rank keeps busy. A rank below the others waits for them, or slows them.",
              "none", fill=0, axis="cores"),
        graph("Memory by command of the job", [ask("job_process_resident_memory_bytes", all_hosts, each("comm"),
                                                   name="${tag_comm}")],
              "Memory of the job's processes of each command that is in RAM. What several of them share counts for each.",
              "bytes", stack="normal", fill=60),
    ]
    processes = [
        text("Kept at `--level 4`, every 5 seconds: the processes of the user that telem runs as, summed by command."),
        graph("CPU by command", [ask("process_cpu_seconds_total", all_hosts, each("comm"), name="${tag_comm}",
                                     counter=True)],
              "Cores that the processes of each command keep busy.", "none", stack="normal", fill=60, axis="cores",
              interval="5s"),
        graph("Memory by command", [ask("process_resident_memory_bytes", all_hosts, each("comm"), name="${tag_comm}")],
              "Memory of the processes of each command that is in RAM. What several of them share counts for each.",
              "bytes", stack="normal", fill=60),
        graph("Disk by command", [ask("process_read_bytes_total", all_hosts, each("comm"), name="${tag_comm} read",
                                      counter=True),
                                  ask("process_written_bytes_total", all_hosts, each("comm"),
                                      name="${tag_comm} write", counter=True)],
              "Bytes a second that the processes of each command had read from disks, and below zero had written.",
              "Bps", min=None, fill=0, overrides=[below(" write$")], interval="5s"),
    ]
    return dashboard(
        "telem-node", "telem: nodes",
        "CPU, memory, disks, network and GPUs of the nodes of a job, live or replayed. "
        "From level 2 on; cores, disks, interfaces and the processes of the job from level 3 on, other processes at level 4.",
        [variable("host", "Host", "tag_values(load_average,host)",
                  "The nodes to show; those that write later join by themselves.", several=True),
         finest()],
        [("", False, glance), ("CPU", False, cpu), ("Memory", False, memory), ("Disks", False, disk),
         ("Network", False, network), ("Power", True, power), ("Temperatures and errors", True, health),
         ("NUMA (level 3)", True, numa), ("Job and its limits", True, cgroup),
         ("Lustre and NFS", True, files), ("Fabric", True, fabric), ("GPUs", True, gpus), ("GPUs in detail (level 3)", True, gpus_in_detail),
         ("GPUs as Dragon has them (level 3)", True, dragon), ("Each core, disk and interface (level 3)", True, detail),
         ("Processes of the job (level 3)", True, job), ("Processes of the user (level 4)", True, processes)])


# What telem's own collectors write; everything else is a custom metric.
COLLECTED = ("load_average$|used_RAM$|cpu_percent$|num_running_processes$|db_size$|node_|telem_"
             "|Device(MemoryUtilization|PowerUsage|Utilization)$|cgroup_|cray_pm_|cxi_|lustre_client_"
             "|gpu_(clock_hertz|ecc_errors_total|energy_joules_total|link_(received|transmitted)_bytes_total"
             "|memory_(activity_percent|bandwidth_percent|size_bytes|temperature_celsius|used_bytes)"
             "|pcie_replays_total|power_(limit_)?watts|process_memory_bytes|sm_(active|occupancy)_percent"
             "|temperature_celsius|tensor_active_percent|throttled_seconds_total|up|utilization_percent"
             "|xid_errors_total)$"
             "|job_process(es(_together)?|_(cpu_seconds_total|resident_memory_bytes|threads))$"
             "|process_(cpu_seconds_total|(resident|virtual)_memory_bytes|threads|open_fds|major_page_faults_total"
             "|(read|written)_bytes_total|io_(read|written)_chars_total)$"
             "|mpi_(calls|bytes|seconds)_total$")
# Between them: the lines `min` and `max` of a panel.
BAND = [
    colored("^max$", BLUE, custom__fillBelowTo="min", custom__fillOpacity=15, custom__lineWidth=0,
            custom__showPoints="never"),
    colored("^min$", BLUE, custom__fillOpacity=0, custom__lineWidth=0, custom__showPoints="never"),
    colored("^mean$", BLUE, custom__fillOpacity=0, custom__lineWidth=2),
]


def band(title, metric, help, **more):
    lines = [ask(metric, by="max", within="max", name="max"), ask(metric, by="avg", name="mean"),
             ask(metric, by="min", within="min", name="min")]
    # Metrics that are logged now and then are points, not lines.
    return graph(title, lines, help, "short", min=None, overrides=BAND, points="auto", legend="hidden", **more)


# Lines of a tag that is a variable have no alias: Grafana calls them `loss{rank=0}`, of which `rank=0` is enough.
BY_TAG = [{"id": "renameByRegex", "options": {"regex": "/^.*\\{(.*)\\}$/", "renamePattern": "$1"}}]


def custom():
    chosen = [only("$tag", "^${value:regex}$", group=True)]
    lines = [ask("$metric", *chosen, by="$aggregator")]
    explore = [
        graph("$metric by $tag", lines,
              "One line for each value of the chosen tag. Where several series have the same value of it, they are "
              "combined by the chosen aggregator.", "short", width=12, height=10, min=None, legend="table", fill=0,
              points="auto", transformations=BY_TAG),
        graph("$metric by $tag, logarithmic", lines,
              "The same lines on a logarithmic scale: a loss that still falls is seen to fall. "
              "Zero and less are not drawn.", "short", width=12, height=10, min=None, fill=0, points="auto",
              scale="log", transformations=BY_TAG),
        bars("Now, by $tag", lines, "The last value of each line, beside each other.", "short", width=6,
             noValue="nothing in this time range", transformations=BY_TAG),
        band("$metric, mean and range", "$metric",
             "All series of the metric, whatever their tags: their mean and the band between the lowest and the "
             "highest. A wide band is ranks or nodes that differ.", width=6),
        graph("$metric, change each second", [dict(lines[0], shouldComputeRate=True, isCounter=False)],
              "By how much the value grows each second, for what counts up: iterations, samples, tokens.", "short",
              width=6, min=None, fill=0, interval="1s", transformations=BY_TAG),
        graph("$metric, series that report", [ask("$metric", by="count", name="series")],
              "How many series of the metric have a value. A step down is a process that ended or hangs.", "none",
              width=6),
    ]
    overview = [
        band("$every", "$every",
             "All series of the metric: their mean and the band between the lowest and the highest.", height=7,
             repeat="every", repeatDirection="h", maxPerRow=3),
    ]
    own = f"/^(?!{COLLECTED})/"
    return dashboard(
        "telem-custom", "telem: custom metrics",
        "What programs of the job log themselves: one metric in detail, and below it all of them.",
        [variable("metric", "Metric", "metrics()", "The metric to look at. What telem collects itself is left out.",
                  regex=own),
         # From z to a: `rank` and `pid` come before `host`, and say more as a first choice.
         variable("tag", "A line for each", "tag_names($metric)", "The tag whose values become lines.", sort=2),
         variable("value", "Values", "tag_values($metric,$tag)", "Values of that tag to show.", several=True),
         choice("aggregator", "Combined by", ["avg", "sum", "min", "max", "count", "median", "p95", "dev"],
                "What makes one line of several series with the same value of the tag."),
         variable("every", "Panels below", "metrics()", "Metrics that get a panel each in the lower part.",
                  several=True, every=None, regex=own)],
        [("", False, explore), ("All custom metrics", False, overview)])


def itself():
    host = per_host()
    all_hosts = per_host(group=False)
    in_blue = {"mode": "fixed", "fixedColor": BLUE}
    none_is_good = steps((1, RED))
    glance = [
        number("CPU", [ask("telem_server_cpu_seconds_total", all_hosts, counter=True)],
               "Cores that telem itself keeps busy, all chosen hosts together.", "percentunit", color=in_blue,
               min=0),
        number("Memory", [ask("telem_server_resident_memory_bytes", all_hosts, by="max")],
               "Memory of telem that is in RAM, on the host where it is largest.", "bytes", color=in_blue),
        number("Samples a second", [ask("telem_ingest_samples_written_total", all_hosts, counter=True)],
               "Samples that are written, those of the collectors included.", "cps", color=in_blue),
        number("Samples", [ask("telem_engine_samples", all_hosts)], "Samples in the databases.", "short",
               color=in_blue),
        number("Series", [ask("telem_engine_series", all_hosts)], "Series in the databases.", "short",
               color=in_blue),
        number("On disk", [ask("telem_engine_disk_bytes", all_hosts)], "Size of the databases.", "bytes",
               color=in_blue),
        number("Samples rejected", [grown("telem_ingest_samples_rejected_total", all_hosts)],
               "Samples in this time range that did not pass their checks. Whoever sent them was told why.",
               "none", thresholds=none_is_good, sparkline=False, decimals=0),
        number("Ticks skipped", [grown("telem_ingest_ticks_skipped_total", all_hosts)],
               "Ticks in this time range that the collectors came too late for: gaps in the lines of a host.",
               "none", thresholds=none_is_good, sparkline=False, decimals=0),
    ]
    ingest = [
        graph("Samples written", [ask("telem_ingest_samples_written_total", host, name="${tag_host}", counter=True)],
              "Samples a second that are written, those of the collectors included.", "cps"),
        graph("Samples from clients",
              [ask("telem_ingest_samples_accepted_total", host, name="${tag_host} accepted", counter=True),
               ask("telem_ingest_samples_rejected_total", host, name="${tag_host} rejected", counter=True)],
              "Samples a second that programs sent, and those of them that did not pass their checks.", "cps"),
        graph("Samples that wait", [ask("telem_ingest_queue_samples", host, within="max", name="${tag_host}")],
              "Samples in the queue before the writer, the most in each interval. "
              "A queue that stays full makes clients wait.", "short"),
        graph("Batches refused", [ask("telem_ingest_batches_refused_total", host, name="${tag_host}", counter=True)],
              "Batches a second that met a full queue or an error of the database.", "cps"),
        graph("Tick of the collectors", [ask("telem_ingest_tick_seconds", host, within="max", name="${tag_host}")],
              "How long the collectors take to sample a host once, the longest in each interval.", "s"),
        graph("Syncs and flushes", [ask("telem_ingest_syncs_total", host, name="${tag_host} syncs", counter=True),
                                    ask("telem_ingest_flushes_total", host, name="${tag_host} flushes", counter=True),
                                    ask("telem_ingest_syncs_failed_total", host, name="${tag_host} failed syncs",
                                        counter=True),
                                    ask("telem_ingest_flushes_failed_total", host, name="${tag_host} failed flushes",
                                        counter=True)],
              "A sync makes what was written durable, a flush turns it into a segment. A full disk makes both fail.",
              "ops", overrides=[colored("failed", RED)]),
    ]
    engine = [
        graph("Database on disk", [ask("telem_engine_disk_bytes", host, name="${tag_host} all files"),
                                   ask("telem_engine_wal_bytes", host, name="${tag_host} write-ahead log")],
              "Size of the database of a host, and the part of it that is not in segments yet.", "bytes"),
        graph("Samples stored", [ask("telem_engine_samples", host, name="${tag_host} all"),
                                 ask("telem_engine_samples_unflushed", host, name="${tag_host} in memory")],
              "Samples in the database of a host, and those of them that are not in a segment yet.", "short"),
        graph("Series and metrics", [ask("telem_engine_series", host, name="${tag_host} series"),
                                     ask("telem_engine_metrics", host, name="${tag_host} metrics")],
              "Series that keep growing are tags with ever new values, such as a step or a time.", "short"),
    ]
    rest = [
        graph("CPU of telem", [ask("telem_server_cpu_seconds_total", host, name="${tag_host}", counter=True)],
              "Share of one core.", "percentunit"),
        graph("Memory of telem", [ask("telem_server_resident_memory_bytes", host, name="${tag_host}")],
              "Memory of telem that is in RAM.", "bytes"),
        graph("Queries", [ask("telem_query_queries_total", host, name="${tag_host} let in", counter=True),
                          ask("telem_query_queries_refused_total", host, name="${tag_host} refused", counter=True)],
              "Queries a second, this dashboard's own too. One is refused when too many run.", "reqps",
              overrides=[colored("refused$", RED)]),
        graph("Queries running", [ask("telem_query_queries_running", host, within="max", name="${tag_host}")],
              "The most in each interval.", "none"),
        graph("Threads", [ask("telem_server_threads", host, name="${tag_host}")], "Threads of telem.", "none"),
        graph("Open files", [ask("telem_server_open_fds", host, name="${tag_host}")],
              "Files, connections and pipes that telem has open.", "none"),
    ]
    return dashboard(
        "telem-self", "telem: itself",
        "What telem does and what it costs. Its own metrics are kept at level 4.",
        [variable("host", "Host", "tag_values(telem_engine_series,host)", "The nodes to show.", several=True),
         finest()],
        [("", False, [text("telem measures itself at `--level 4`; below that this dashboard is empty."), *glance]),
         ("Taking samples in", False, ingest), ("The database", False, engine), ("Cost and queries", False, rest)])


def mpi():
    host = per_host(group=False)
    by_rank, by_function = each("rank"), each("function")

    def per(metric, tag, name):
        return [ask(metric, host, tag, name=name, counter=True)]

    ranks = [
        graph("Time in MPI, by rank", per("mpi_seconds_total", by_rank, "rank $tag_rank"),
              "Share of each rank's time that it spent in calls of MPI. The rank with the lowest line is the one that "
              "the others wait for.", "percentunit", width=12, fill=0, legend="table"),
        graph("Bytes, by rank", per("mpi_bytes_total", by_rank, "rank $tag_rank"),
              "What each rank's calls were given or got: sent and received, in collectives and in files.", "Bps",
              width=12, fill=0, legend="table"),
    ]
    functions = [
        graph("Time, by function", per("mpi_seconds_total", by_function, "$tag_function"),
              "Seconds a second that all ranks together spent in each function.", "s", width=12, height=10, fill=0,
              legend="table"),
        graph("Calls, by function", per("mpi_calls_total", by_function, "$tag_function"),
              "Calls a second of all ranks.", "ops", width=12, height=10, fill=0, legend="table"),
        graph("Bytes, by function", per("mpi_bytes_total", by_function, "$tag_function"),
              "Bytes a second of all ranks.", "Bps", width=12, height=10, fill=0, legend="table"),
        bars("Time of all ranks in the time range", [grown("mpi_seconds_total", host, by_function) |
                                                     {"alias": "$tag_function"}],
             "Where the time in MPI went.", "s", width=12, height=10, noValue="no calls in this time range"),
    ]
    return dashboard(
        "telem-mpi", "telem: MPI",
        "Calls of MPI of a job that was started with telem run --mpi-profile.",
        [variable("host", "Host", "tag_values(mpi_calls_total,host)", "The nodes to show.", several=True), finest()],
        [("", False, ranks), ("Functions", False, functions)])


def ai_in_the_loop():
    """Of examples/ai_in_the_loop: the simulation, what the workers predict of it, and what the controller did."""
    each_host, each_worker = each("host"), each("worker")
    loop = [
        graph("sin(x), actual and predicted",
              [ask("taylor_sin_actual", name="actual", by="avg"),
               ask("taylor_sin_predicted", each_worker, name="predicted by worker $tag_worker", by="avg")],
              "What the simulation computes at the point that wanders through its range, and what each worker expects "
              "there.", "short", width=24, height=9, min=None, fill=0, points="auto"),
        graph("Difference, by worker",
              [ask("taylor_sin_difference", each_worker, name="worker $tag_worker", by="avg")],
              "Predicted less actual. It leaves zero where the simulation comes to a range without data.", "short",
              width=12, min=None, fill=0, points="auto"),
        graph("Loss, by worker",
              [ask("loss", each_worker, name="worker $tag_worker", by="avg"),
               ask("loss_threshold", name="threshold", by="max", within="max")],
              "Mean squared error at the points of the simulation. Above the threshold the controller has data made.",
              "short", width=12, fill=0, points="auto", scale="log"),
    ]
    around = [
        graph("Data files", [ask("reactions", name="made", by="max", within="max"),
                             ask("data_files", each_worker, name="known to worker $tag_worker", by="max", within="max")],
              "Each step up is a reaction of the controller, and when the workers noticed.", "short", width=8, fill=0,
              points="auto"),
        graph("CPU", [ask("cpu_percent", each_host, name="$tag_host", by="avg")], "Of each node.", "percent", width=8,
              max=100),
        graph("x of the simulation", [ask("taylor_x", name="x", by="avg"),
                                      ask("data_low", name="newest data from", by="avg"),
                                      ask("data_high", name="to", by="avg")],
              "Where it is, and for which range data were made last.", "short", width=8, min=None, fill=0,
              points="auto"),
    ]
    return dashboard(
        "telem-ai-in-the-loop", "telem: AI in the loop", "What examples/ai_in_the_loop logs.", [],
        [("", False, loop), ("Controller and nodes", False, around)])


def scale_work():
    """Of examples/scale_work.py: what a dashboard for the metrics of one program looks like."""
    each_host, each_worker = each("host"), [each("puid")]
    whole = [
        number("Start of the pool", [ask("pool_start_time", by="max", within="max")],
               "How long it took until all workers were there.", "s", width=4, sparkline=False),
        number("Mean iteration", [ask("iteration_time", by="avg")], "Of the time range, warming up included.", "s",
               width=4, calc="mean", sparkline=False),
        number("Images so far", [ask("images", by="sum", within="max")], "Of all workers.", "short", width=4,
               calc="max", sparkline=False),
        graph("Iteration", [ask("iteration_time", each_host, name="$tag_host", by="max")],
              "Seconds that each iteration took.", "s", width=12, height=8, points="always", fill=0),
    ]
    by_worker = [
        graph("Time of an image, by worker", [ask("image_time", *each_worker, name="worker $tag_puid", by="avg")],
              "Mean seconds for an image, a line for each worker: one that is slower than the rest is seen at once.",
              "s", width=12, points="auto", fill=0, legend="table"),
        graph("Images, by worker",
              [ask("images", *each_worker, name="worker $tag_puid", by="sum", within="max")],
              "Images that each worker has filtered. Lines that part are workers with unequal shares.", "short",
              width=12, fill=0, legend="table"),
        graph("Elapsed time, by worker",
              [ask("elapsed_time", *each_worker, name="worker $tag_puid", by="max", within="max")],
              "Seconds since the worker began, at its last image. A line that ends is a worker that has none.", "s",
              width=12, points="auto", fill=0),
        bars("Images of each worker", [ask("images", *each_worker, name="worker $tag_puid", by="sum", within="max")],
             "At the end of the time range.", "short", width=12, noValue="no worker in this time range"),
    ]
    around = [
        graph("CPU", [ask("cpu_percent", each_host, name="$tag_host", by="avg")], "Of each node.", "percent", max=100),
        graph("Memory", [ask("used_RAM", each_host, name="$tag_host", by="avg")], "Of each node.", "percent", max=100),
        graph("Load", [ask("load_average", each_host, name="$tag_host", by="avg")], "Of each node.", "short"),
    ]
    return dashboard(
        "telem-scale-work", "telem: scale_work.py", "What examples/scale_work.py logs, and the nodes below it.", [],
        [("", False, whole), ("Workers", False, by_worker), ("Nodes (level 2)", False, around)])


def main():
    wrong = []
    boards = [(HERE / "dashboards" / f"{built['uid']}.json", built) for built in [node(), custom(), mpi(), itself()]]
    boards.append((HERE.parent / "examples" / "scale_work.json", scale_work()))
    boards.append((HERE.parent / "examples" / "ai_in_the_loop" / "dashboard.json", ai_in_the_loop()))
    for path, built in boards:
        content = json.dumps(built, indent=2, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(content, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != content:
            wrong.append(path.name)
    if wrong:
        sys.exit(f"not what grafana/write.py writes: {', '.join(wrong)}; run python3 grafana/write.py")


if __name__ == "__main__":
    main()
