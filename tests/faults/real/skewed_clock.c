/* Moves a process's Unix time by what another process writes to a file: LD_PRELOAD this, with SKEW_FILE naming a file
 * of 8 bytes, the nanoseconds to add. It can change at any moment. The monotonic clock is left alone.
 *
 * Debian's libfaketime 0.9.10 does this, too, but it leaves `cnd_timedwait` alone, so librdkafka spins or hangs under it.
 *
 * A wait with a deadline in Unix time (librdkafka's) is converted when it begins. Deadlines of the monotonic clock,
 * which pass through the same function, are recognised by being small: no machine has been up since 2001.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL
#define LEAST_UNIX_SECONDS 1000000000LL

typedef int (*timed_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

typedef int (*c11_timed_wait)(cnd_t *, mtx_t *, const struct timespec *);

static const volatile int64_t *skew;
static timed_wait real_wait;
static c11_timed_wait real_c11_wait;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SKEW_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *skew, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        skew = mapped;
    if (file >= 0)
        close(file);
    real_wait = (timed_wait)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_wait)
        real_wait = (timed_wait)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real_c11_wait = (c11_timed_wait)dlsym(RTLD_NEXT, "cnd_timedwait");
}

static void move(struct timespec *time, int64_t by_ns) {
    int64_t whole_ns = time->tv_nsec + by_ns % SECOND_NS;
    time->tv_sec += by_ns / SECOND_NS;
    if (whole_ns < 0) {
        whole_ns += SECOND_NS;
        time->tv_sec -= 1;
    }
    time->tv_sec += whole_ns / SECOND_NS;
    time->tv_nsec = whole_ns % SECOND_NS;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && skew && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        move(time, *skew);
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

static struct timespec moved_back(const struct timespec *deadline) {
    struct timespec moved = *deadline;
    if (skew && moved.tv_sec > LEAST_UNIX_SECONDS)
        move(&moved, -*skew);
    return moved;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    struct timespec moved = moved_back(deadline);
    return real_wait(condition, mutex, &moved);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict deadline) {
    struct timespec moved = moved_back(deadline);
    return real_c11_wait(condition, mutex, &moved);
}
