/* A fake of NVML, for machines without a GPU: GPUS of them, each busy for PERCENT of the time. */

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;

static int devices[GPUS];

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization *found) {
    found->gpu = PERCENT;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *found) {
    found->used = 3ull << 30;
    return 0;
}
