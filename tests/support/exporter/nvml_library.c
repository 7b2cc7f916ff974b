/* A libnvidia-ml.so.1 of GPUs that answer at once: nvidia-ml-py runs on it as on the driver's own, so that a measurement
 * has the exporter's cost and not that of a double in Python. KERNELCAST_TEST_GPUS has the number of GPUs. Every GPU has
 * four processes, GPM, no MIG and no NVLink. Structures: nvml.h of CUDA 13.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
enum { MAX_GPUS = 64, PROCESSES = 4, UNSIGNED_LONG_LONG = 3 };

typedef struct { unsigned index; } Gpu;
typedef struct { int64_t at_ms; } GpmSample;

static Gpu gpus[MAX_GPUS];

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A value that moves from second to second and differs between GPUs. */
static unsigned moving(const Gpu *gpu, unsigned below)
{
    return (unsigned)(now_ms() / 1000 * 7919 + gpu->index * 31) % below;
}

static unsigned count(void)
{
    const char *text = getenv("KERNELCAST_TEST_GPUS");
    unsigned number = text ? (unsigned)atoi(text) : 8;
    return number < MAX_GPUS ? number : MAX_GPUS;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the double"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "590.48.01"); return OK; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { snprintf(text, size, "13.590.48.01"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *number) { *number = count(); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu)
{
    if (index >= count())
        return INVALID;
    gpus[index].index = index;
    *gpu = &gpus[index];
    return OK;
}

int nvmlDeviceGetIndex(const Gpu *gpu, unsigned *index) { *index = gpu->index; return OK; }
int nvmlDeviceGetMinorNumber(const Gpu *gpu, unsigned *minor) { *minor = gpu->index; return OK; }

int nvmlDeviceGetUUID(const Gpu *gpu, char *text, unsigned size)
{
    snprintf(text, size, "GPU-%08x-0000-0000-0000-000000000000", gpu->index);
    return OK;
}

int nvmlDeviceGetName(const Gpu *gpu, char *text, unsigned size) { (void)gpu; snprintf(text, size, "NVIDIA H200"); return OK; }

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(const Gpu *gpu, PciInfo *info)
{
    memset(info, 0, sizeof *info);
    info->bus = gpu->index;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", gpu->index);
    return OK;
}

int nvmlDeviceGetMigMode(const Gpu *gpu, unsigned *current, unsigned *pending)
{
    (void)gpu;
    *current = *pending = 0;
    return OK;
}

int nvmlDeviceGetClockInfo(const Gpu *gpu, unsigned kind, unsigned *mhz) { (void)gpu; *mhz = kind == 2 ? 3201 : 1980; return OK; }
int nvmlDeviceGetTemperature(const Gpu *gpu, unsigned sensor, unsigned *celsius) { (void)sensor; *celsius = 40 + moving(gpu, 30); return OK; }
int nvmlDeviceGetTemperatureThreshold(const Gpu *gpu, unsigned kind, unsigned *celsius) { (void)gpu; (void)kind; *celsius = 92; return OK; }
int nvmlDeviceGetPowerUsage(const Gpu *gpu, unsigned *milliwatts) { *milliwatts = 70000 + moving(gpu, 600000); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(const Gpu *gpu, unsigned *milliwatts) { (void)gpu; *milliwatts = 700000; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(const Gpu *gpu, unsigned long long *millijoules)
{
    *millijoules = (unsigned long long)now_ms() * 400 + gpu->index;
    return OK;
}
int nvmlDeviceGetPcieReplayCounter(const Gpu *gpu, unsigned *number) { *number = gpu->index; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(const Gpu *gpu, unsigned *value) { (void)gpu; *value = 5; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(const Gpu *gpu, unsigned *value) { (void)gpu; *value = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(const Gpu *gpu, unsigned *value) { (void)gpu; *value = 16; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(const Gpu *gpu, unsigned *value) { (void)gpu; *value = 16; return OK; }
int nvmlDeviceGetPerformanceState(const Gpu *gpu, unsigned *state) { (void)gpu; *state = 0; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(const Gpu *gpu, unsigned long long *mask) { *mask = moving(gpu, 2) * 4; return OK; }

int nvmlDeviceGetUtilizationRates(const Gpu *gpu, unsigned rates[2])
{
    rates[0] = moving(gpu, 100);
    rates[1] = moving(gpu, 90);
    return OK;
}

static int share(const Gpu *gpu, unsigned *percent, unsigned *microseconds)
{
    *percent = moving(gpu, 10);
    *microseconds = 16000;
    return OK;
}

int nvmlDeviceGetEncoderUtilization(const Gpu *gpu, unsigned *percent, unsigned *period) { return share(gpu, percent, period); }
int nvmlDeviceGetDecoderUtilization(const Gpu *gpu, unsigned *percent, unsigned *period) { return share(gpu, percent, period); }

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory;

int nvmlDeviceGetMemoryInfo_v2(const Gpu *gpu, Memory *memory)
{
    memory->total = 141ULL << 30;
    memory->reserved = 600ULL << 20;
    memory->used = (1ULL + moving(gpu, 100)) << 30;
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}

int nvmlDeviceGetRemappedRows(const Gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    (void)gpu;
    *corrected = *uncorrected = *pending = *failed = 0;
    return OK;
}

typedef struct {
    int supported;
    unsigned number;
} Licences; /* the features that follow are not read where there are none */

int nvmlDeviceGetGridLicensableFeatures_v4(const Gpu *gpu, Licences *licences)
{
    (void)gpu;
    licences->supported = 0;
    licences->number = 0;
    return OK;
}

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    int type, result;
    unsigned long long value;
} FieldValue;

int nvmlDeviceGetFieldValues(const Gpu *gpu, int number, FieldValue *values)
{
    for (int at = 0; at < number; at++) {
        int known = values[at].field == 82 || values[at].field == 230; /* memory's temperature, recovery action */
        values[at].type = UNSIGNED_LONG_LONG;
        values[at].result = known ? OK : NOT_SUPPORTED;
        values[at].value = values[at].field == 82 ? 45 + moving(gpu, 30) : 0;
    }
    return OK;
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

int nvmlDeviceGetComputeRunningProcesses_v3(const Gpu *gpu, unsigned *number, ProcessInfo *infos)
{
    unsigned room = *number;
    *number = PROCESSES;
    if (room < PROCESSES)
        return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < PROCESSES; at++) {
        infos[at].pid = 4000000 + gpu->index * PROCESSES + at;
        infos[at].memory = (1ULL + moving(gpu, 20)) << 30;
        infos[at].gpu_instance = infos[at].compute_instance = UINT32_MAX;
    }
    return OK;
}

static int none(unsigned *number) { *number = 0; return OK; }

int nvmlDeviceGetGraphicsRunningProcesses_v3(const Gpu *gpu, unsigned *number, ProcessInfo *infos) { (void)gpu; (void)infos; return none(number); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(const Gpu *gpu, unsigned *number, ProcessInfo *infos) { (void)gpu; (void)infos; return none(number); }

typedef struct {
    unsigned pid;
    unsigned long long timestamp;
    unsigned sm, memory, encoder, decoder;
} ProcessUse;

int nvmlDeviceGetProcessUtilization(const Gpu *gpu, ProcessUse *uses, unsigned *number, unsigned long long since)
{
    unsigned room = *number;
    (void)since;
    *number = PROCESSES;
    if (!uses || room < PROCESSES)
        return INSUFFICIENT_SIZE;
    memset(uses, 0, PROCESSES * sizeof *uses);
    for (unsigned at = 0; at < PROCESSES; at++) {
        uses[at].pid = 4000000 + gpu->index * PROCESSES + at;
        uses[at].timestamp = (unsigned long long)now_ms() * 1000;
        uses[at].sm = moving(gpu, 25);
    }
    return OK;
}

typedef struct {
    unsigned version, supported;
} GpmSupport;

int nvmlGpmQueryDeviceSupport(const Gpu *gpu, GpmSupport *support) { (void)gpu; support->supported = 1; return OK; }

int nvmlGpmSampleAlloc(GpmSample **sample)
{
    *sample = calloc(1, sizeof **sample);
    return *sample ? OK : INVALID;
}

int nvmlGpmSampleFree(GpmSample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(const Gpu *gpu, GpmSample *sample) { (void)gpu; sample->at_ms = now_ms(); return OK; }

typedef struct {
    unsigned id;
    int result;
    double value;
    const char *short_name, *long_name, *unit;
} GpmMetric;

typedef struct {
    unsigned version, number;
    GpmSample *before, *now;
    GpmMetric metrics[];
} GpmMetrics;

int nvmlGpmMetricsGet(GpmMetrics *asked)
{
    for (unsigned at = 0; at < asked->number; at++) {
        asked->metrics[at].result = OK;
        asked->metrics[at].value = (double)((asked->now->at_ms + asked->metrics[at].id) % 97);
    }
    return OK;
}

int nvmlEventSetCreate(void **set) { *set = gpus; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceGetSupportedEventTypes(const Gpu *gpu, unsigned long long *types) { (void)gpu; *types = 8; return OK; }
int nvmlDeviceRegisterEvents(const Gpu *gpu, unsigned long long types, void *set) { (void)gpu; (void)types; (void)set; return OK; }

int nvmlEventSetWait_v2(void *set, void *data, unsigned milliseconds)
{
    (void)set;
    (void)data;
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
