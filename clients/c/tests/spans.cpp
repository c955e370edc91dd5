// spans.cpp: the C++ header: every kind of metric once, and questions.
#include "telem.hpp"

#include <cstdio>
#include <string>
#include <thread>

namespace {

const telem::Timer solve{"cpp_span", {{"stage", "solve"}}};

int solved(int value)
{
    const auto span = solve.span();
    if (value > 1) return value * 2;
    return value;
}

} // namespace

int main()
{
    using namespace std::chrono_literals;
    const std::string model = "resnet";
    const telem::Gauge gauge{"cpp_gauge", {{"model", model}, {"fold", "3"}}, {"m", "How long.", 1}};
    gauge.set(0.25f);
    gauge.set(7);
    gauge.set(1u, telem::At{1767322800000000});
    gauge.set(std::uint64_t{1} << 63, telem::At{1767322800000001});
    gauge.set(2.5, telem::step(4));
    const telem::Counter counter{"cpp_counter"};
    ++counter;
    counter += 41;
    const telem::Histogram histogram{"cpp_histogram", {1, 2, 4}};
    histogram.observe(3);
    for (int i = 0; i < 3; i++)
        if (solved(i) < 0) return 1;
    const int measured = solve.measure([] { return 42; });
    telem::Span moved = solve.span();
    telem::Span other = std::move(moved);
    other.cancel();
    const telem::Gauge none{""};
    none.set(1);
    if (none || std::string(telem::error()).find("empty") == std::string::npos || measured != 42) return 2;
    telem::note("from C++");
    telem::setting("language", "C++");
    const auto answer = telem::sql("SELECT metric, count(*) AS n FROM samples WHERE metric LIKE 'cpp_%' "
                                   "GROUP BY metric ORDER BY metric", 60s);
    for (const auto &row : answer.rows)
        std::printf("%s %lld\n", std::get<std::string>(row[0]).c_str(),
                    static_cast<long long>(std::get<std::int64_t>(row[1])));
    try {
        telem::sql("SELECT", 60s);
        return 3;
    } catch (const telem::QueryError &error) {
        std::printf("refused\n");
    }
    return counter.total() == 42 ? 0 : 4;
}
