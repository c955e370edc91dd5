// peers.cpp: the same calls as calls.c, of Debian's prometheus-cpp.
//
//     peers THREADS BATCHES
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int calls = 1000;

template <typename Batch>
void measure(const char *name, int threads, int batches, Batch batch)
{
    std::vector<std::vector<double>> found(static_cast<std::size_t>(threads));
    std::vector<std::thread> running;
    for (auto &own : found)
        running.emplace_back([&own, batches, &batch] {
            for (int i = 0; i < batches; i++) {
                const auto began = std::chrono::steady_clock::now();
                for (int call = 0; call < calls; call++) batch(call);
                const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
                own.push_back(took.count() / calls);
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            }
        });
    for (auto &thread : running) thread.join();
    std::vector<double> all;
    for (const auto &own : found) all.insert(all.end(), own.begin(), own.end());
    std::sort(all.begin(), all.end());
    std::printf("{\"peer\": \"prometheus-cpp\", \"call\": \"%s\", \"threads\": %d, \"median_ns\": %.2f, "
                "\"p90_ns\": %.2f}\n",
                name, threads, all[all.size() / 2], all[all.size() * 9 / 10]);
}

} // namespace

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
    const int batches = argc > 2 ? std::atoi(argv[2]) : 500;
    prometheus::Registry registry;
    auto &gauge = prometheus::BuildGauge().Name("bench_gauge").Register(registry).Add({});
    auto &counter = prometheus::BuildCounter().Name("bench_counter").Register(registry).Add({});
    auto &histogram = prometheus::BuildHistogram().Name("bench_histogram").Register(registry).Add(
        {}, prometheus::Histogram::BucketBoundaries{1, 2, 4, 8, 16});
    measure("gauge", threads, batches, [&gauge](int i) { gauge.Set(i * 0.5); });
    measure("counter", threads, batches, [&counter](int) { counter.Increment(); });
    measure("histogram", threads, batches, [&histogram](int i) { histogram.Observe(i & 15); });
}
