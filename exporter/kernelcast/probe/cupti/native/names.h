/* Kernel names, numbered in the order in which they come, and copied while CUPTI's pointers are valid. */
#ifndef KERNELCAST_NAMES_H
#define KERNELCAST_NAMES_H

#include "activity.h"

/* Launches without a name, and those beyond the limits, by class. */
enum { NO_NAME = 0, NO_NAME_COLLECTIVE = 1, RESERVED_NAMES = 2 };

int names_open(const char *class_rules);
void names_new_buffer(void);
uint32_t names_id(const char *name);
uint32_t names_none(enum kc_class kind);
enum kc_class names_class(uint32_t id);
void names_give(struct kc_drain *drain);

#endif
