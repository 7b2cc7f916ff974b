/* CUPTI's two callbacks, the pool of buffers that they exchange, and the thread that reads what came back.
 *
 * A callback may run on a thread of the program: it takes or returns a number under a mutex that is held for a few
 * instructions, and leaves. With the pool empty CUPTI gets no buffer, drops records and says so (NVIDIA's documentation
 * of CUpti_BuffersCallbackRequestFunc); we count how often. CUPTI before 12.9 ends the program there (NVIDIA's release
 * notes of CUPTI 12.9), so it gets a spare buffer, whose records are lost. A buffer is given out with every byte zero
 * (CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER): the reader clears what CUPTI has written, and CUPTI need not do so
 * on a thread of the program. The pool is never given back to the system, so that a callback that comes late, after
 * kc_close, touches memory that is still ours. In a forked child nothing does anything.
 */
#define _GNU_SOURCE
#include "activity.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "durations.h"
#include "records.h"
#include "totals.h"

enum { MAX_BUFFERS = 1024, SPARE_BYTES = 65536 };

enum place { FREE, WITH_CUPTI, FILLED };

struct spare {
    struct spare *next;
    uint64_t unused; /* so that the memory begins at a multiple of 16 */
    uint8_t memory[SPARE_BYTES];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled, settled;
    uint8_t *memory;
    uint64_t buffer_bytes, buffers;
    struct spare *spares; /* those that CUPTI holds */
    uint16_t stack[MAX_BUFFERS], queue[MAX_BUFFERS];
    uint32_t free, first, waiting, reading;
    size_t valid_bytes[MAX_BUFFERS]; /* written by CUPTI and not cleared yet */
    enum place place[MAX_BUFFERS];
    int stopping;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t totals_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kc_counts decoded;
static atomic_int open_now, alive; /* whether buffers are given out; whether there is a pool, and no fork since */
static atomic_int never_refuse;
static int in_child;
static atomic_uint_fast64_t refused_buffers, foreign_buffers, spared_records, held_ns;
static pthread_t reader;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int kc_abi(void)
{
    return KC_ABI;
}

static void give_spare(uint8_t **buffer, size_t *bytes)
{
    struct spare *spare = calloc(1, sizeof *spare);
    if (!spare)
        return;
    spare->next = pool.spares;
    pool.spares = spare;
    *buffer = spare->memory;
    *bytes = SPARE_BYTES;
}

void kc_requested(uint8_t **buffer, size_t *bytes, size_t *records)
{
    uint64_t began_ns = clock_ns(CLOCK_MONOTONIC);
    int is_open = atomic_load(&open_now), spares = atomic_load(&never_refuse);
    *buffer = NULL;
    *bytes = 0;
    *records = 0;
    if (!atomic_load(&alive) || (!is_open && !spares))
        return;
    pthread_mutex_lock(&pool.lock);
    if (is_open && pool.free) {
        uint16_t number = pool.stack[--pool.free];
        pool.place[number] = WITH_CUPTI;
        *buffer = pool.memory + number * pool.buffer_bytes;
        *bytes = pool.buffer_bytes;
    } else if (spares) {
        give_spare(buffer, bytes);
    }
    pthread_mutex_unlock(&pool.lock);
    if (!*buffer)
        atomic_fetch_add(&refused_buffers, 1);
    atomic_fetch_add(&held_ns, clock_ns(CLOCK_MONOTONIC) - began_ns);
}

/* The number of a buffer that CUPTI has of us, or -1: another profiler's buffers may come to our callback. */
static int number_of(const uint8_t *buffer)
{
    if (buffer < pool.memory)
        return -1;
    size_t offset = (size_t)(buffer - pool.memory);
    if (offset % pool.buffer_bytes || offset / pool.buffer_bytes >= pool.buffers)
        return -1;
    int number = (int)(offset / pool.buffer_bytes);
    return pool.place[number] == WITH_CUPTI ? number : -1;
}

static void take_back(int number, size_t valid_bytes)
{
    pool.valid_bytes[number] = valid_bytes < pool.buffer_bytes ? valid_bytes : pool.buffer_bytes;
    if (valid_bytes == 0 || pool.stopping) {
        pool.place[number] = FREE;
        pool.stack[pool.free++] = (uint16_t)number;
        return;
    }
    pool.place[number] = FILLED;
    pool.queue[(pool.first + pool.waiting++) % MAX_BUFFERS] = (uint16_t)number;
    pthread_cond_signal(&pool.filled);
}

/* Frees a spare buffer; returns whether it was one. */
static int free_spare(const uint8_t *buffer)
{
    for (struct spare **at = &pool.spares; *at; at = &(*at)->next)
        if ((*at)->memory == buffer) {
            struct spare *spare = *at;
            *at = spare->next;
            free(spare);
            return 1;
        }
    return 0;
}

void kc_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes)
{
    uint64_t began_ns = clock_ns(CLOCK_MONOTONIC);
    (void)context, (void)stream, (void)bytes;
    if (!atomic_load(&alive))
        return;
    pthread_mutex_lock(&pool.lock);
    int number = number_of(buffer), was_spare = number < 0 && free_spare(buffer);
    if (number >= 0)
        take_back(number, valid_bytes);
    pthread_mutex_unlock(&pool.lock);
    if (was_spare)
        atomic_fetch_add(&spared_records, valid_bytes / KERNEL_BYTES);
    else if (number < 0)
        atomic_fetch_add(&foreign_buffers, 1);
    atomic_fetch_add(&held_ns, clock_ns(CLOCK_MONOTONIC) - began_ns);
}

/* CUPTI writes nothing behind the valid bytes. */
static void clear(int number)
{
    memset(pool.memory + (size_t)number * pool.buffer_bytes, 0, pool.valid_bytes[number]);
    pool.valid_bytes[number] = 0;
}

static void read_buffer(int number)
{
    pthread_mutex_lock(&totals_lock);
    uint64_t began_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    totals_decode(pool.memory + (size_t)number * pool.buffer_bytes, pool.valid_bytes[number], &decoded);
    clear(number);
    decoded.buffers++;
    decoded.decode_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns;
    pthread_mutex_unlock(&totals_lock);
}

static void *read_buffers(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.waiting && !pool.stopping)
            pthread_cond_wait(&pool.filled, &pool.lock);
        if (!pool.waiting)
            break;
        int number = pool.queue[pool.first];
        pool.first = (pool.first + 1) % MAX_BUFFERS;
        pool.waiting--;
        pool.reading = 1;
        pthread_mutex_unlock(&pool.lock);
        read_buffer(number);
        pthread_mutex_lock(&pool.lock);
        pool.reading = 0;
        pool.place[number] = FREE;
        pool.stack[pool.free++] = (uint16_t)number;
        if (!pool.waiting)
            pthread_cond_broadcast(&pool.settled);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

/* CUPTI wants one to subscribe: a subscription is asked for only to learn whether somebody else holds it. */
void kc_subscriber(void *data, int domain, uint32_t callback, const void *arguments)
{
    (void)data, (void)domain, (void)callback, (void)arguments;
}

/* In a forked child the reader thread does not exist and a lock may stay locked for ever: return at once. */
static void forked(void)
{
    atomic_store(&open_now, 0);
    atomic_store(&alive, 0);
    in_child = 1;
}

static int open_pool(const struct kc_settings *settings)
{
    pthread_condattr_t monotonic;
    size_t bytes = settings->buffer_bytes * settings->buffers;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return ENOMEM;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool.filled, NULL);
    pthread_cond_init(&pool.settled, &monotonic);
    pthread_atfork(NULL, NULL, forked);
    pool.buffer_bytes = settings->buffer_bytes;
    pool.buffers = settings->buffers;
    for (uint64_t number = 0; number < settings->buffers; number++)
        pool.stack[pool.free++] = (uint16_t)(settings->buffers - 1 - number);
    pool.memory = memory;
    atomic_store(&alive, 1);
    return 0;
}

/* All signals are for the program's own threads. */
static int start_reader(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&reader, NULL, read_buffers, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        pthread_setname_np(reader, "kc-cupti");
    return error;
}

/* Takes all memory and starts the reader; 0, or an errno. May follow a kc_close; the pool keeps its first size. */
int kc_open(const struct kc_settings *settings)
{
    if (atomic_load(&open_now))
        return EALREADY;
    if (in_child)
        return ENOTSUP;
    if (settings->buffers < 2 || settings->buffers > MAX_BUFFERS || settings->buffer_bytes < 4096)
        return EINVAL;
    pthread_mutex_lock(&totals_lock);
    int error = totals_open(settings) ? ENOMEM : 0;
    pthread_mutex_unlock(&totals_lock);
    if (!error && !pool.memory)
        error = open_pool(settings);
    if (error)
        return error;
    atomic_store(&never_refuse, settings->never_refuse != 0);
    pthread_mutex_lock(&pool.lock);
    pool.stopping = 0;
    for (uint32_t at = 0; at < pool.free; at++) /* those that came back after the end, unread */
        clear(pool.stack[at]);
    pthread_mutex_unlock(&pool.lock);
    error = start_reader();
    if (!error)
        atomic_store(&open_now, 1);
    return error;
}

/* Reads the filled buffers and stops the reader; buffers that CUPTI still holds are returned later, unread, or never. */
void kc_close(void)
{
    if (!atomic_exchange(&open_now, 0))
        return;
    pthread_mutex_lock(&pool.lock);
    pool.stopping = 1;
    pthread_cond_signal(&pool.filled);
    pthread_mutex_unlock(&pool.lock);
    pthread_join(reader, NULL);
}

/* Waits until all that is filled is read; 0, or ETIMEDOUT. */
int kc_settle(uint32_t timeout_ms)
{
    struct timespec until;
    int error = 0;
    if (!atomic_load(&open_now))
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nanoseconds = (uint64_t)until.tv_nsec + timeout_ms % 1000 * UINT64_C(1000000);
    until.tv_sec += (time_t)(timeout_ms / 1000 + nanoseconds / 1000000000u);
    until.tv_nsec = (long)(nanoseconds % 1000000000u);
    pthread_mutex_lock(&pool.lock);
    while ((pool.waiting || pool.reading) && !error)
        error = pthread_cond_timedwait(&pool.settled, &pool.lock, &until);
    pthread_mutex_unlock(&pool.lock);
    return error;
}

/* What came since the last call. `final` sums up the devices' time to the end of all that is known. */
int kc_drain(uint64_t now_ns, int final, struct kc_drain *drain)
{
    memset(drain, 0, sizeof *drain);
    if (!atomic_load(&alive))
        return EINVAL;
    pthread_mutex_lock(&totals_lock);
    drain->counts = decoded;
    memset(&decoded, 0, sizeof decoded);
    totals_give(now_ns, final, drain);
    pthread_mutex_unlock(&totals_lock);
    drain->counts.refused_buffers = atomic_exchange(&refused_buffers, 0);
    drain->counts.malformed += atomic_exchange(&foreign_buffers, 0);
    drain->counts.unread += atomic_exchange(&spared_records, 0);
    drain->counts.held_ns = atomic_exchange(&held_ns, 0);
    return 0;
}

/* The buckets of some durations, for the test against Python's own. */
void kc_buckets(const int64_t *durations_ns, size_t count, int32_t *indices)
{
    for (size_t at = 0; at < count; at++)
        indices[at] = KC_LOWEST + durations_position((uint64_t)durations_ns[at]);
}
