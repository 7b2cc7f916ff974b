#include "totals.h"

#include <stdlib.h>
#include <string.h>

#include "intervals.h"
#include "names.h"
#include "records.h"

enum {
    VARIANT_SLOTS = 2 * KC_VARIANTS,
    CONTEXTS = 256,
    BUCKETS_GIVEN = 1 << 16,
    KEY_BYTES = 48, /* the head of struct kc_variant: kernel to unused */
};

static const uint64_t longest_ns = UINT64_C(1) << 47; /* 39 hours, as in replay/trace.py: a clock that was read wrongly */

struct kernel {
    struct kc_kernel given;
    struct durations durations;
};

struct variant {
    struct kc_variant given;
    unsigned __int128 squares;
};

struct device {
    struct kc_device given;
    struct occupation occupation;
};

static struct kc_settings settings;
static struct kernel *kernels;
static struct variant *variants;
static struct kc_kernel *given_kernels;
static struct kc_variant *given_variants;
static struct kc_bucket *given_buckets;
static struct kc_device given_devices[KC_DEVICES];
static uint32_t kernel_count, variant_count, variant_slots[VARIANT_SLOTS];
static uint16_t kernel_at[KC_DEVICES][KC_NAMES]; /* one more than its position; 0 is none in this interval */
static struct device *devices[KC_DEVICES];
static struct {
    uint32_t context, device;
} contexts[CONTEXTS];
static uint32_t context_count;

int totals_open(const struct kc_settings *chosen)
{
    settings = *chosen;
    durations_bounds(chosen->bounds_ns);
    names_open(chosen->collective_words);
    if (kernels)
        return 0;
    variants = calloc(KC_VARIANTS, sizeof *variants);
    given_kernels = calloc(KC_KERNELS, sizeof *given_kernels);
    given_variants = calloc(KC_VARIANTS, sizeof *given_variants);
    given_buckets = calloc(BUCKETS_GIVEN, sizeof *given_buckets);
    if (!variants || !given_kernels || !given_variants || !given_buckets)
        return -1;
    kernels = calloc(KC_KERNELS, sizeof *kernels);
    for (int kernel = 0; kernels && kernel < KC_KERNELS; kernel++)
        kernels[kernel].durations.first = KC_BUCKETS;
    return kernels ? 0 : -1;
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

/* Synchronisations name a context only; work that names both tells which device that is. */
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

static struct kernel *add_kernel(uint32_t device, uint32_t name)
{
    struct kernel *kernel = &kernels[kernel_count++];
    kernel->given = (struct kc_kernel){.device = device, .name = name};
    kernel_at[device][name] = (uint16_t)kernel_count;
    return kernel;
}

/* Kernels beyond those of an interval are no longer told apart; every device has one for them. */
static struct kernel *kernel_of(uint32_t device, uint32_t name, struct kc_counts *counts)
{
    if (kernel_at[device][name])
        return &kernels[kernel_at[device][name] - 1];
    if (kernel_count < KC_KERNELS - KC_DEVICES)
        return add_kernel(device, name);
    counts->crowded++;
    if (kernel_at[device][NO_NAME])
        return &kernels[kernel_at[device][NO_NAME] - 1];
    return add_kernel(device, NO_NAME);
}

static uint64_t key_hash(const struct kc_variant *key)
{
    uint64_t parts[KEY_BYTES / 8], hash = 0;
    memcpy(parts, key, KEY_BYTES);
    for (int part = 0; part < KEY_BYTES / 8; part++)
        hash = (hash ^ parts[part]) * UINT64_C(0x9E3779B97F4A7C15), hash ^= hash >> 29;
    return hash;
}

/* NULL where an interval has more than are told apart: the kernel itself still counts. */
static struct variant *variant_of(const struct kc_variant *key)
{
    uint32_t slot = (uint32_t)(key_hash(key) % VARIANT_SLOTS);
    while (variant_slots[slot]) {
        struct variant *variant = &variants[variant_slots[slot] - 1];
        if (memcmp(&variant->given, key, KEY_BYTES) == 0)
            return variant;
        slot = (slot + 1) % VARIANT_SLOTS;
    }
    if (variant_count == KC_VARIANTS)
        return NULL;
    struct variant *variant = &variants[variant_count++];
    *variant = (struct variant){.given = *key};
    variant_slots[slot] = variant_count;
    return variant;
}

static int timed(uint64_t start_ns, uint64_t end_ns)
{
    return start_ns && end_ns >= start_ns && end_ns - start_ns < longest_ns;
}

static void count_variant(const uint8_t *record, const struct kernel *kernel, int known, uint64_t duration_ns,
                          struct kc_counts *counts)
{
    struct kc_variant key = {.kernel = (uint32_t)(kernel - kernels)};
    if (kernel->given.name == NO_NAME)
        return;
    memcpy(key.grid, record + KERNEL_GRID, sizeof key.grid + sizeof key.block);
    key.registers = u16_at(record, KERNEL_REGISTERS);
    key.static_shared_bytes = u32_at(record, KERNEL_STATIC_SHARED);
    key.dynamic_shared_bytes = u32_at(record, KERNEL_DYNAMIC_SHARED);
    key.local_bytes = u32_at(record, KERNEL_LOCAL_PER_THREAD);
    struct variant *variant = variant_of(&key);
    if (!variant) {
        counts->crowded++;
        return;
    }
    variant->given.launches++;
    if (known) {
        variant->given.count++;
        variant->given.sum_ns += duration_ns;
        variant->squares += (unsigned __int128)duration_ns * duration_ns;
    }
}

static void count_delay(const uint8_t *record, struct kernel *kernel, uint64_t start_ns)
{
    uint64_t queued_ns = u64_at(record, KERNEL_QUEUED);
    queued_ns = queued_ns ? queued_ns : u64_at(record, KERNEL_SUBMITTED);
    if (queued_ns && queued_ns <= start_ns && start_ns - queued_ns < longest_ns) {
        kernel->given.queue_delays++;
        kernel->given.queue_delay_ns += start_ns - queued_ns;
    }
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
    uint32_t name = names_id((const char *)(uintptr_t)u64_at(record, KERNEL_NAME));
    struct kernel *kernel = kernel_of(number, name, counts);
    int known = timed(start_ns, end_ns);
    learn_context(u32_at(record, KERNEL_CONTEXT), number);
    count_variant(record, kernel, known, end_ns - start_ns, counts);
    kernel->given.launches++;
    kernel->given.graph_launches += u64_at(record, KERNEL_GRAPH_NODE) != 0 || u32_at(record, KERNEL_GRAPH) != 0;
    if (!known) {
        counts->untimed++;
        return;
    }
    durations_add(&kernel->durations, end_ns - start_ns);
    occupation_add(&device->occupation, start_ns, end_ns, names_class(name));
    count_delay(record, kernel, start_ns);
}

/* Pageable and pinned are told by the side that is in the host's memory: the source, unless it is copied to the host. */
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
    int known = timed(start_ns, end_ns);
    count_in(amount, u64_at(record, COPY_SIZE), known ? end_ns - start_ns : 0);
    if (known)
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
    int known = timed(start_ns, end_ns);
    counts->untimed += !known;
    count_in(&device->given.syncs[type < KC_SYNCS ? type : 0], 0, known ? end_ns - start_ns : 0);
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

/* Walks the records of a buffer; one that would be read beyond the valid bytes, or backwards, ends the walk. */
void totals_decode(uint8_t *buffer, size_t valid_bytes, struct kc_counts *counts)
{
    void *next = NULL;
    const uint8_t *record = NULL;
    names_new_buffer();
    while (settings.next_record(buffer, valid_bytes, &next) == 0) {
        const uint8_t *end = buffer + valid_bytes, *at = next;
        if (at < buffer || at >= end || (size_t)(end - at) < sizeof(uint32_t) || (record && at <= record)) {
            counts->malformed++;
            return;
        }
        record = at;
        uint32_t kind = u32_at(record, 0);
        size_t needed = bytes_read(kind);
        if (needed > (size_t)(end - at)) {
            counts->malformed++;
            return;
        }
        if (needed)
            record_of(record, kind, counts);
        else
            counts->other_kinds++;
    }
}

static uint32_t give_kernels(struct kc_drain *drain)
{
    uint32_t used = 0;
    for (uint32_t at = 0; at < kernel_count; at++) {
        struct kernel *kernel = &kernels[at];
        given_kernels[at] = kernel->given;
        used = durations_give(&kernel->durations, &given_kernels[at].durations, given_buckets, used, BUCKETS_GIVEN);
        durations_clear(&kernel->durations);
        kernel_at[kernel->given.device][kernel->given.name] = 0;
    }
    drain->kernels = given_kernels;
    drain->kernel_count = kernel_count;
    kernel_count = 0;
    return used;
}

static void give_variants(struct kc_drain *drain)
{
    for (uint32_t at = 0; at < variant_count; at++) {
        given_variants[at] = variants[at].given;
        given_variants[at].squares_low = (uint64_t)variants[at].squares;
        given_variants[at].squares_high = (uint64_t)(variants[at].squares >> 64);
    }
    drain->variants = given_variants;
    drain->variant_count = variant_count;
    memset(variant_slots, 0, sizeof variant_slots);
    variant_count = 0;
}

static void catch_up(struct occupation *occupation, uint64_t now_ns, int final)
{
    uint64_t until_ns = occupation->latest_ns > settings.window_ns ? occupation->latest_ns - settings.window_ns : 0;
    if (final) {
        occupation_finish(occupation);
        return;
    }
    if (now_ns > settings.quiet_ns && now_ns - settings.quiet_ns > until_ns)
        until_ns = now_ns - settings.quiet_ns;
    occupation_advance(occupation, until_ns);
}

static uint32_t give_device(struct device *device, struct kc_device *given, uint32_t used)
{
    struct occupation *occupation = &device->occupation;
    uint64_t number = device->given.device;
    *given = device->given;
    memcpy(given->state_ns, occupation->state_ns, sizeof given->state_ns);
    given->late = occupation->late;
    used = durations_give(&occupation->gaps, &given->gaps, given_buckets, used, BUCKETS_GIVEN);
    durations_clear(&occupation->gaps);
    memset(occupation->state_ns, 0, sizeof occupation->state_ns);
    occupation->late = 0;
    memset(&device->given, 0, sizeof device->given);
    device->given.device = number;
    return used;
}

/* Hands over what has come since the last call, and starts the next interval at nothing. */
void totals_give(uint64_t now_ns, int final, struct kc_drain *drain)
{
    uint32_t used = give_kernels(drain), count = 0;
    give_variants(drain);
    for (int number = 0; number < KC_DEVICES; number++)
        if (devices[number]) {
            catch_up(&devices[number]->occupation, now_ns, final);
            used = give_device(devices[number], &given_devices[count++], used);
        }
    drain->devices = given_devices;
    drain->device_count = count;
    drain->buckets = given_buckets;
    drain->bucket_count = used;
    names_give(drain);
}
