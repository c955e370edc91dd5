#include <telem.hpp>

int main()
{
    const telem::Gauge gauge{"consumed", {{"by", "cpp"}}};
    gauge.set(1.5);
    return gauge && telem::flush(std::chrono::minutes(1)) ? 0 : 1;
}
