#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "durations.h"
#include "names.h"
#include "records.h"

enum {
    VARIANT_SLOTS = 2 * KC_VARIANTS,
    KEY_BYTES = 48, /* the head of struct kc_variant: kernel to unused */
};

struct kernel {
    struct kc_kernel given;
    struct durations durations;
};

struct variant {
    struct kc_variant given;
    unsigned __int128 squares;
};

static struct kernel *kernels;
static struct variant *variants;
static struct kc_kernel *given_kernels;
static struct kc_variant *given_variants;
static uint32_t kernel_count, variant_count, variant_slots[VARIANT_SLOTS];
static uint16_t kernel_at[KC_DEVICES][KC_NAMES]; /* one more than its position; 0 is none in this interval */

int kernels_open(void)
{
    if (kernels)
        return 0;
    variants = calloc(KC_VARIANTS, sizeof *variants);
    given_kernels = calloc(KC_KERNELS, sizeof *given_kernels);
    given_variants = calloc(KC_VARIANTS, sizeof *given_variants);
    if (!variants || !given_kernels || !given_variants)
        return -1;
    kernels = calloc(KC_KERNELS, sizeof *kernels);
    for (int kernel = 0; kernels && kernel < KC_KERNELS; kernel++)
        kernels[kernel].durations.first = KC_BUCKETS;
    return kernels ? 0 : -1;
}

static struct kernel *add_kernel(uint32_t device, uint32_t name)
{
    struct kernel *kernel = &kernels[kernel_count++];
    kernel->given = (struct kc_kernel){.device = device, .name = name};
    kernel_at[device][name] = (uint16_t)kernel_count;
    return kernel;
}

/* Kernels beyond those of an interval are counted together; every device has one of each class for them. */
static struct kernel *kernel_of(uint32_t device, uint32_t name, struct kc_counts *counts)
{
    if (kernel_at[device][name])
        return &kernels[kernel_at[device][name] - 1];
    if (name < RESERVED_NAMES || kernel_count < KC_KERNELS - RESERVED_NAMES * KC_DEVICES)
        return add_kernel(device, name);
    counts->crowded++;
    return kernel_of(device, names_none(names_class(name)), counts);
}

static uint64_t key_hash(const struct kc_variant *key)
{
    uint64_t parts[KEY_BYTES / 8], hash = 0;
    memcpy(parts, key, KEY_BYTES);
    for (int part = 0; part < KEY_BYTES / 8; part++)
        hash = (hash ^ parts[part]) * UINT64_C(0x9E3779B97F4A7C15), hash ^= hash >> 29;
    return hash;
}

/* NULL where an interval has more variants than are kept apart: the kernel itself still counts. */
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

static void count_variant(const uint8_t *record, const struct kernel *kernel, int timed, uint64_t duration_ns,
                          struct kc_counts *counts)
{
    struct kc_variant key = {.kernel = (uint32_t)(kernel - kernels)};
    if (kernel->given.name < RESERVED_NAMES)
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
    if (timed) {
        variant->given.count++;
        variant->given.sum_ns += duration_ns;
        variant->squares += (unsigned __int128)duration_ns * duration_ns;
    }
}

static void count_delay(const uint8_t *record, struct kernel *kernel, uint64_t start_ns)
{
    uint64_t queued_ns = u64_at(record, KERNEL_QUEUED);
    queued_ns = queued_ns ? queued_ns : u64_at(record, KERNEL_SUBMITTED);
    if (queued_ns && queued_ns <= start_ns && start_ns - queued_ns < LONGEST_NS && clock_agrees(queued_ns)) {
        kernel->given.queue_delays++;
        kernel->given.queue_delay_ns += start_ns - queued_ns;
    }
}

void kernels_launch(const uint8_t *record, uint32_t device, uint32_t name, int timed, struct kc_counts *counts)
{
    uint64_t start_ns = u64_at(record, KERNEL_START), end_ns = u64_at(record, KERNEL_END);
    struct kernel *kernel = kernel_of(device, name, counts);
    count_variant(record, kernel, timed, end_ns - start_ns, counts);
    kernel->given.launches++;
    kernel->given.graph_launches += u64_at(record, KERNEL_GRAPH_NODE) != 0 || u32_at(record, KERNEL_GRAPH) != 0;
    if (timed) {
        durations_add(&kernel->durations, end_ns - start_ns);
        count_delay(record, kernel, start_ns);
    }
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

/* Hands over the kernels and their variants, with their histograms' buckets; returns how many buckets are used. */
uint32_t kernels_give(struct kc_drain *drain, struct kc_bucket *buckets, uint32_t most)
{
    uint32_t used = 0;
    for (uint32_t at = 0; at < kernel_count; at++) {
        struct kernel *kernel = &kernels[at];
        given_kernels[at] = kernel->given;
        used = durations_give(&kernel->durations, &given_kernels[at].durations, buckets, used, most,
                              &drain->counts.crowded);
        durations_clear(&kernel->durations);
        kernel_at[kernel->given.device][kernel->given.name] = 0;
    }
    drain->kernels = given_kernels;
    drain->kernel_count = kernel_count;
    kernel_count = 0;
    give_variants(drain);
    return used;
}
