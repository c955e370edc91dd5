#include <telem.h>

int main(void)
{
    telem_gauge *gauge = telem_gauge_open("consumed", TELEM_TAGS("by", "c"));
    telem_set(gauge, 1.5);
    return gauge && telem_flush(60000) == 0 ? 0 : 1;
}
