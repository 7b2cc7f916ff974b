/* Kernels and their launch configurations within one interval. */
#ifndef KERNELCAST_KERNELS_H
#define KERNELCAST_KERNELS_H

#include "activity.h"

int kernels_open(void);
void kernels_launch(const uint8_t *record, uint32_t device, uint32_t name, int timed, struct kc_counts *counts);
uint32_t kernels_give(struct kc_drain *drain, struct kc_bucket *buckets, uint32_t most);

#endif
