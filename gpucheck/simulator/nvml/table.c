/* machine.txt: read completely, kept until it changes, looked up by key. If it is unusable, the old values remain. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "simulator.h"

struct entry { char *key, *value; };
struct table {
    char *text; /* keys and values point into it */
    struct entry *entries;
    size_t count;
    struct stat seen;
};

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

char *trim(char *text)
{
    char *end;
    while (isspace((unsigned char)*text))
        text++;
    for (end = text + strlen(text); end > text && isspace((unsigned char)end[-1]); end--)
        ;
    *end = '\0';
    return text;
}

static int same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The whole file, NUL-terminated, or NULL: no file, or one that was being written while it was read. */
char *slurp(const char *path, struct stat *seen)
{
    FILE *file = fopen(path, "r");
    struct stat after;
    char *text = NULL;
    if (file == NULL)
        return NULL;
    if (fstat(fileno(file), seen) == 0 && S_ISREG(seen->st_mode) &&
        (text = calloc(1, (size_t)seen->st_size + 1)) != NULL) {
        text[fread(text, 1, (size_t)seen->st_size, file)] = '\0';
        if (fstat(fileno(file), &after) != 0 || !same(seen, &after)) {
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}

static void discard(struct table *table)
{
    if (table != NULL) {
        free(table->entries);
        free(table->text);
        free(table);
    }
}

/* Cut the text into entries. 0, and one line on stderr, at a line that is not an entry. */
static int cut(struct table *table, const char *path)
{
    char *line, *equals, *rest = table->text;
    size_t number = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        number++;
        line = trim(line);
        if (*line == '\0' || *line == '#')
            continue;
        if ((equals = strchr(line, '=')) == NULL) {
            fprintf(stderr, "gpucheck simulator: %s line %zu: no '=' in it\n", path, number);
            return 0;
        }
        *equals = '\0';
        table->entries[table->count].key = trim(line);
        table->entries[table->count++].value = trim(equals + 1);
    }
    return 1;
}

static struct table *parse(const char *path)
{
    struct table *table = calloc(1, sizeof *table);
    size_t lines = 2;
    const char *letter;
    if (table != NULL && (table->text = slurp(path, &table->seen)) != NULL) {
        for (letter = table->text; *letter != '\0'; letter++)
            lines += *letter == '\n';
        table->entries = calloc(lines, sizeof *table->entries);
    }
    if (table == NULL || table->entries == NULL || !cut(table, path)) {
        discard(table);
        return NULL;
    }
    qsort(table->entries, table->count, sizeof *table->entries, by_key);
    if (table_find(table, "gpu.count") == NULL) {
        /* emptied, to be written again: the previous values still apply */
        discard(table);
        return NULL;
    }
    return table;
}

/* `current`, or a new table if the file is another than it came from. Older tables stay: a thread may be reading one. */
const struct table *table_refresh(const char *path, const struct table *current)
{
    struct stat now;
    const struct table *fresh;
    if (stat(path, &now) != 0 || (current != NULL && same(&now, &current->seen)))
        return current;
    fresh = parse(path);
    return fresh == NULL ? current : fresh;
}

const char *table_find(const struct table *table, const char *key)
{
    struct entry wanted = {(char *)key, NULL}, *found;
    if (table->count == 0)
        return NULL;
    found = bsearch(&wanted, table->entries, table->count, sizeof wanted, by_key);
    return found == NULL ? NULL : found->value;
}

/* Seconds since the file was written. */
double table_age(const struct table *table)
{
    struct timespec now;
    double age;
    clock_gettime(CLOCK_REALTIME, &now);
    age = (double)(now.tv_sec - table->seen.st_mtim.tv_sec) +
          (double)(now.tv_nsec - table->seen.st_mtim.tv_nsec) / 1e9;
    return age > 0 ? age : 0;
}

static const char *find(const char *format, va_list arguments)
{
    const char *load = getenv("GPUCHECK_SIMULATOR_LOAD"), *value = NULL;
    char key[192];
    vsnprintf(key, sizeof key - sizeof ".load", format, arguments);
    if (load != NULL && *load != '\0') {
        size_t length = strlen(key);
        memcpy(key + length, ".load", sizeof ".load");
        value = table_find(view, key);
        key[length] = '\0';
    }
    return value != NULL ? value : table_find(view, key);
}

/* The number at the beginning of a value; `rest` is what follows it. UNKNOWN if there is none. */
nvmlReturn_t parse_number(const char *value, unsigned long long *out, const char **rest)
{
    char *end;
    double grown;
    *out = strtoull(value, &end, 0);
    if (end == value)
        return UNKNOWN;
    if (*end == '+') {
        grown = strtod(end + 1, &end) * table_age(view);
        if (grown > 0 && grown < 1e18)
            *out += (unsigned long long)grown;
        end += strncmp(end, "/s", 2) == 0 ? 2 : 0;
    }
    *rest = end;
    return SUCCESS;
}

nvmlReturn_t find_text(const char **out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    *out = find(format, arguments);
    va_end(arguments);
    if (*out == NULL)
        return NOT_SUPPORTED;
    return **out == '!' ? (nvmlReturn_t)strtoul(*out + 1, NULL, 10) : SUCCESS;
}

static nvmlReturn_t to_number(unsigned long long *out, const char *value)
{
    const char *rest;
    if (value == NULL)
        return NOT_SUPPORTED;
    return *value == '!' ? (nvmlReturn_t)strtoul(value + 1, NULL, 10) : parse_number(value, out, &rest);
}

nvmlReturn_t find_number(unsigned long long *out, const char *format, ...)
{
    va_list arguments;
    const char *value;
    va_start(arguments, format);
    value = find(format, arguments);
    va_end(arguments);
    return to_number(out, value);
}

unsigned long long number_or(unsigned long long otherwise, const char *format, ...)
{
    va_list arguments;
    unsigned long long value;
    const char *words;
    va_start(arguments, format);
    words = find(format, arguments);
    va_end(arguments);
    return to_number(&value, words) == SUCCESS ? value : otherwise;
}
