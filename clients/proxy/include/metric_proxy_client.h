/*
 * metric_proxy_client.h: metrics of a program, to a Metric Proxy or to telem, which speaks its protocol.
 *
 * A program declares values once and changes them wherever it likes. A thread of the library sends what has changed
 * every PROXY_PERIOD milliseconds (1000) to the server's Unix socket: PROXY_PATH, or /tmp/metric-proxy-UID.socket.
 * Without a server nothing fails and nothing waits; a server that comes later, or comes back, is told everything anew.
 *
 *     struct MetricProxyClient *client = metric_proxy_init();
 *     struct MetricProxyValue *steps = metric_proxy_counter_new(client, "steps_total{phase=\"solve\"}", "Steps done");
 *     metric_proxy_counter_inc(steps, 1);
 *     metric_proxy_release(client);
 *
 * All functions may be called by any thread. Those that change a value are free of locks.
 */
#ifndef METRIC_PROXY_CLIENT_H
#define METRIC_PROXY_CLIENT_H

#include <stddef.h>

#if defined(__GNUC__)
#define METRIC_PROXY_API __attribute__((visibility("default")))
#else
#define METRIC_PROXY_API
#endif

/* Called often: straight to its address, where the compiler can do that, and not by way of a table of jumps. */
#ifdef __has_attribute
#if __has_attribute(noplt)
#define METRIC_PROXY_OFTEN METRIC_PROXY_API __attribute__((noplt))
#endif
#endif
#ifndef METRIC_PROXY_OFTEN
#define METRIC_PROXY_OFTEN METRIC_PROXY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The connection of this process. */
typedef struct MetricProxyClient MetricProxyClient;

/* A counter or a gauge. It lives as long as the process. */
typedef struct MetricProxyValue MetricProxyValue;

/* Begins, or gives what has begun already; never NULL. Counts itself in `has_started`. */
METRIC_PROXY_API struct MetricProxyClient *metric_proxy_init(void);

/*
 * Counts itself in `has_finished` and sends everything; the call that matches the first metric_proxy_init also ends the
 * connection. 0, or 1 where not everything could be sent within PROXY_EXIT_MS milliseconds (2000).
 */
METRIC_PROXY_API int metric_proxy_release(struct MetricProxyClient *client);

/*
 * Declare a counter, which grows from 0, or a gauge. `name` may have labels: base{key="value"}. The same name gives the
 * same value, of its first kind. NULL where a text is NULL or not UTF-8, the name is empty or longer than 1600 bytes,
 * or there are too many values. `doc` is cut after 4096 bytes.
 */
METRIC_PROXY_API struct MetricProxyValue *metric_proxy_counter_new(struct MetricProxyClient *client,
                                                                   const char *name, const char *doc);
METRIC_PROXY_API struct MetricProxyValue *metric_proxy_gauge_new(struct MetricProxyClient *client, const char *name,
                                                                 const char *doc);

/*
 * Adds to a counter, or sets a gauge. 0; 1 for NULL, for a value of the other kind, and for a number that is not
 * finite, which changes nothing.
 */
METRIC_PROXY_OFTEN int metric_proxy_counter_inc(struct MetricProxyValue *counter, double value);
METRIC_PROXY_OFTEN int metric_proxy_gauge_set(struct MetricProxyValue *gauge, double value);

/* The counter of calls of the function at that address, func__SYMBOL_FILE. The place of the call does not matter. */
METRIC_PROXY_API struct MetricProxyValue *metric_proxy_get_func(struct MetricProxyClient *client, size_t function,
                                                                size_t callsite);

#ifdef __cplusplus
}
#endif

#endif
