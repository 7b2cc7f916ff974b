/* What Python sees of the library: settings in, totals of one interval out. `probe/cupti/native.py` mirrors every struct.
 *
 * No Python API is used, so one build serves every version of Python, and CUPTI's callbacks, which may run on a thread of
 * the program in the middle of a launch, never wait for the interpreter. All memory is taken once, at the start.
 */
#ifndef KERNELCAST_ACTIVITY_H
#define KERNELCAST_ACTIVITY_H

#include <stddef.h>
#include <stdint.h>

enum {
    KC_ABI = 6,
    KC_BOUNDS = 401,      /* bucket bounds, one more than buckets */
    KC_BUCKETS = 400,     /* kernelcast.wire.histogram: indices -240 to 159 */
    KC_LOWEST = -240,
    KC_DEVICES = 64,      /* as probe.recorder.MAX_DEVICES */
    KC_KERNELS = 4096,    /* within one interval */
    KC_VARIANTS = 4096,   /* of kernels by launch configuration, within one interval */
    KC_NAMES = 4096,
    KC_NAME_BYTES = 16384, /* longer names end in a hash of the whole */
    KC_ARENA_BYTES = 4 << 20,
    KC_INTERVALS = 1 << 16,
    KC_STATES = 6,
    KC_COPY_KINDS = 11,   /* CUpti_ActivityMemcpyKind 0 to 10 */
    KC_PINNED = 3,        /* unknown, pageable, pinned */
    KC_SYNCS = 5,         /* CUpti_ActivitySynchronizationType 0 to 4 */
};

enum kc_class { KC_COMPUTE, KC_COLLECTIVE, KC_COPY };
enum kc_state { KC_IS_COMPUTE, KC_IS_COLLECTIVE, KC_IS_COPY, KC_IS_OVERLAP, KC_IS_IDLE, KC_IS_UNKNOWN };

typedef int (*kc_next_record)(uint8_t *buffer, size_t valid_bytes, void **record);

/* `now_ns` is CUPTI's clock, 0 where it is not known. `bounds_ns[i]` is the last whole nanosecond of bucket i - 1.
 * `class_rules` are those of wire/kernels.py, separated by `|`: `first&second` for collectives, `!first&second` for names
 * that are of none; a second word may be empty. */
struct kc_settings {
    uint64_t buffer_bytes;
    uint64_t buffers;
    uint64_t window_ns;
    uint64_t quiet_ns;
    uint64_t now_ns;
    kc_next_record next_record;
    const int64_t *bounds_ns;
    const char *class_rules;
    uint64_t never_refuse; /* whether CUPTI gets a spare buffer where none is free: before 12.9 it ends the program */
};

struct kc_durations {
    uint64_t count, zero, sum_ns, squares_low, squares_high;
    uint32_t first_bucket, buckets; /* a stretch of the drain's buckets */
};

/* One kernel on one device, in one interval; its variants say how it was launched. */
struct kc_kernel {
    uint32_t device, name;
    uint64_t launches, graph_launches, queue_delays, queue_delay_ns;
    struct kc_durations durations;
};

/* One kernel in one launch configuration; `kernel` is its position among the kernels. */
struct kc_variant {
    uint32_t kernel, registers;
    uint32_t grid[3], block[3];
    uint32_t static_shared_bytes, dynamic_shared_bytes, local_bytes, unused;
    uint64_t launches, count, sum_ns, squares_low, squares_high;
};

struct kc_amount {
    uint64_t operations, bytes, ns;
};

struct kc_device {
    uint64_t device;
    uint64_t state_ns[KC_STATES];
    uint64_t late; /* activities that began before a moment already summed up: their start was cut off */
    struct kc_amount copies[KC_COPY_KINDS][KC_PINNED];
    struct kc_amount memsets;
    struct kc_amount syncs[KC_SYNCS];
    struct kc_durations gaps;
};

struct kc_bucket {
    int32_t index;
    uint32_t count;
};

struct kc_name {
    uint32_t offset, length; /* into the text */
    uint32_t kind;           /* enum kc_class */
    uint32_t id;
};

/* Counts since the last drain.
 *
 * malformed: records that could not be used, and buffers that are not ours
 * unread: records behind the one at which a walk over a buffer ended too early, and those in spare buffers; how many is
 *     estimated by their length
 * untimed: records whose times contradict each other or CUPTI's clock
 * unnamed: launches of kernels beyond the names that are kept
 * crowded: launches beyond the kernels or variants of an interval, and durations beyond its buckets
 * held_ns: time that callbacks took, on threads of the program or of CUPTI */
struct kc_counts {
    uint64_t records, buffers, refused_buffers, malformed, unread, other_kinds, untimed, unnamed, crowded, held_ns,
        decode_ns;
};

/* Filled by kc_drain; the arrays belong to the library and stand until the next drain. */
struct kc_drain {
    const struct kc_kernel *kernels;
    const struct kc_variant *variants;
    const struct kc_device *devices;
    const struct kc_bucket *buckets;
    const struct kc_name *names; /* those first seen since the last drain */
    const char *text;
    uint64_t kernel_count, variant_count, device_count, bucket_count, name_count;
    struct kc_counts counts;
};

_Static_assert(sizeof(void *) == 8 && sizeof(struct kc_kernel) == 88 && sizeof(struct kc_variant) == 88 && sizeof(struct kc_device) == 1048,
               "as probe/cupti/native.py unpacks them");

#pragma GCC visibility push(default)
int kc_abi(void);
int kc_open(const struct kc_settings *settings);
void kc_close(void);
int kc_settle(uint32_t timeout_ms);
int kc_drain(uint64_t now_ns, int final, struct kc_drain *drain);
void kc_subscriber(void *data, int domain, uint32_t callback, const void *arguments);
void kc_requested(uint8_t **buffer, size_t *bytes, size_t *records);
void kc_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes);
void kc_buckets(const int64_t *durations_ns, size_t count, int32_t *indices);
#pragma GCC visibility pop

#endif
