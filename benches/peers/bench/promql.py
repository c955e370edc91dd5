"""What VictoriaMetrics and Prometheus have in common: PromQL over HTTP and its JSON.

A window of PromQL looks back from its end. Evaluated at the last second of each minute, a window of 59.5 s holds the
samples of that minute in both, whether or not they count a sample that lies just on its beginning. There is no percentile
over several series: q6 is the greatest of the percentiles of each series.
"""

import json
import urllib.parse


def request(question):
    metric, last = question.metric, question.last_s

    def at_once(text):
        return "/api/v1/query?" + urllib.parse.urlencode({"query": text, "time": last})

    def over_time(text, step):
        first = question.start_ms // 1_000 + step - 1
        asked = {"query": text, "start": first, "end": last, "step": step}
        return "/api/v1/query_range?" + urllib.parse.urlencode(asked)

    def average(metric):
        return f"avg(avg_over_time({metric}[59500ms]))"

    five = (f'label_replace({average(metric)}, "metric", "{metric}", "", "")' for metric in question.metrics)
    path = {
        "q1": lambda: at_once(f'{metric}{{host="{question.host}"}}[{question.seconds}s]'),
        "q2": lambda: over_time(average(metric), 60),
        "q3": lambda: over_time(f"max by (host) (max_over_time({metric}[299500ms]))", 300),
        "q4": lambda: over_time(" or ".join(five), 60),
        "q5": lambda: at_once('{__name__!=""}'),
        "q6": lambda: at_once(f"max(quantile_over_time(0.99, {metric}[{question.seconds}s]))"),
        "q7": lambda: over_time(f"{metric} > 90", 1),
        "q8": lambda: over_time(f"avg by (host) (avg_over_time({metric}[59500ms]))", 60),
    }[question.name]()
    return "GET", path, None, {}


def answer(question, body):
    result = json.loads(body)["data"]["result"]

    def points(of, step):
        """By the beginning of each window."""
        return ((round(at * 1_000) - (step - 1) * 1_000, float(value)) for at, value in of["values"])

    match question.name:
        case "q1":
            return dict(points(result[0], 1))
        case "q2":
            return dict(points(result[0], 60))
        case "q3":
            return {(one["metric"]["host"], at): value for one in result for at, value in points(one, 300)}
        case "q4":
            return {(one["metric"]["metric"], at): value for one in result for at, value in points(one, 60)}
        case "q5":
            found = {}
            for one in result:
                tags = {key: value for key, value in one["metric"].items() if key not in ("__name__", "db")}
                found[(one["metric"]["__name__"], *sorted(tags.items()))] = float(one["value"][1])
            return found
        case "q6":
            return {"p99": float(result[0]["value"][1])}
        case "q7":
            return {(one["metric"]["host"], at): value for one in result for at, value in points(one, 1)}
        case "q8":
            return {(one["metric"]["host"], at): value for one in result for at, value in points(one, 60)}
