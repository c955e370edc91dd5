/*
 * wire.c: the messages of Metric Proxy: one JSON value and a zero byte each, without blanks, keys in this order.
 *
 * Numbers have the shortest digits that read as the same double, always with a fraction or an exponent, as programs in
 * Rust print them: 3.0, 0.1, 1e16.
 */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool proxy__has_room(struct proxy__buffer *buffer, size_t more)
{
    if (buffer->room - buffer->bytes >= more) return true;
    size_t wanted = buffer->room ? buffer->room * 2 : 4096;
    while (wanted < buffer->bytes + more) wanted *= 2;
    char *grown = realloc(buffer->at, wanted);
    if (!grown) return false;
    buffer->at = grown;
    buffer->room = wanted;
    return true;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* `count` digits, of which `point` stand before the point. */
static size_t lay_out(char *to, const char *digits, int count, int point)
{
    char *at = to;
    if (count <= point && point <= 16) {
        memcpy(at, digits, (size_t)count);
        memset(at + count, '0', (size_t)(point - count));
        at += point;
        *at++ = '.';
        *at++ = '0';
    } else if (0 < point && point <= 16) {
        memcpy(at, digits, (size_t)point);
        at += point;
        *at++ = '.';
        memcpy(at, digits + point, (size_t)(count - point));
        at += count - point;
    } else if (-5 < point && point <= 0) {
        *at++ = '0';
        *at++ = '.';
        memset(at, '0', (size_t)-point);
        at += -point;
        memcpy(at, digits, (size_t)count);
        at += count;
    } else {
        *at++ = digits[0];
        if (count > 1) {
            *at++ = '.';
            memcpy(at, digits + 1, (size_t)count - 1);
            at += count - 1;
        }
        at += sprintf(at, "e%d", point - 1);
    }
    return (size_t)(at - to);
}

static int digits_of(char *digits, uint64_t number)
{
    char backwards[20];
    int count = 0;
    for (; number; number /= 10) backwards[count++] = (char)('0' + number % 10);
    for (int i = 0; i < count; i++) digits[i] = backwards[count - 1 - i];
    return count;
}

/* With few decimals, as most are: digits that a division by a power of ten gives back exactly. */
static int few_decimals(char *digits, double value, int *point)
{
    static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
    for (int decimals = 0; decimals < 7; decimals++) {
        double scaled = value * powers[decimals];
        if (scaled >= 1e15) return 0;
        uint64_t whole = (uint64_t)(scaled + 0.5);
        if (whole == 0 || (double)whole / powers[decimals] != value) continue;
        int count = digits_of(digits, whole);
        *point = count - decimals;
        while (count > 1 && digits[count - 1] == '0') count--;
        return count;
    }
    return 0;
}

static int any_decimals(char *digits, double value, int *point)
{
    char text[40];
    /* From 15 digits on, which every double has but the smallest ones; with 17 each reads the same. */
    int precision = value < 2.3e-308 ? 0 : 14;
    do snprintf(text, sizeof text, "%.*e", precision, value);
    while (strtod(text, NULL) != value && ++precision < 17);
    int count = 0;
    char *at = text;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9') digits[count++] = *at;
    *point = (int)strtol(at + 1, NULL, 10) + 1;
    while (count > 1 && digits[count - 1] == '0') count--;
    return count;
}

size_t proxy__write_number(char *to, double value)
{
    char digits[24];
    int point = 0;
    if (value < 0 || (value == 0 && signbit(value))) {
        *to = '-';
        return 1 + proxy__write_number(to + 1, -value);
    }
    if (value == 0) {
        memcpy(to, "0.0", 3);
        return 3;
    }
    int count = value < 1e15 ? few_decimals(digits, value, &point) : 0;
    if (!count) count = any_decimals(digits, value, &point);
    return lay_out(to, digits, count, point);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

char *proxy__write_text(char *to, const char *from, size_t bytes)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        unsigned char one = (unsigned char)from[i];
        if (one >= 0x20 && one != '"' && one != '\\') {
            *to++ = (char)one;
            continue;
        }
        *to++ = '\\';
        switch (one) {
        case '"': *to++ = '"'; break;
        case '\\': *to++ = '\\'; break;
        case '\b': *to++ = 'b'; break;
        case '\f': *to++ = 'f'; break;
        case '\n': *to++ = 'n'; break;
        case '\r': *to++ = 'r'; break;
        case '\t': *to++ = 't'; break;
        default:
            memcpy(to, "u00", 3);
            to[3] = hex[one >> 4];
            to[4] = hex[one & 15];
            to += 5;
        }
    }
    return to;
}

bool proxy__is_utf8(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    while (at < end) {
        unsigned char first = *at++;
        if (first < 0x80) continue;
        int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || end - at < more) return false;
        /* Neither longer than needed, nor half of a pair, nor beyond the last character. */
        if ((first == 0xe0 && *at < 0xa0) || (first == 0xed && *at > 0x9f)) return false;
        if ((first == 0xf0 && *at < 0x90) || (first == 0xf4 && *at > 0x8f)) return false;
        for (; more; more--)
            if ((*at++ & 0xc0) != 0x80) return false;
    }
    return true;
}

size_t proxy__cut(const char *text, size_t bytes, size_t most)
{
    if (bytes <= most) return bytes;
    while (most && ((unsigned char)text[most] & 0xc0) == 0x80) most--;
    return most;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void put(struct proxy__buffer *to, const char *text, size_t bytes)
{
    memcpy(to->at + to->bytes, text, bytes);
    to->bytes += bytes;
}

#define PUT(TO, LITERAL) put(TO, LITERAL, sizeof(LITERAL) - 1)

void proxy__write_desc(struct proxy__buffer *to, const struct MetricProxyValue *value)
{
    PUT(to, "{\"Desc\":{\"name\":\"");
    put(to, value->text, value->name_bytes);
    PUT(to, "\",\"doc\":\"");
    put(to, value->text + value->name_bytes, value->doc_bytes);
    if (value->kind == PROXY__COUNTER)
        PUT(to, "\",\"ctype\":{\"Counter\":{\"ts\":0,\"value\":0.0}}}}");
    else
        PUT(to, "\",\"ctype\":{\"Gauge\":{\"min\":0.0,\"max\":0.0,\"hits\":0.0,\"total\":0.0}}}}");
    put(to, "", 1);
}

void proxy__write_value(struct proxy__buffer *to, const struct MetricProxyValue *value, double amount, uint64_t ts_us)
{
    char number[PROXY__NUMBER_ROOM];
    size_t bytes = proxy__write_number(number, amount);
    PUT(to, "{\"Value\":{\"name\":\"");
    put(to, value->text, value->name_bytes);
    if (value->kind == PROXY__COUNTER) {
        char ts[24];
        PUT(to, "\",\"value\":{\"Counter\":{\"ts\":");
        put(to, ts, (size_t)digits_of(ts, ts_us));
        PUT(to, ",\"value\":");
        put(to, number, bytes);
    } else {
        PUT(to, "\",\"value\":{\"Gauge\":{\"min\":");
        put(to, number, bytes);
        PUT(to, ",\"max\":");
        put(to, number, bytes);
        PUT(to, ",\"hits\":1.0,\"total\":");
        put(to, number, bytes);
    }
    PUT(to, "}}}}");
    put(to, "", 1);
}
