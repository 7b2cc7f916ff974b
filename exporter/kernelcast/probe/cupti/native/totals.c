#include "totals.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "intervals.h"
#include "kernels.h"
#include "names.h"
#include "records.h"

enum {
    CONTEXTS = 256,
    BUCKETS_GIVEN = 1 << 16,
    NO_MORE_RECORDS = 12, /* CUPTI_ERROR_MAX_LIMIT_REACHED */
};

struct device {
    struct kc_device given;
    struct occupation occupation;
};

static struct kc_settings settings;
static struct kc_bucket *given_buckets;
static struct kc_device given_devices[KC_DEVICES];
static struct device *devices[KC_DEVICES];
static struct {
    uint32_t context, device;
} contexts[CONTEXTS];
static uint32_t context_count;

int totals_open(const struct kc_settings *chosen)
{
    settings = *chosen;
    clock_open(chosen->now_ns);
    durations_bounds(chosen->bounds_ns);
    if (names_open(chosen->class_rules))
        return -1;
    if (!given_buckets)
        given_buckets = calloc(BUCKETS_GIVEN, sizeof *given_buckets);
    return given_buckets ? kernels_open() : -1;
}

static struct device *device_at(uint32_t number)
{
    if (number >= KC_DEVICES)
        return NULL;
    if (!devices[number]) {
        struct device *device = calloc(1, sizeof *device);
        if (!device || occupation_open(&device->occupation)) {
            free(device);
            return NULL;
        }
        device->given.device = number;
        devices[number] = device;
    }
    return devices[number];
}

/* A synchronisation names only a context; work that names context and device gives the mapping. */
static void learn_context(uint32_t context, uint32_t device)
{
    if (context_count && contexts[context_count - 1].context == context)
        return;
    for (uint32_t at = 0; at < context_count; at++)
        if (contexts[at].context == context) {
            contexts[at].device = device;
            return;
        }
    if (context_count < CONTEXTS) {
        contexts[context_count].context = context;
        contexts[context_count++].device = device;
    }
}

static uint32_t device_of(uint32_t context)
{
    for (uint32_t at = 0; at < context_count; at++)
        if (contexts[at].context == context)
            return contexts[at].device;
    return context_count ? contexts[0].device : 0;
}

static void launch(const uint8_t *record, struct kc_counts *counts)
{
    uint32_t number = u32_at(record, KERNEL_DEVICE);
    struct device *device = device_at(number);
    if (!device) {
        counts->malformed++;
        return;
    }
    uint64_t start_ns = u64_at(record, KERNEL_START), end_ns = u64_at(record, KERNEL_END);
    const char *text = (const char *)(uintptr_t)u64_at(record, KERNEL_NAME);
    uint32_t name = names_id(text);
    learn_context(u32_at(record, KERNEL_CONTEXT), number);
    int timed = clock_timed(start_ns, end_ns);
    kernels_launch(record, number, name, timed, counts);
    counts->unnamed += name < RESERVED_NAMES && text && *text;
    if (timed)
        occupation_add(&device->occupation, start_ns, end_ns, names_class(name));
    else
        counts->untimed++;
}

/* The side in the host's memory decides between pageable and pinned: the source, except for copies to the host. */
static int pinned(const uint8_t *record, uint32_t kind)
{
    enum { PAGEABLE = 1, PINNED = 2, DEVICE_TO_HOST = 2, ARRAY_TO_HOST = 4 };
    int to_host = kind == DEVICE_TO_HOST || kind == ARRAY_TO_HOST;
    uint8_t memory = record[to_host ? COPY_DESTINATION : COPY_SOURCE];
    return memory == PAGEABLE || memory == PINNED ? memory : 0;
}

static void count_in(struct kc_amount *amount, uint64_t bytes, uint64_t ns)
{
    amount->operations++;
    amount->bytes += bytes;
    amount->ns += ns;
}

static void transfer(const uint8_t *record, struct kc_amount *amount, struct occupation *occupation,
                     struct kc_counts *counts)
{
    uint64_t start_ns = u64_at(record, COPY_START), end_ns = u64_at(record, COPY_END);
    int timed = clock_timed(start_ns, end_ns);
    count_in(amount, u64_at(record, COPY_SIZE), timed ? end_ns - start_ns : 0);
    if (timed)
        occupation_add(occupation, start_ns, end_ns, KC_COPY);
    else
        counts->untimed++;
}

static void copy(const uint8_t *record, struct kc_counts *counts)
{
    struct device *device = device_at(u32_at(record, COPY_DEVICE));
    uint32_t kind = record[COPY_KIND] < KC_COPY_KINDS ? record[COPY_KIND] : 0;
    if (!device) {
        counts->malformed++;
        return;
    }
    learn_context(u32_at(record, COPY_CONTEXT), u32_at(record, COPY_DEVICE));
    transfer(record, &device->given.copies[kind][pinned(record, kind)], &device->occupation, counts);
}

_Static_assert((int)MEMSET_SIZE == COPY_SIZE && (int)MEMSET_START == COPY_START && (int)MEMSET_END == COPY_END,
               "a fill's size and times stand where a copy's do");

static void fill(const uint8_t *record, struct kc_counts *counts)
{
    struct device *device = device_at(u32_at(record, MEMSET_DEVICE));
    if (!device) {
        counts->malformed++;
        return;
    }
    learn_context(u32_at(record, MEMSET_CONTEXT), u32_at(record, MEMSET_DEVICE));
    transfer(record, &device->given.memsets, &device->occupation, counts);
}

static void synchronisation(const uint8_t *record, struct kc_counts *counts)
{
    uint64_t start_ns = u64_at(record, SYNC_START), end_ns = u64_at(record, SYNC_END);
    uint32_t type = u32_at(record, SYNC_TYPE);
    struct device *device = device_at(device_of(u32_at(record, SYNC_CONTEXT)));
    if (!device) {
        counts->malformed++;
        return;
    }
    int timed = clock_timed(start_ns, end_ns);
    counts->untimed += !timed;
    count_in(&device->given.syncs[type < KC_SYNCS ? type : 0], 0, timed ? end_ns - start_ns : 0);
}

static void record_of(const uint8_t *record, uint32_t kind, struct kc_counts *counts)
{
    counts->records++;
    if (kind == KIND_KERNEL || kind == KIND_CONCURRENT_KERNEL)
        launch(record, counts);
    else if (kind == KIND_MEMCPY || kind == KIND_MEMCPY2)
        copy(record, counts);
    else if (kind == KIND_MEMSET)
        fill(record, counts);
    else
        synchronisation(record, counts);
}

/* Where a walk over a buffer is: its last record, and how many there were. */
struct walk {
    const uint8_t *begin, *end, *last;
    uint64_t records;
};

/* About how many records lie behind the last one: as long as those before it, or as the shortest kernel's. */
static uint64_t records_behind(const struct walk *walk)
{
    size_t walked = walk->last ? (size_t)(walk->last - walk->begin) : 0;
    size_t length = walk->records > 1 ? walked / (walk->records - 1) : KERNEL_BYTES;
    size_t known = walk->last ? walked + length : 0, valid = (size_t)(walk->end - walk->begin);
    return known < valid ? (valid - known + length / 2) / length : 0;
}

/* How many bytes of a record are read, at least its kind; 0 where they are not all within the buffer, behind the record
 * before. */
static size_t readable(const struct walk *walk, const uint8_t *at)
{
    if (at < walk->begin || at >= walk->end || (walk->last && at <= walk->last))
        return 0;
    size_t there = (size_t)(walk->end - at);
    if (there < sizeof(uint32_t))
        return 0;
    size_t needed = bytes_read(u32_at(at, 0));
    needed = needed ? needed : sizeof(uint32_t);
    return needed <= there ? needed : 0;
}

static void leave_unread(const struct walk *walk, int malformed, struct kc_counts *counts)
{
    uint64_t behind = records_behind(walk);
    counts->malformed += malformed;
    counts->unread += behind ? behind - malformed : !malformed;
}

/* Reads the records of a buffer. A record that would be read beyond the valid bytes, or backwards, ends the walk, as does
 * an answer that is neither a record nor the end; what lies behind is counted. */
void totals_decode(uint8_t *buffer, size_t valid_bytes, struct kc_counts *counts)
{
    struct walk walk = {.begin = buffer, .end = buffer + valid_bytes};
    void *next = NULL;
    int answer;
    names_new_buffer();
    clock_new_buffer();
    while ((answer = settings.next_record(buffer, valid_bytes, &next)) == 0) {
        size_t bytes = readable(&walk, next);
        if (!bytes) {
            leave_unread(&walk, 1, counts);
            return;
        }
        walk.last = next;
        walk.records++;
        if (bytes > sizeof(uint32_t))
            record_of(next, u32_at(next, 0), counts);
        else
            counts->other_kinds++;
    }
    if (answer != NO_MORE_RECORDS)
        leave_unread(&walk, 0, counts);
}

/* After the clock was set back, the device's time starts again: else all records would be late until the clock is again
 * where it was. */
static void catch_up(struct occupation *occupation, uint64_t now_ns, int final)
{
    uint64_t until_ns = occupation->latest_ns > settings.window_ns ? occupation->latest_ns - settings.window_ns : 0;
    int set_back = now_ns && now_ns + CLOCK_SLACK_NS < occupation->latest_ns;
    if (final || set_back) {
        occupation_finish(occupation);
        return;
    }
    if (now_ns > settings.quiet_ns && now_ns - settings.quiet_ns > until_ns)
        until_ns = now_ns - settings.quiet_ns;
    occupation_advance(occupation, until_ns);
}

static uint32_t give_device(struct device *device, struct kc_device *given, uint32_t used, uint64_t *left_out)
{
    struct occupation *occupation = &device->occupation;
    uint64_t number = device->given.device;
    *given = device->given;
    memcpy(given->state_ns, occupation->state_ns, sizeof given->state_ns);
    given->late = occupation->late;
    used = durations_give(&occupation->gaps, &given->gaps, given_buckets, used, BUCKETS_GIVEN, left_out);
    durations_clear(&occupation->gaps);
    memset(occupation->state_ns, 0, sizeof occupation->state_ns);
    occupation->late = 0;
    memset(&device->given, 0, sizeof device->given);
    device->given.device = number;
    return used;
}

/* Returns the sums since the last call, and starts the next interval at zero. */
void totals_give(uint64_t now_ns, int final, struct kc_drain *drain)
{
    uint32_t used = kernels_give(drain, given_buckets, BUCKETS_GIVEN), count = 0;
    clock_set(now_ns);
    for (int number = 0; number < KC_DEVICES; number++)
        if (devices[number]) {
            catch_up(&devices[number]->occupation, now_ns, final);
            used = give_device(devices[number], &given_devices[count++], used, &drain->counts.crowded);
        }
    drain->devices = given_devices;
    drain->device_count = count;
    drain->buckets = given_buckets;
    drain->bucket_count = used;
    names_give(drain);
}
