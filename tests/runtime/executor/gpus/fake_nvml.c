/* A fake of NVML, for machines without a GPU: three GPUs, of which the last is another container's. */
#include <string.h>

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;

static int devices[4] = {0, 1, 2, 3};

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index > 1) return 4; /* NVML_ERROR_NO_PERMISSION */
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, "GPU-1") == 0) *device = &devices[1];
    else if (strcmp(uuid, "MIG-2") == 0) *device = &devices[2];
    else if (strcmp(uuid, "MIG-3") == 0) *device = &devices[3];
    else return 6; /* NVML_ERROR_NOT_FOUND */
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization *found) {
    int index = *(int *)device;
    if (index == 2) return 3; /* NVML_ERROR_NOT_SUPPORTED, as parts of a GPU answer */
    found->gpu = index ? 90 : 40;
    return 0;
}

typedef struct {
    char legacy_id[16];
    unsigned domain, bus, device, model, subsystem;
    char id[32];
} pci_info;

int nvmlDeviceGetPciInfo_v3(void *device, pci_info *found) {
    found->domain = 0;
    found->bus = 0x3b + *(int *)device;
    found->device = 0;
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned counter, unsigned long long *found) {
    int index = *(int *)device;
    if (index == 2 || kind != 1 || counter != 0) return 3;
    *found = index * 2;
    return 0;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *correctable, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failed) {
    int index = *(int *)device;
    if (index == 3) return 3; /* NVML_ERROR_NOT_SUPPORTED, as older GPUs answer */
    *correctable = 0;
    *uncorrectable = *pending = index == 1;
    *failed = index == 2;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *found) {
    found->used = (*(int *)device + 1) * 1000ull;
    return 0;
}
