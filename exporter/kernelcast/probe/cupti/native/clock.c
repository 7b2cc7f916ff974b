/* The limits for the times in a buffer's records.
 *
 * CUPTI's clock is known at the start and at every drain. Between two drains it is carried on by the system's clock, so a
 * program that holds Python's interpreter for minutes still has its kernels timed. Without this check one wild time
 * would move the device's sums to that moment, and all that comes after it would be late for ever.
 */
#define _GNU_SOURCE
#include "clock.h"

#include <time.h>

uint64_t clock_earliest_ns, clock_latest_ns;
static uint64_t known_ns, read_at_ns; /* CUPTI's clock, and when it was read; 0: not known */

static uint64_t system_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void clock_open(uint64_t now_ns)
{
    known_ns = 0;
    clock_earliest_ns = 0;
    clock_latest_ns = UINT64_MAX;
    clock_set(now_ns);
}

/* No record is older than the first reading of the clock; a clock that is set back moves this limit with it. */
void clock_set(uint64_t now_ns)
{
    if (!now_ns)
        return;
    uint64_t earliest_now_ns = now_ns > CLOCK_SLACK_NS ? now_ns - CLOCK_SLACK_NS : 0;
    if (!known_ns || earliest_now_ns < clock_earliest_ns)
        clock_earliest_ns = earliest_now_ns;
    known_ns = now_ns;
    read_at_ns = system_ns();
}

void clock_new_buffer(void)
{
    clock_latest_ns = known_ns ? known_ns + (system_ns() - read_at_ns) + CLOCK_SLACK_NS : UINT64_MAX;
}
