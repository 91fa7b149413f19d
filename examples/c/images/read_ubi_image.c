/* Reads a file from a UBI image, or lists its contents:
 *
 *   read_ubi_image IMAGE                 every volume and every file
 *   read_ubi_image IMAGE VOLUME FILE     the content of a file
 *   read_ubi_image --version             the version of the library
 *
 * Nothing is mounted, no root is needed, and the image is never written to. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "flysch_images.h"

static flysch_bytes of(const char *text)
{
    return (flysch_bytes){(const uint8_t *)text, strlen(text)};
}

static int failed(const flysch_image_error *error)
{
    fprintf(stderr, "%s", error->text);
    if (error->cause[0])
        fprintf(stderr, " (%s)", error->cause);
    fputc('\n', stderr);
    return 1;
}

/* A line of the list: mode, size, path. */
static bool show(void *context, const flysch_entry *entry)
{
    unsigned *problems = context;
    if (entry->problem) {
        fprintf(stderr, "%.*s: %s\n", (int)entry->name.len, (const char *)entry->name.data,
                entry->problem);
        ++*problems;
    }
    if (entry->stat)
        printf("%06" PRIo32 " %" PRIu64 " /%.*s\n", entry->stat->mode, entry->stat->size,
               (int)entry->name.len, (const char *)entry->name.data);
    return true;
}

/* Every file of a volume. Returns whether all could be read. */
static bool list_files(const flysch_image *image, size_t number)
{
    flysch_image_error error;
    unsigned problems = 0;
    flysch_file *root = flysch_file_open(image, number, FLYSCH_BYTES("/"), &error);
    if (!root || flysch_file_walk(root, show, &problems, &error)) {
        failed(&error);
        ++problems;
    }
    flysch_file_close(root);
    return problems == 0;
}

static int list(const flysch_image *image)
{
    static const char *const formats[] = {"", "", " (raw: no file system)", " (broken)"};
    bool whole = true;
    for (size_t number = 0; number < flysch_image_volumes(image); number++) {
        flysch_image_error error;
        flysch_volume volume;
        if (flysch_image_volume(image, number, &volume, &error))
            return failed(&error);
        printf("volume %.*s%s\n", (int)volume.name.len, (const char *)volume.name.data,
               formats[volume.format]);
        if (volume.format == FLYSCH_FORMAT_UBIFS || volume.format == FLYSCH_FORMAT_JFFS2)
            whole &= list_files(image, number);
    }
    flysch_bytes why;
    for (size_t number = 0; (why = flysch_image_failure(image, number)).data; number++) {
        fprintf(stderr, "%.*s\n", (int)why.len, (const char *)why.data);
        whole = false;
    }
    return !whole;
}

/* The number of the volume with this name, or -1. */
static long named(const flysch_image *image, const char *name)
{
    flysch_volume volume;
    for (size_t number = 0; number < flysch_image_volumes(image); number++)
        if (!flysch_image_volume(image, number, &volume, NULL) &&
            volume.name.len == strlen(name) && !memcmp(volume.name.data, name, volume.name.len))
            return (long)number;
    return -1;
}

static int print(const flysch_file *file)
{
    static uint8_t room[65536];
    flysch_image_error error;
    uint64_t offset = 0;
    for (;;) {
        int64_t read = flysch_file_read(file, offset, (flysch_buffer){room, sizeof room}, &error);
        if (read < 0)
            return failed(&error);
        if (read == 0)
            return 0;
        if (fwrite(room, 1, (size_t)read, stdout) != (size_t)read)
            return 1;
        offset += (uint64_t)read;
    }
}

/* A header of another version may describe other structures. */
static int tell_version(void)
{
    if (strcmp(flysch_images_version(), FLYSCH_IMAGES_VERSION)) {
        fprintf(stderr, "compiled for version " FLYSCH_IMAGES_VERSION ", and linked with %s\n",
                flysch_images_version());
        return 1;
    }
    printf("flysch_images %s\n", flysch_images_version());
    return 0;
}

int main(int count, char **words)
{
    if (count == 2 && !strcmp(words[1], "--version"))
        return tell_version();
    if (count != 2 && count != 4) {
        fprintf(stderr, "usage: read_ubi_image IMAGE [VOLUME FILE]\n");
        return 2;
    }
    flysch_image_error error;
    flysch_image *image = flysch_image_open(of(words[1]), NULL, &error);
    if (!image)
        return failed(&error);
    int result = 1;
    if (count == 2) {
        result = list(image);
    } else {
        long volume = named(image, words[2]);
        flysch_file *file = NULL;
        if (volume < 0)
            fprintf(stderr, "there is no volume `%s` in it\n", words[2]);
        else if (!(file = flysch_file_open(image, (size_t)volume, of(words[3]), &error)))
            failed(&error);
        else
            result = print(file);
        flysch_file_close(file);
    }
    flysch_image_close(image);
    return result;
}
