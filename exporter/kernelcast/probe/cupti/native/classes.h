/* Which kernels are collectives, by the words in their names: the rules of kernelcast.wire.kernels. */
#ifndef KERNELCAST_CLASSES_H
#define KERNELCAST_CLASSES_H

#include "activity.h"

int classes_open(const char *rules);
enum kc_class class_of(const char *name);

#endif
