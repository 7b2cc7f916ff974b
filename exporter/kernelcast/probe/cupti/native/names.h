/* Kernel names, numbered in the order in which they come, and copied while CUPTI's pointers are valid. */
#ifndef KERNELCAST_NAMES_H
#define KERNELCAST_NAMES_H

#include "activity.h"

enum { NO_NAME = 0 }; /* launches without a name, and those beyond the limits */

int names_open(const char *class_rules);
void names_new_buffer(void);
uint32_t names_id(const char *name);
enum kc_class names_class(uint32_t id);
void names_give(struct kc_drain *drain);

#endif
