/*
 * telem.hpp: telem.h for C++17: metrics as values, spans that end with their scope.
 *
 *     telem::Gauge loss{"loss", {{"model", "resnet"}}};
 *     loss.set(0.25, telem::step(7));
 *
 *     static const telem::Timer solve{"solve_seconds"};
 *     auto span = solve.span();
 *
 * What holds for telem.h holds here. A metric is a handle of the size of a pointer: copy it freely; opening the same
 * metric again gives the same one. Nothing that logs throws: a metric that could not be opened is false, does nothing,
 * and telem::error() says why. Only the questions throw, as their answer is what is asked for.
 */
#ifndef TELEM_HPP
#define TELEM_HPP

#include "telem.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace telem {

/// A key and its value.
using Tag = std::pair<std::string_view, std::string_view>;
using Tags = std::initializer_list<Tag>;

/// What may be said of a metric.
struct About {
    std::string_view unit{};
    std::string_view help{};
    int level = 0;
};

/// A time, in microseconds since 1970.
struct At {
    std::int64_t micros;
};

inline At at(std::chrono::system_clock::time_point time) noexcept
{
    return {std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count()};
}

/// A step of the program.
struct Step {
    std::int64_t number;
};

constexpr Step step(std::int64_t number) noexcept { return {number}; }

/// Why the last call failed.
inline const char *error() noexcept { return telem_error(); }

inline bool flush(std::chrono::milliseconds timeout) noexcept
{
    return telem_flush(static_cast<std::uint32_t>(timeout.count())) == 0;
}

inline bool is_connected() noexcept { return telem_connected() == 1; }

inline telem_counts counts() noexcept
{
    telem_counts counts{};
    counts.size = sizeof counts;
    telem_stats(&counts);
    return counts;
}

namespace detail {

/// Texts with a zero behind each, for C; nothing where there is no memory.
class Texts {
public:
    Texts(std::string_view metric, Tags tags, const About &about) noexcept
    {
        try {
            texts.reserve(2 * tags.size() + 3);
            texts.emplace_back(metric);
            texts.emplace_back(about.unit);
            texts.emplace_back(about.help);
            for (const auto &tag : tags) {
                texts.emplace_back(tag.first);
                texts.emplace_back(tag.second);
            }
            for (std::size_t i = 3; i < texts.size(); i++) pointers.push_back(texts[i].c_str());
            pointers.push_back(nullptr);
            c_about.size = sizeof c_about;
            c_about.unit = texts[1].empty() ? nullptr : texts[1].c_str();
            c_about.help = texts[2].empty() ? nullptr : texts[2].c_str();
            c_about.level = about.level;
            is_whole = true;
        } catch (const std::exception &) {
            is_whole = false;
        }
    }

    explicit operator bool() const noexcept { return is_whole; }
    const char *metric() const noexcept { return texts[0].c_str(); }
    const char *const *tags() const noexcept { return pointers.data(); }
    const telem_about *about() const noexcept { return &c_about; }

private:
    std::vector<std::string> texts;
    std::vector<const char *> pointers;
    telem_about c_about{};
    bool is_whole = false;
};

} // namespace detail

/// Each value that is set is a sample.
class Gauge {
public:
    Gauge() = default;
    explicit Gauge(std::string_view metric, Tags tags = {}, const About &about = {}) noexcept
    {
        const detail::Texts texts(metric, tags, about);
        if (texts) handle = telem_gauge_open_about(texts.metric(), texts.tags(), texts.about());
    }

    template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
    void set(Number value) const noexcept
    {
        if constexpr (fits<Number>) telem_set_int(handle, static_cast<std::int64_t>(value));
        else telem_set(handle, static_cast<double>(value));
    }

    template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
    void set(Number value, At time) const noexcept
    {
        if constexpr (fits<Number>) telem_set_int_at(handle, static_cast<std::int64_t>(value), time.micros);
        else telem_set_at(handle, static_cast<double>(value), time.micros);
    }

    template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
    void set(Number value, Step step, At time = {0}) const noexcept
    {
        if constexpr (fits<Number>)
            telem_set_int_step(handle, static_cast<std::int64_t>(value), step.number, time.micros);
        else telem_set_step(handle, static_cast<double>(value), step.number, time.micros);
    }

    explicit operator bool() const noexcept { return handle != nullptr; }
    telem_gauge *get() const noexcept { return handle; }

private:
    /// Whether each of its values is one of 64 bits with a sign; others are floats.
    template <typename Number>
    static constexpr bool fits =
        std::is_integral_v<Number> && (std::is_signed_v<Number> || sizeof(Number) < sizeof(std::int64_t));

    telem_gauge *handle = nullptr;
};

/// A total of this process.
class Counter {
public:
    Counter() = default;
    explicit Counter(std::string_view metric, Tags tags = {}, const About &about = {}) noexcept
    {
        const detail::Texts texts(metric, tags, about);
        if (texts) handle = telem_counter_open_about(texts.metric(), texts.tags(), texts.about());
    }

    void add(std::uint64_t increment = 1) const noexcept { telem_add(handle, increment); }
    const Counter &operator++() const noexcept
    {
        telem_add(handle, 1);
        return *this;
    }
    const Counter &operator+=(std::uint64_t increment) const noexcept
    {
        telem_add(handle, increment);
        return *this;
    }
    std::uint64_t total() const noexcept { return telem_total(handle); }

    explicit operator bool() const noexcept { return handle != nullptr; }
    telem_counter *get() const noexcept { return handle; }

private:
    telem_counter *handle = nullptr;
};

/// Counts of observations by fixed bounds.
class Histogram {
public:
    Histogram() = default;
    Histogram(std::string_view metric, std::initializer_list<double> bounds, Tags tags = {},
              const About &about = {}) noexcept
    {
        const detail::Texts texts(metric, tags, about);
        if (texts)
            handle =
                telem_histogram_open_about(texts.metric(), texts.tags(), bounds.begin(), bounds.size(), texts.about());
    }

    void observe(double value) const noexcept { telem_observe(handle, value); }

    explicit operator bool() const noexcept { return handle != nullptr; }
    telem_histogram *get() const noexcept { return handle; }

private:
    telem_histogram *handle = nullptr;
};

/// From its making to the end of its scope, or to end().
class Span {
public:
    explicit Span(telem_timer *timer) noexcept : span(telem_begin(timer)) {}
    Span(Span &&other) noexcept : span(std::exchange(other.span, telem_span{nullptr, 0})) {}
    Span &operator=(Span &&other) noexcept
    {
        if (this != &other) {
            telem_end(&span);
            span = std::exchange(other.span, telem_span{nullptr, 0});
        }
        return *this;
    }
    Span(const Span &) = delete;
    Span &operator=(const Span &) = delete;
    ~Span() { telem_end(&span); }

    /// Its seconds; 0 if it has ended before.
    double end() noexcept { return telem_end(&span); }
    /// Nothing is logged.
    void cancel() noexcept { span.timer = nullptr; }

private:
    telem_span span;
};

/// Each span that ends is a sample, its seconds.
class Timer {
public:
    Timer() = default;
    explicit Timer(std::string_view metric, Tags tags = {}, const About &about = {"s", {}, 0}) noexcept
    {
        const detail::Texts texts(metric, tags, about);
        if (texts) handle = telem_timer_open_about(texts.metric(), texts.tags(), texts.about());
    }

    [[nodiscard]] Span span() const noexcept { return Span(handle); }
    /// Calls `work` in a span, and gives what it gives.
    template <typename Work>
    decltype(auto) measure(Work &&work) const
    {
        const Span span(handle);
        return std::forward<Work>(work)();
    }

    explicit operator bool() const noexcept { return handle != nullptr; }
    telem_timer *get() const noexcept { return handle; }

private:
    telem_timer *handle = nullptr;
};

inline bool note(std::string_view title, std::string_view more = {}) noexcept
{
    try {
        return telem_note(std::string(title).c_str(), std::string(more).c_str()) == 0;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

inline bool setting(std::string_view name, std::string_view value) noexcept
{
    try {
        return telem_setting(std::string(name).c_str(), std::string(value).c_str()) == 0;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

/// A time of an answer.
struct Time {
    std::int64_t micros;
    std::chrono::system_clock::time_point point() const
    {
        return std::chrono::system_clock::time_point(
            std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::microseconds(micros)));
    }
};

/// A value of an answer; the first is NULL.
using Value = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Time>;

struct Answer {
    std::vector<std::string> columns;
    std::vector<std::vector<Value>> rows;
};

/// Why a question has no answer.
struct QueryError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace detail {

inline Value value_of(const telem_value &value)
{
    switch (value.type) {
    case TELEM_BOOL: return value.as.boolean != 0;
    case TELEM_INT: return value.as.integer;
    case TELEM_UINT: return value.as.natural;
    case TELEM_FLOAT: return value.as.real;
    case TELEM_TEXT: return std::string(value.as.text, value.bytes);
    case TELEM_TIME: return Time{value.as.integer};
    case TELEM_NULL: break;
    }
    return std::monostate{};
}

struct Taking {
    Answer answer;
    std::exception_ptr thrown;
};

/// No exception passes through C.
inline int take_row(void *context, std::size_t count, const char *const *columns, const telem_value *values) noexcept
{
    auto *taking = static_cast<Taking *>(context);
    try {
        if (taking->answer.columns.empty()) taking->answer.columns.assign(columns, columns + count);
        std::vector<Value> row;
        row.reserve(count);
        for (std::size_t i = 0; i < count; i++) row.push_back(value_of(values[i]));
        taking->answer.rows.push_back(std::move(row));
        return 0;
    } catch (...) {
        taking->thrown = std::current_exception();
        return 1;
    }
}

} // namespace detail

/// All rows of an answer. Throws QueryError where there is none.
inline Answer sql(std::string_view question, std::chrono::milliseconds timeout = std::chrono::seconds(10))
{
    detail::Taking taking;
    const std::string text(question);
    if (telem_sql_rows(text.c_str(), static_cast<std::uint32_t>(timeout.count()), detail::take_row, &taking) < 0)
        throw QueryError(telem_error());
    if (taking.thrown) std::rethrow_exception(taking.thrown);
    return std::move(taking.answer);
}

/// The first column of the first row as a number. Throws QueryError where there is none.
inline double sql_number(std::string_view question, std::chrono::milliseconds timeout = std::chrono::seconds(10))
{
    double number = 0;
    const std::string text(question);
    if (telem_sql_number(text.c_str(), static_cast<std::uint32_t>(timeout.count()), &number) != 0)
        throw QueryError(telem_error());
    return number;
}

} // namespace telem

#endif
