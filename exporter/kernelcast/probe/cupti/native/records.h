/* Offsets of fields in the activity records that are read.
 *
 * Offsets were computed with offsetof() from NVIDIA's own cupti_activity.h of CUPTI 12.1, 12.9, 13.0 and 13.5, on x86-64,
 * and are the same in all of them: newer structs only append. Checked: CUpti_ActivityKernel5 to Kernel13 (Kernel4 lacks
 * the two graph fields), CUpti_ActivityMemcpy, Memcpy3 to Memcpy7, MemcpyPtoP to MemcpyPtoP4, Memset to Memset5,
 * CUpti_ActivitySynchronization and Synchronization2. A record's length is CUPTI's own business: we go from one to the
 * next with cuptiActivityGetNextRecord, and read no further than the `_BYTES` below.
 */
#ifndef KERNELCAST_RECORDS_H
#define KERNELCAST_RECORDS_H

#include <stdint.h>
#include <string.h>

enum record_kind { /* CUpti_ActivityKind */
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_KERNEL = 3,
    KIND_CONCURRENT_KERNEL = 10,
    KIND_MEMCPY2 = 22,
    KIND_SYNCHRONIZATION = 38,
};

enum kernel_field {
    KERNEL_REGISTERS = 6, /* uint16_t */
    KERNEL_START = 16,
    KERNEL_END = 24,
    KERNEL_DEVICE = 40,
    KERNEL_CONTEXT = 44,
    KERNEL_GRID = 52, /* x, y, z, then the block's x, y, z */
    KERNEL_STATIC_SHARED = 76,
    KERNEL_DYNAMIC_SHARED = 80,
    KERNEL_LOCAL_PER_THREAD = 84,
    KERNEL_NAME = 104,
    KERNEL_QUEUED = 120,
    KERNEL_SUBMITTED = 128,
    KERNEL_GRAPH_NODE = 144,
    KERNEL_GRAPH = 156,
    KERNEL_BYTES = 160,
};

enum copy_field { /* Memcpy and MemcpyPtoP alike */
    COPY_KIND = 4,
    COPY_SOURCE = 5,
    COPY_DESTINATION = 6,
    COPY_SIZE = 8,
    COPY_START = 16,
    COPY_END = 24,
    COPY_DEVICE = 32,
    COPY_CONTEXT = 36,
    COPY_BYTES = 64,
};

enum memset_field {
    MEMSET_SIZE = 8,
    MEMSET_START = 16,
    MEMSET_END = 24,
    MEMSET_DEVICE = 32,
    MEMSET_CONTEXT = 36,
    MEMSET_BYTES = 64,
};

enum sync_field {
    SYNC_TYPE = 4,
    SYNC_START = 8,
    SYNC_END = 16,
    SYNC_CONTEXT = 28,
    SYNC_BYTES = 40,
};

static inline uint16_t u16_at(const uint8_t *record, int offset)
{
    uint16_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

static inline uint32_t u32_at(const uint8_t *record, int offset)
{
    uint32_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

static inline uint64_t u64_at(const uint8_t *record, int offset)
{
    uint64_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

#define LONGEST_NS (UINT64_C(1) << 47) /* 39 hours, as in replay/trace.py: beyond it a clock was read wrongly */

/* Bytes that are read of a record; 0 for a kind that is not read at all. */
static inline size_t bytes_read(uint32_t kind)
{
    switch (kind) {
    case KIND_KERNEL:
    case KIND_CONCURRENT_KERNEL:
        return KERNEL_BYTES;
    case KIND_MEMCPY:
    case KIND_MEMCPY2:
        return COPY_BYTES;
    case KIND_MEMSET:
        return MEMSET_BYTES;
    case KIND_SYNCHRONIZATION:
        return SYNC_BYTES;
    default:
        return 0;
    }
}

#endif
