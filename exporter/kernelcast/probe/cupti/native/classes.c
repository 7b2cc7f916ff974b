#define _GNU_SOURCE
#include "classes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RULES = 128, WORD_BYTES = 64, SHORTEST_NAMESPACE = 10 };

struct rule {
    char first[WORD_BYTES], second[WORD_BYTES];
};

static struct rule collective[RULES], local[RULES];
static int collective_count, local_count;

/* A name in lower case without `_`, and whether a word of the name begins at each place. */
struct words {
    char text[KC_NAME_BYTES + 1], begins[KC_NAME_BYTES + 1];
};

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
 * in front included; 0 where there is none here. In `3c1053_GLOBAL__N__…` the namespace `c10` and the length 53 stand
 * together: the caller copies digits until the longest length that fits begins. */
static size_t generated_namespace(const char *name, int is_first_digit)
{
    size_t digits = strspn(name, "0123456789");
    const char *after = name + digits;
    if (!digits || digits > 5)
        return 0;
    if (strncmp(after, "_GLOBAL__N_", 11) != 0 && strncmp(after, "_INTERNAL_", 10) != 0)
        return 0;
    size_t rest = strlen(after);
    for (const char *from = name; from < after; from++) {
        unsigned long length = strtoul(from, NULL, 10);
        if (length >= SHORTEST_NAMESPACE && length <= rest)
            return from == name ? digits + length : 0;
    }
    return is_first_digit ? digits + strnlen(after, strtoul(name, NULL, 10)) : 0;
}

/* The name's first part, without generated namespaces. */
static void plain_words(struct words *words, const char *name)
{
    size_t used = 0;
    unsigned char before = 0;
    for (const char *from = name; *from && used < KC_NAME_BYTES;) {
        int is_first_digit = from == name || !isdigit((unsigned char)from[-1]);
        size_t skipped = generated_namespace(from, is_first_digit);
        if (skipped) {
            from += skipped;
            continue;
        }
        unsigned char one = (unsigned char)*from++;
        if (one != '_') {
            words->begins[used] = !isalpha(before) || (islower(before) && isupper(one));
            words->text[used++] = (char)tolower(one);
        }
        before = one;
    }
    words->text[used] = 0;
}

static int contains(const struct words *words, const char *word)
{
    const char *place = strstr(words->text, word);
    while (place && *word && !words->begins[place - words->text])
        place = strstr(place + 1, word);
    return place != NULL;
}

static int any_rule(const struct rule *rules, int count, const struct words *words)
{
    for (int rule = 0; rule < count; rule++)
        if (contains(words, rules[rule].first) && contains(words, rules[rule].second))
            return 1;
    return 0;
}

enum kc_class class_of(const char *name)
{
    static struct words words;
    plain_words(&words, name);
    int is_collective = any_rule(collective, collective_count, &words) && !any_rule(local, local_count, &words);
    return is_collective ? KC_COLLECTIVE : KC_COMPUTE;
}
