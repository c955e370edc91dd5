/*
 * mpi.h: what clients/mpi counts, for a Metric Proxy: the sink of telem_mpi.c that TELEM_MPI_SINK names.
 *
 * Counters of a function are declared when it is called first, and not of all functions at once.
 */
#include <ctype.h>

#include "../include/metric_proxy_client.h"

static uint64_t sink_interval_ns = 1000000000u;
#define SINK_INTERVAL_NS sink_interval_ns

static struct MetricProxyClient *sink_client;
static struct {
    struct MetricProxyValue *hits, *time, *size, *in, *out;
} series[FUNCTIONS];
static struct {
    struct MetricProxyValue *hits, *time, *size, *in, *out;
} sink_totals;

static int sink_begin(void)
{
    const char *period = getenv("PROXY_PERIOD");
    unsigned long ms = period ? strtoul(period, NULL, 10) : 0;
    if (ms > 0 && ms <= 3600000)
        sink_interval_ns = ms * 1000000u;
    sink_client = metric_proxy_init();
    return 1;
}

static void sink_note(const char *title, const char *text)
{
    fprintf(stderr, "metricproxy-exporter-mpi: %s: %s\n", title, text);
    metric_proxy_release(sink_client);
}

static void sink_meet(int rank)
{
    static const char doc[] = "Aggregated MPI metrics";
    (void)rank;
    sink_totals.time = metric_proxy_counter_new(sink_client, "total___mpi___time___total", doc);
    sink_totals.hits = metric_proxy_counter_new(sink_client, "total___mpi___hits___total", doc);
    /* As this one is spelled. */
    sink_totals.size = metric_proxy_counter_new(sink_client, "total___mpi___size_total", doc);
    sink_totals.in = metric_proxy_counter_new(sink_client, "total___mpi___size___total_in", doc);
    sink_totals.out = metric_proxy_counter_new(sink_client, "total___mpi___size___total_out", doc);
}

static struct MetricProxyValue *open_series(const char *what, enum function function, const char *doc)
{
    char name[128], text[160];
    int bytes = snprintf(name, sizeof name, "mpi___%s___%s", what, names[function]);
    for (int i = 0; i < bytes && i < (int)sizeof name; i++)
        name[i] = (char)tolower((unsigned char)name[i]);
    snprintf(text, sizeof text, "%s for %s", doc, names[function]);
    return metric_proxy_counter_new(sink_client, name, text);
}

static void sink_add(enum function function, const struct tally *more, double seconds)
{
    if (!series[function].hits) {
        series[function].hits = open_series("hits", function, "Number of function calls");
        series[function].time = open_series("time", function, "Total seconds spent");
    }
    metric_proxy_counter_inc(series[function].hits, (double)more->calls);
    metric_proxy_counter_inc(sink_totals.hits, (double)more->calls);
    metric_proxy_counter_inc(series[function].time, seconds);
    metric_proxy_counter_inc(sink_totals.time, seconds);
    if (!more->in && !more->out)
        return;
    if (!series[function].size) {
        series[function].size = open_series("size", function, "Total size (IN + OUT)");
        series[function].in = open_series("size_in", function, "Total size (IN)");
        series[function].out = open_series("size_out", function, "Total size (OUT)");
    }
    metric_proxy_counter_inc(series[function].size, (double)(more->in + more->out));
    metric_proxy_counter_inc(series[function].in, (double)more->in);
    metric_proxy_counter_inc(series[function].out, (double)more->out);
    metric_proxy_counter_inc(sink_totals.size, (double)(more->in + more->out));
    metric_proxy_counter_inc(sink_totals.in, (double)more->in);
    metric_proxy_counter_inc(sink_totals.out, (double)more->out);
}

static void sink_end(void)
{
    metric_proxy_release(sink_client);
}

static void sink_flush(uint32_t timeout_ms)
{
    (void)timeout_ms; /* PROXY_EXIT_MS is its deadline */
    sink_end();
}
