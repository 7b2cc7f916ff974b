/* A libcupti that records nothing: it answers our calls, and brings records that a test gives it, on several threads.
 *
 * Records lie one behind another, each as long as `double_layout` says for its kind; as the real library does, threads
 * fill buffers of their own, in the order in which launches were made, and a buffer that is not to be had drops records.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_KINDS = 64, MAX_THREADS = 16 };

typedef void (*requested_call)(uint8_t **, size_t *, size_t *);
typedef void (*completed_call)(void *, uint32_t, uint8_t *, size_t, size_t);

static requested_call requested;
static completed_call completed;
static uint32_t version = 130500;
static int answers[8]; /* to the calls below, by number */
static uint32_t lengths[MAX_KINDS];
static int enabled[MAX_KINDS];
static uint64_t now_ns, flushes, forced_flushes, latency;
static size_t dropped;
static int subscribed;

enum answer { SUBSCRIBE, REGISTER, ENABLE, FLUSH, LATENCY };

void double_answer(int call, int error) { answers[call] = error; }
void double_version(uint32_t chosen) { version = chosen; }
void double_layout(uint32_t kind, uint32_t length) { lengths[kind] = length; }
void double_clock(uint64_t time_ns) { now_ns = time_ns; }
int double_enabled(uint32_t kind) { return enabled[kind]; }
int double_subscribed(void) { return subscribed; }
uint64_t double_flushes(int forced) { return forced ? forced_flushes : flushes; }
uint64_t double_latency(void) { return latency; }

int cuptiGetVersion(uint32_t *found) { *found = version; return 0; }
int cuptiGetTimestamp(uint64_t *found) { *found = now_ns; return 0; }
int cuptiActivityEnable(int kind) { if (!answers[ENABLE]) enabled[kind] = 1; return answers[ENABLE]; }
int cuptiActivityDisable(int kind) { enabled[kind] = 0; return 0; }
int cuptiActivityEnableLatencyTimestamps(uint8_t on) { latency = on; return answers[LATENCY]; }

int cuptiSubscribe(void **subscriber, void *call, void *data)
{
    (void)data;
    if (answers[SUBSCRIBE] || !call)
        return answers[SUBSCRIBE] ? answers[SUBSCRIBE] : 1;
    *subscriber = &subscribed;
    subscribed++;
    return 0;
}

int cuptiUnsubscribe(void *subscriber)
{
    if (subscriber != &subscribed)
        return 1;
    subscribed--;
    return 0;
}

int cuptiActivityRegisterCallbacks(requested_call first, completed_call second)
{
    requested = first;
    completed = second;
    return answers[REGISTER];
}

/* The buffer that a paced thread fills; a flush brings it home. */
static struct {
    pthread_mutex_t lock;
    uint8_t *buffer;
    size_t size, used;
    uint64_t brought;
} pacing = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void bring_home(void)
{
    uint8_t *buffer = pacing.buffer;
    size_t used = pacing.used;
    pacing.buffer = NULL;
    pacing.used = 0;
    if (buffer)
        completed(NULL, 0, buffer, pacing.size, used);
}

int cuptiActivityFlushAll(uint32_t flag)
{
    flushes++;
    forced_flushes += flag;
    pthread_mutex_lock(&pacing.lock);
    bring_home();
    pthread_mutex_unlock(&pacing.lock);
    return answers[FLUSH];
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *found)
{
    (void)context, (void)stream;
    *found = dropped;
    dropped = 0;
    return 0;
}

static uint32_t length_of(const uint8_t *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    return kind < MAX_KINDS ? lengths[kind] : 0;
}

/* A walk that goes right for some records, then answers an error, or goes back where the error is 0. */
static int breaking, breaks_after, breaks_with;

void double_break_walk(int on) { breaking = on; }
void double_breaks(int after, int error) { breaks_after = after; breaks_with = error; }

/* 0, or 12 at the end, or 21 where the record is of no known kind. */
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    if (breaking && (*record ? (*record - buffer) / length_of(buffer) + 1 : 0) >= breaks_after) {
        *record = buffer;
        return breaks_with;
    }
    uint8_t *next = *record ? *record + length_of(*record) : buffer;
    if (next + 4 > buffer + valid)
        return 12;
    if (!length_of(next))
        return 21;
    *record = next;
    return 0;
}

/* One that answers records beyond the end, and one that goes backwards. */
int double_beyond(uint8_t *buffer, size_t valid, uint8_t **record)
{
    *record = *record ? buffer + valid : buffer + valid - 8;
    return 0;
}

int double_endless(uint8_t *buffer, size_t valid, uint8_t **record)
{
    (void)valid;
    *record = buffer;
    return 0;
}

struct share {
    const uint8_t *records;
    size_t bytes, lost;
};

static void *launch(void *given)
{
    struct share *share = given;
    size_t at = 0;
    while (at < share->bytes) {
        uint8_t *buffer = NULL;
        size_t size = 0, most = 0, used = 0;
        requested(&buffer, &size, &most);
        if (!buffer) {
            share->lost++;
            at += length_of(share->records + at);
            continue;
        }
        while (at < share->bytes && used + length_of(share->records + at) <= size) {
            uint32_t length = length_of(share->records + at);
            memcpy(buffer + used, share->records + at, length);
            used += length;
            at += length;
        }
        completed(NULL, 0, buffer, size, used);
    }
    return NULL;
}

/* Brings records: stretches of `bytes`, one for each thread. */
int double_bring(const uint8_t *records, const size_t *bytes, int threads)
{
    pthread_t started[MAX_THREADS];
    struct share shares[MAX_THREADS];
    for (int thread = 0; thread < threads; thread++) {
        shares[thread] = (struct share){records, bytes[thread], 0};
        records += bytes[thread];
        if (pthread_create(&started[thread], NULL, launch, &shares[thread]))
            return -1;
    }
    for (int thread = 0; thread < threads; thread++) {
        pthread_join(started[thread], NULL);
        dropped += shares[thread].lost;
    }
    return 0;
}

struct pace {
    const uint8_t *records;
    size_t bytes;
    uint64_t span_ns, batch, batches;
};

/* A record, moved by `shift_ns`; its times are at bytes 16 and 24, those of waits at 8 and 16. */
static void one_more(const uint8_t *record, uint32_t length, uint64_t shift_ns)
{
    uint64_t time_ns;
    if (pacing.buffer && pacing.used + length > pacing.size)
        bring_home();
    if (!pacing.buffer) {
        size_t most;
        requested(&pacing.buffer, &pacing.size, &most);
    }
    if (!pacing.buffer) {
        dropped++;
        return;
    }
    uint8_t *to = pacing.buffer + pacing.used;
    memcpy(to, record, length);
    for (int at = record[0] == 38 ? 8 : 16, end = at + 8; at <= end; at += 8) {
        memcpy(&time_ns, to + at, sizeof time_ns);
        time_ns += shift_ns;
        memcpy(to + at, &time_ns, sizeof time_ns);
    }
    pacing.used += length;
    pacing.brought++;
}

static void *keep_pace(void *given)
{
    struct pace pace = *(struct pace *)given;
    struct timespec next;
    size_t at = 0;
    uint64_t shift_ns = 0;
    free(given);
    pthread_setname_np(pthread_self(), "launches");
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (uint64_t batch = 0; batch < pace.batches; batch++) {
        pthread_mutex_lock(&pacing.lock);
        for (uint64_t record = 0; record < pace.batch; record++) {
            one_more(pace.records + at, length_of(pace.records + at), shift_ns);
            at += length_of(pace.records + at);
            if (at >= pace.bytes) {
                at = 0;
                shift_ns += pace.span_ns;
            }
        }
        pthread_mutex_unlock(&pacing.lock);
        next.tv_nsec += 1000000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    return NULL;
}

/* Brings the records over and over, `batch` of them every millisecond, on a thread of the name `launches`. */
int double_pace(const uint8_t *records, size_t bytes, uint64_t span_ns, uint64_t batch, uint64_t batches)
{
    pthread_t thread;
    struct pace *pace = malloc(sizeof *pace);
    *pace = (struct pace){records, bytes, span_ns, batch, batches};
    return pthread_create(&thread, NULL, keep_pace, pace) || pthread_detach(thread);
}

uint64_t double_brought(void) { return pacing.brought; }

/* Takes buffers and does not bring them back; the last one, or NULL. */
uint8_t *double_take(int count)
{
    uint8_t *buffer = NULL;
    size_t size, most;
    while (count--)
        requested(&buffer, &size, &most);
    return buffer;
}

void double_return(uint8_t *buffer, size_t valid) { completed(NULL, 0, buffer, 0, valid); }
