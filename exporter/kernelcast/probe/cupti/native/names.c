#include "names.h"

#include <stdio.h>
#include <string.h>

#include "classes.h"

enum { SLOT_BITS = 14, SLOTS = 1 << SLOT_BITS };

_Static_assert(SLOTS == 4 * KC_NAMES, "a quarter of the slots is in use where all names are");

struct pointer_slot { /* the name behind a pointer when it was last read */
    const char *pointer;
    uint32_t id, buffer;
};

static char text[KC_ARENA_BYTES];
static struct kc_name names[KC_NAMES];
static uint64_t hashes[KC_NAMES];
static uint32_t by_hash[SLOTS];
static struct pointer_slot by_pointer[SLOTS];
static uint32_t count, given, used_bytes, buffer_number;

/* Clears the data of one interval; names keep their numbers for the life of the process. */
int names_open(const char *class_rules)
{
    if (count == 0) {
        names[NO_NAME] = (struct kc_name){0, 0, KC_COMPUTE, NO_NAME};
        names[NO_NAME_COLLECTIVE] = (struct kc_name){0, 0, KC_COLLECTIVE, NO_NAME_COLLECTIVE};
        count = RESERVED_NAMES;
    }
    given = 0;
    return classes_open(class_rules);
}

/* A pointer may point to another name once its module was unloaded, so every buffer compares it again. */
void names_new_buffer(void)
{
    buffer_number++;
}

static uint64_t hash_of(const char *name, size_t length)
{
    uint64_t hash = UINT64_C(1469598103934665603); /* FNV-1a */
    for (size_t at = 0; at < length; at++)
        hash = (hash ^ (uint8_t)name[at]) * UINT64_C(1099511628211);
    return hash;
}

/* The number for launches of a class whose own name is not kept. */
uint32_t names_none(enum kc_class kind)
{
    return kind == KC_COLLECTIVE ? NO_NAME_COLLECTIVE : NO_NAME;
}

static uint32_t admit(const char *name, size_t length, uint64_t hash, uint32_t *slot)
{
    char ending[24] = "";
    size_t kept = length;
    if (length > KC_NAME_BYTES) {
        kept = KC_NAME_BYTES;
        snprintf(ending, sizeof ending, "#%016llx", (unsigned long long)hash);
    }
    size_t tail = strlen(ending);
    enum kc_class kind = class_of(name);
    if (count == KC_NAMES || used_bytes + kept + tail > KC_ARENA_BYTES)
        return names_none(kind);
    memcpy(text + used_bytes, name, kept);
    memcpy(text + used_bytes + kept, ending, tail);
    hashes[count] = hash;
    names[count] = (struct kc_name){used_bytes, (uint32_t)(kept + tail), kind, count};
    used_bytes += (uint32_t)(kept + tail);
    return *slot = count++;
}

static int is_name(uint32_t id, const char *name, size_t length, uint64_t hash)
{
    size_t kept = length < KC_NAME_BYTES ? length : KC_NAME_BYTES;
    return hashes[id] == hash && names[id].length >= kept && memcmp(text + names[id].offset, name, kept) == 0;
}

static uint32_t find(const char *name)
{
    size_t length = strlen(name);
    uint64_t hash = hash_of(name, length);
    uint32_t slot = (uint32_t)(hash % SLOTS);
    while (by_hash[slot]) {
        if (is_name(by_hash[slot], name, length, hash))
            return by_hash[slot];
        slot = (slot + 1) % SLOTS;
    }
    return admit(name, length, hash, &by_hash[slot]);
}

/* Whether a pointer still points to a name; a truncated name is looked up by its hash instead. */
static int still(uint32_t id, const char *name)
{
    size_t length = strlen(name);
    return length <= KC_NAME_BYTES && length == names[id].length && memcmp(text + names[id].offset, name, length) == 0;
}

uint32_t names_id(const char *name)
{
    if (!name || !*name)
        return NO_NAME;
    uintptr_t address = (uintptr_t)name;
    struct pointer_slot *slot = &by_pointer[(address ^ (address >> 13)) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SLOT_BITS)];
    if (slot->pointer == name && slot->buffer == buffer_number)
        return slot->id;
    uint32_t id = slot->pointer == name && still(slot->id, name) ? slot->id : find(name);
    *slot = (struct pointer_slot){name, id, buffer_number};
    return id;
}

enum kc_class names_class(uint32_t id)
{
    return (enum kc_class)names[id].kind;
}

void names_give(struct kc_drain *drain)
{
    drain->names = names + given;
    drain->name_count = count - given;
    drain->text = text;
    given = count;
}
