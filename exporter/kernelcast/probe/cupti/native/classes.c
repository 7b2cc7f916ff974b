#define _GNU_SOURCE
#include "classes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RULES = 128, WORD_BYTES = 64 };

struct rule {
    char first[WORD_BYTES], second[WORD_BYTES];
};

static struct rule collective[RULES], local[RULES];
static int collective_count, local_count;

static int read_word(char *word, const char *from, size_t length)
{
    if (length >= WORD_BYTES)
        return -1;
    memcpy(word, from, length);
    word[length] = 0;
    return 0;
}

static int read_rule(const char *from, size_t length)
{
    int is_local = length && *from == '!';
    int *count = is_local ? &local_count : &collective_count;
    struct rule *rule = is_local ? &local[local_count] : &collective[collective_count];
    const char *between = memchr(from, '&', length);
    if (!between || *count == RULES)
        return -1;
    const char *first = from + is_local, *end = from + length;
    if (read_word(rule->first, first, (size_t)(between - first)) ||
        read_word(rule->second, between + 1, (size_t)(end - between - 1)))
        return -1;
    ++*count;
    return 0;
}

/* -1 where a rule has no `&` or a word that is too long, or there are too many: a rule is never left out in silence. */
int classes_open(const char *rules)
{
    collective_count = local_count = 0;
    while (*rules) {
        size_t length = strcspn(rules, "|");
        if (read_rule(rules, length))
            return -1;
        rules += length + (rules[length] == '|');
    }
    return 0;
}

/* How many characters a namespace takes that the compiler made of the source file's name (`53_GLOBAL__N__…`), its length
 * in front included; 0 where there is none here. */
static size_t generated_namespace(const char *name)
{
    char *after;
    if (!isdigit((unsigned char)*name))
        return 0;
    unsigned long length = strtoul(name, &after, 10);
    if (after - name > 5)
        return 0;
    if (strncmp(after, "_GLOBAL__N_", 11) != 0 && strncmp(after, "_INTERNAL_", 10) != 0)
        return 0;
    return (size_t)(after - name) + strnlen(after, length);
}

/* The name's first part in lower case, without `_` and generated namespaces. */
static void plain_words(char *words, const char *name)
{
    size_t used = 0;
    while (*name && used < KC_NAME_BYTES) {
        size_t skipped = used && isdigit((unsigned char)name[-1]) ? 0 : generated_namespace(name);
        if (skipped) {
            name += skipped;
            continue;
        }
        if (*name != '_')
            words[used++] = (char)tolower((unsigned char)*name);
        name++;
    }
    words[used] = 0;
}

static int any_rule(const struct rule *rules, int count, const char *words)
{
    for (int rule = 0; rule < count; rule++)
        if (strstr(words, rules[rule].first) && strstr(words, rules[rule].second))
            return 1;
    return 0;
}

enum kc_class class_of(const char *name)
{
    static char words[KC_NAME_BYTES + 1];
    plain_words(words, name);
    int is_collective = any_rule(collective, collective_count, words) && !any_rule(local, local_count, words);
    return is_collective ? KC_COLLECTIVE : KC_COMPUTE;
}
