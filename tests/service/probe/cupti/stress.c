/* A program without Python that puts the decoder under load from several threads, for the thread sanitizer.
 *
 * Launching threads fill buffers with records of random fields (only names are valid pointers, as CUPTI's are), and bring
 * foreign buffers and wrong lengths between; in some rounds they get spare buffers where none is free. One thread drains
 * and reads all that it is given; the main thread closes the decoder under this load and opens it again. The arguments
 * are the rounds and the milliseconds of each.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "activity.h"
#include "records.h"

enum { LAUNCHERS = 4, RECORD_BYTES = 256, NAMES = 6000, NAME_ADDRESS = KERNEL_NAME };

static const uint32_t kinds[] = {KIND_KERNEL, KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMCPY2, KIND_MEMSET,
                                 KIND_SYNCHRONIZATION, 99};
static char names[NAMES][32];
static int64_t bounds_ns[KC_BOUNDS];
static atomic_int stopping;
static atomic_ullong brought, drained_records, drained_sum;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void rest(long nanoseconds)
{
    nanosleep(&(struct timespec){0, nanoseconds}, NULL);
}

static uint64_t random_of(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static int next_record(uint8_t *buffer, size_t valid_bytes, void **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + RECORD_BYTES : buffer;
    if (next + RECORD_BYTES > buffer + valid_bytes)
        return 12;
    if (next[RECORD_BYTES - 1] == 7)
        return 21;
    *record = next;
    return 0;
}

/* Most times are near the clock, so that devices' time is summed up; the others are anything. */
static void write_record(uint8_t *record, uint64_t *state)
{
    uint64_t times[2];
    for (int at = 0; at < RECORD_BYTES; at += 8) {
        uint64_t value = random_of(state);
        memcpy(record + at, &value, sizeof value);
    }
    uint64_t choice = random_of(state), name = 0;
    memcpy(record, &kinds[choice % (sizeof kinds / sizeof kinds[0])], sizeof kinds[0]);
    int is_wait = record[0] == KIND_SYNCHRONIZATION;
    uint32_t device = (uint32_t)(random_of(state) % (choice & 512 ? 100 : 2));
    if (choice & 63) {
        times[0] = now_ns() - random_of(state) % 1000000;
        times[1] = times[0] + random_of(state) % 1000000;
        memcpy(record + (is_wait ? SYNC_START : KERNEL_START), times, sizeof times);
    }
    int device_at = COPY_DEVICE;
    if (record[0] == KIND_KERNEL || record[0] == KIND_CONCURRENT_KERNEL)
        device_at = KERNEL_DEVICE;
    if (!is_wait)
        memcpy(record + device_at, &device, sizeof device);
    if (choice & 1024)
        name = (uint64_t)(uintptr_t)names[random_of(state) % NAMES];
    memcpy(record + NAME_ADDRESS, &name, sizeof name);
    record[RECORD_BYTES - 1] = random_of(state) % 5000 == 0 ? 7 : 0;
}

static void *launch(void *number)
{
    static uint8_t foreign[4096];
    uint64_t state = 88172645463325252u + (uint64_t)(uintptr_t)number * 1442695040888963407u;
    while (!atomic_load(&stopping)) {
        uint8_t *buffer = NULL;
        size_t bytes = 0, most = 0, used = 0;
        kc_requested(&buffer, &bytes, &most);
        if (!buffer) {
            rest(200000);
            continue;
        }
        size_t wanted = random_of(&state) % (bytes + 1);
        for (; used + RECORD_BYTES <= wanted; used += RECORD_BYTES)
            write_record(buffer + used, &state);
        if (random_of(&state) % 16 == 0)
            kc_completed(NULL, 0, foreign, sizeof foreign, sizeof foreign);
        if (random_of(&state) % 16 == 0)
            kc_completed(NULL, 0, buffer + 8, bytes, used);
        kc_completed(NULL, 0, buffer, bytes, random_of(&state) % 64 == 0 ? 0 : used);
        atomic_fetch_add(&brought, used / RECORD_BYTES);
    }
    return NULL;
}

/* Reads every byte that a drain returns; the decoder must not write to these bytes at the same time. */
static uint64_t sum_of(const void *memory, size_t bytes)
{
    const uint8_t *at = memory;
    uint64_t sum = 0;
    for (size_t byte = 0; byte < bytes; byte++)
        sum += at[byte];
    return sum;
}

static void *drain_all(void *unused)
{
    struct kc_drain drain;
    (void)unused;
    while (!atomic_load(&stopping)) {
        kc_settle(5);
        if (kc_drain(now_ns(), (int)(now_ns() % 3 == 0), &drain) == 0) {
            uint64_t sum = sum_of(drain.kernels, drain.kernel_count * sizeof *drain.kernels);
            sum += sum_of(drain.variants, drain.variant_count * sizeof *drain.variants);
            sum += sum_of(drain.devices, drain.device_count * sizeof *drain.devices);
            sum += sum_of(drain.buckets, drain.bucket_count * sizeof *drain.buckets);
            sum += sum_of(drain.names, drain.name_count * sizeof *drain.names);
            for (uint64_t name = 0; name < drain.name_count; name++)
                sum += sum_of(drain.text + drain.names[name].offset, drain.names[name].length);
            atomic_fetch_add(&drained_sum, sum);
            atomic_fetch_add(&drained_records, drain.counts.records + drain.counts.other_kinds);
        }
        rest(2000000);
    }
    return NULL;
}

static int open_decoder(int never_refuse)
{
    struct kc_settings settings = {
        .buffer_bytes = 16384,
        .buffers = 16,
        .window_ns = 1000000,
        .quiet_ns = 100000000,
        .now_ns = now_ns(),
        .next_record = next_record,
        .bounds_ns = bounds_ns,
        .class_rules = "nccl&|oneshot&allreduce|!triton&fused",
        .never_refuse = (uint64_t)never_refuse,
    };
    return kc_open(&settings);
}

int main(int count, char **arguments)
{
    pthread_t launchers[LAUNCHERS], drainer;
    int rounds = count > 1 ? atoi(arguments[1]) : 4;
    long milliseconds = count > 2 ? atol(arguments[2]) : 250;
    for (int name = 0; name < NAMES; name++)
        snprintf(names[name], sizeof names[name], name % 7 ? "gemm_%d" : "ncclKernel_%d", name);
    for (int bound = 0; bound < KC_BOUNDS; bound++)
        bounds_ns[bound] = bound * (bound + 1);
    if (open_decoder(0))
        return 2;
    for (uintptr_t number = 0; number < LAUNCHERS; number++)
        if (pthread_create(&launchers[number], NULL, launch, (void *)number))
            return 2;
    if (pthread_create(&drainer, NULL, drain_all, NULL))
        return 2;
    for (int round = 0; round < rounds; round++) {
        rest(milliseconds * 1000000);
        kc_close();
        if (round % 2)
            rest(5000000);
        if (open_decoder(round % 4 == 1))
            return 2;
    }
    atomic_store(&stopping, 1);
    for (int number = 0; number < LAUNCHERS; number++)
        pthread_join(launchers[number], NULL);
    pthread_join(drainer, NULL);
    kc_close();
    printf("%llu records brought, %llu read\n", (unsigned long long)brought, (unsigned long long)drained_records);
    return drained_records ? 0 : 3;
}
