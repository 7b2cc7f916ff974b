/* A libcupti that records nothing: it answers our calls, and brings records that a test gives it, on several threads.
 *
 * Records lie one behind another, each as long as `double_layout` says for its kind; as the real library does, threads
 * fill buffers of their own, in the order in which launches were made, and a buffer that is not to be had drops records.
 * It is as strict as cupti_activity.h: one subscriber at a time; no flush before callbacks are registered; a buffer with
 * an incomplete record stays here until a forced flush, or until the record is complete; a buffer that the client said
 * to be zero is looked at; records of kinds that are not enabled are left out, once any was enabled.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_KINDS = 64, MAX_THREADS = 16, MAX_HELD = 64, ATTRIBUTES = 11 };

typedef void (*requested_call)(uint8_t **, size_t *, size_t *);
typedef void (*completed_call)(void *, uint32_t, uint8_t *, size_t, size_t);

static requested_call requested;
static completed_call completed;
static uint32_t version = 130500;
static int answers[8]; /* to the calls below, by number */
static uint32_t lengths[MAX_KINDS];
static int enabled[MAX_KINDS], any_enabled;
static uint64_t now_ns, flushes, forced_flushes, latency;
static size_t dropped;
static int subscribed; /* whether we hold the subscription; its address is the handle */
static int is_another_subscribed;

enum answer { SUBSCRIBE, REGISTER, ENABLE, FLUSH, LATENCY };
enum attribute { ZEROED_OUT = 5 };

/* Sizes and documented defaults of CUpti_ActivityAttribute 0 to 10. */
static const size_t attribute_bytes[ATTRIBUTES] = {8, 8, 8, 8, 8, 1, 8, 8, 1, 1, 8};
static size_t attributes[ATTRIBUTES] = {3200000, 8388608, 250, 25000, 250, 0, 3, 3, 0, 1, 16777216};
static int refused_attributes[ATTRIBUTES];
static size_t late_attributes; /* set while kinds were enabled, but for the one that may be */
static size_t dirty_buffers;

void double_answer(int call, int error) { answers[call] = error; }
void double_version(uint32_t chosen) { version = chosen; }
void double_layout(uint32_t kind, uint32_t length) { lengths[kind] = length; }
void double_clock(uint64_t time_ns) { now_ns = time_ns; }
int double_enabled(uint32_t kind) { return enabled[kind]; }
int double_subscribed(void) { return subscribed; }
uint64_t double_flushes(int forced) { return forced ? forced_flushes : flushes; }
uint64_t double_latency(void) { return latency; }
void double_refuse_attribute(int attribute, int error) { refused_attributes[attribute] = error; }
size_t double_attribute(int attribute) { return attributes[attribute]; }
size_t double_late_attributes(void) { return late_attributes; }
size_t double_dirty_buffers(void) { return dirty_buffers; }

int cuptiGetVersion(uint32_t *found) { *found = version; return 0; }
int cuptiGetTimestamp(uint64_t *found) { *found = now_ns; return 0; }
int cuptiActivityDisable(int kind) { enabled[kind] = 0; return 0; }
int cuptiActivityEnableLatencyTimestamps(uint8_t on) { latency = on; return answers[LATENCY]; }

int cuptiActivityEnable(int kind)
{
    if (answers[ENABLE])
        return answers[ENABLE];
    enabled[kind] = any_enabled = 1;
    return 0;
}

int cuptiSubscribe(void **subscriber, void *call, void *data)
{
    (void)data;
    if (answers[SUBSCRIBE] || !call)
        return answers[SUBSCRIBE] ? answers[SUBSCRIBE] : 1;
    if (subscribed || is_another_subscribed)
        return 39;
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
    if (!first || !second)
        return 1;
    requested = first;
    completed = second;
    return answers[REGISTER];
}

static int is_any_kind_enabled(void)
{
    for (int kind = 0; kind < MAX_KINDS; kind++)
        if (enabled[kind])
            return 1;
    return 0;
}

static int attribute_error(int attribute, const size_t *bytes, const void *value)
{
    if (!bytes || !value || attribute < 0 || attribute >= ATTRIBUTES)
        return 1;
    if (*bytes < attribute_bytes[attribute])
        return 10; /* CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT */
    return refused_attributes[attribute];
}

int cuptiActivitySetAttribute(int attribute, size_t *bytes, void *value)
{
    int error = attribute_error(attribute, bytes, value);
    if (error)
        return error;
    late_attributes += attribute != ZEROED_OUT && is_any_kind_enabled();
    attributes[attribute] = 0;
    memcpy(&attributes[attribute], value, attribute_bytes[attribute]);
    return 0;
}

int cuptiActivityGetAttribute(int attribute, size_t *bytes, void *value)
{
    int error = attribute_error(attribute, bytes, value);
    if (error)
        return error;
    *bytes = attribute_bytes[attribute];
    memcpy(value, &attributes[attribute], *bytes);
    return 0;
}

/* A buffer of the client that registered last; NULL where it has none. */
static uint8_t *take_buffer(size_t *size)
{
    uint8_t *buffer = NULL;
    size_t most = 0;
    requested(&buffer, size, &most);
    if (!buffer)
        return NULL;
    for (size_t at = 0; attributes[ZEROED_OUT] && at < *size; at++)
        if (buffer[at]) {
            dirty_buffers++;
            break;
        }
    if (!attributes[ZEROED_OUT])
        memset(buffer, 0, *size);
    return buffer;
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

/* Buffers that stay here until a flush, each with the times of its last record while this is incomplete. */
static struct {
    uint8_t *buffer, *last;
    size_t size, used;
    uint8_t times[16];
    int is_incomplete;
} held[MAX_HELD];

static int times_at(const uint8_t *record) { return record[0] == 38 || record[0] == 51 ? 8 : 16; }

static void bring_held(int forced)
{
    for (int at = 0; at < MAX_HELD; at++)
        if (held[at].buffer && (forced || !held[at].is_incomplete)) {
            uint8_t *buffer = held[at].buffer;
            held[at].buffer = NULL;
            completed(NULL, 0, buffer, held[at].size, held[at].used);
        }
}

int cuptiActivityFlushAll(uint32_t flag)
{
    flushes++;
    forced_flushes += flag;
    if (!completed)
        return 7;
    pthread_mutex_lock(&pacing.lock);
    bring_home();
    bring_held(flag != 0);
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

static uint32_t kind_of(const uint8_t *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    return kind;
}

static uint32_t length_of(const uint8_t *record)
{
    uint32_t kind = kind_of(record);
    return kind < MAX_KINDS ? lengths[kind] : 0;
}

static int is_recorded(const uint8_t *record) { return !any_enabled || enabled[kind_of(record)]; }

/* Records in a buffer that this thread keeps; the last one has no times until double_finish, where it is incomplete. */
int double_hold(const uint8_t *records, size_t bytes, int is_incomplete)
{
    int place = 0;
    while (place < MAX_HELD && held[place].buffer)
        place++;
    if (place == MAX_HELD || !(held[place].buffer = take_buffer(&held[place].size)) || bytes > held[place].size)
        return -1;
    memcpy(held[place].buffer, records, bytes);
    held[place].used = bytes;
    held[place].is_incomplete = is_incomplete;
    uint8_t *last = held[place].buffer;
    while (last + length_of(last) < held[place].buffer + bytes)
        last += length_of(last);
    held[place].last = last;
    memcpy(held[place].times, last + times_at(last), sizeof held[place].times);
    if (is_incomplete)
        memset(last + times_at(last), 0, sizeof held[place].times);
    return 0;
}

void double_finish(void)
{
    for (int at = 0; at < MAX_HELD; at++)
        if (held[at].buffer && held[at].is_incomplete) {
            memcpy(held[at].last + times_at(held[at].last), held[at].times, sizeof held[at].times);
            held[at].is_incomplete = 0;
        }
}

/* Another client, as Kineto is one: it keeps its subscription, registers its callbacks at each beginning, and gives
 * buffers that are not zero. */
static uint64_t others_records;

static void others_requested(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = 65536;
    *most = 0;
    *buffer = malloc(*size);
    memset(*buffer, 0xaa, *size);
}

static void others_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    for (size_t at = 0; at < valid; at += length_of(buffer + at))
        others_records++;
    free(buffer);
}

void double_another_subscribes(void) { is_another_subscribed = 1; }
void double_another_unsubscribes(void) { is_another_subscribed = 0; }

void double_another_begins(void)
{
    is_another_subscribed = 1;
    cuptiActivityRegisterCallbacks(others_requested, others_completed);
    cuptiActivityEnable(10);
}

void double_another_ends(void)
{
    cuptiActivityDisable(10);
    cuptiActivityFlushAll(1);
}

uint64_t double_others_records(void) { return others_records; }

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
        size_t size = 0, used = 0;
        if (!is_recorded(share->records + at)) {
            at += length_of(share->records + at);
            continue;
        }
        uint8_t *buffer = take_buffer(&size);
        if (!buffer) {
            share->lost++;
            at += length_of(share->records + at);
            continue;
        }
        while (at < share->bytes && used + length_of(share->records + at) <= size) {
            uint32_t length = length_of(share->records + at);
            if (is_recorded(share->records + at)) {
                memcpy(buffer + used, share->records + at, length);
                used += length;
            }
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

/* A record, moved by `shift_ns`. */
static void one_more(const uint8_t *record, uint32_t length, uint64_t shift_ns)
{
    uint64_t time_ns;
    if (pacing.buffer && pacing.used + length > pacing.size)
        bring_home();
    if (!pacing.buffer)
        pacing.buffer = take_buffer(&pacing.size);
    if (!pacing.buffer) {
        dropped++;
        return;
    }
    uint8_t *to = pacing.buffer + pacing.used;
    memcpy(to, record, length);
    for (int at = times_at(record), end = at + 8; at <= end; at += 8) {
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
