/* Flash images for C: UBI, UBIFS, JFFS2 and raw dumps, opened, walked, read, extracted.
 *
 * What is handed over as flysch_bytes has a length and need not end with a zero. Every pointer is
 * checked for NULL; where NULL means something, it is said. An error may be NULL for whoever does
 * not want to know why. Handles may be closed in any order, and are used by one thread at a time;
 * different handles, also of one image, by different threads. What a function of yours is handed
 * is gone when it returns; it must return, and not leave by longjmp.
 *
 * Made by cbindgen from bindings/c-images: not to be edited. */

#ifndef FLYSCH_IMAGES_H
#define FLYSCH_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A literal, or another array of characters with a zero at its end, as bytes. */
#define FLYSCH_BYTES(text) ((flysch_bytes){(const uint8_t *)(text), sizeof(text) - 1})

/**
 * Bytes of an error's text and of its cause, the zero at the end counted.
 */
#define FLYSCH_IMAGE_TEXT_BYTES 256

/**
 * How a call ended. Everything but FLYSCH_IMAGE_STATUS_OK is below zero.
 */
typedef enum flysch_image_status {
  /**
   * Well.
   */
  FLYSCH_IMAGE_STATUS_OK = 0,
  /**
   * What was given makes no sense; the error's text says what.
   */
  FLYSCH_IMAGE_STATUS_ARGUMENT = -1,
  /**
   * A file of this machine, or the caller's function, failed.
   */
  FLYSCH_IMAGE_STATUS_SYSTEM = -2,
  /**
   * Nothing known is in the image, or not what was said about it.
   */
  FLYSCH_IMAGE_STATUS_UNKNOWN = -3,
  /**
   * The volume is no file system, or one that cannot be opened.
   */
  FLYSCH_IMAGE_STATUS_NO_FILE_SYSTEM = -4,
  /**
   * No such file or directory.
   */
  FLYSCH_IMAGE_STATUS_NOT_FOUND = -5,
  /**
   * A name was looked up in something that is no directory.
   */
  FLYSCH_IMAGE_STATUS_NOT_DIRECTORY = -6,
  /**
   * It is a directory.
   */
  FLYSCH_IMAGE_STATUS_IS_DIRECTORY = -7,
  /**
   * The file is of a kind that cannot be used so: a device has no content, a file leads nowhere.
   */
  FLYSCH_IMAGE_STATUS_KIND = -8,
  /**
   * Too many symbolic links lead to each other.
   */
  FLYSCH_IMAGE_STATUS_LOOP = -9,
  /**
   * The value is longer than the buffer; the error's text says how long.
   */
  FLYSCH_IMAGE_STATUS_SMALL = -10,
  /**
   * What is stored is not what was written.
   */
  FLYSCH_IMAGE_STATUS_DAMAGED = -11,
  /**
   * It is encrypted, and the key is not there.
   */
  FLYSCH_IMAGE_STATUS_ENCRYPTED = -12,
  /**
   * The image has something that is not read.
   */
  FLYSCH_IMAGE_STATUS_UNSUPPORTED = -13,
  /**
   * The caller's function said that it was enough.
   */
  FLYSCH_IMAGE_STATUS_STOPPED = -14,
  /**
   * The library found a mistake of its own. The handle must be closed; others are not concerned.
   */
  FLYSCH_IMAGE_STATUS_INTERNAL = -15,
  /**
   * The file has no such extended attribute.
   */
  FLYSCH_IMAGE_STATUS_NO_ATTRIBUTE = -16,
} flysch_image_status;

/**
 * What a volume holds.
 */
typedef enum flysch_format {
  /**
   * UBIFS.
   */
  FLYSCH_FORMAT_UBIFS = 0,
  /**
   * JFFS2.
   */
  FLYSCH_FORMAT_JFFS2 = 1,
  /**
   * Something that is no file system.
   */
  FLYSCH_FORMAT_RAW = 2,
  /**
   * A file system that cannot be opened.
   */
  FLYSCH_FORMAT_BROKEN = 3,
} flysch_format;

/**
 * A file, directory or whatever else a path led to.
 */
typedef struct flysch_file flysch_file;

/**
 * An image that is open.
 */
typedef struct flysch_image flysch_image;

/**
 * Bytes with a length: a path, a name, an image. No zero stands at their end.
 */
typedef struct flysch_bytes {
  /**
   * The first. May be NULL if there are none.
   */
  const uint8_t *data;
  /**
   * How many.
   */
  size_t len;
} flysch_bytes;

/**
 * Why a call failed. Nothing in it has to be freed.
 */
typedef struct flysch_image_error {
  /**
   * What to switch on.
   */
  enum flysch_image_status status;
  /**
   * What to print: one line, ended by a zero, cut where it would be longer.
   */
  char text[FLYSCH_IMAGE_TEXT_BYTES];
  /**
   * What is behind it, if that is known and not in the text; else it is empty.
   */
  char cause[FLYSCH_IMAGE_TEXT_BYTES];
} flysch_image_error;

/**
 * What stat tells of a file.
 */
typedef struct flysch_stat {
  /**
   * Inode number.
   */
  uint64_t inode;
  /**
   * Length in bytes.
   */
  uint64_t size;
  /**
   * Space used in units of 512 bytes.
   */
  uint64_t blocks;
  /**
   * Kind and permission bits, as st_mode has them.
   */
  uint32_t mode;
  /**
   * Names it has.
   */
  uint32_t links;
  /**
   * User id.
   */
  uint32_t owner;
  /**
   * Group id.
   */
  uint32_t group;
  /**
   * Of a device node.
   */
  uint32_t major;
  /**
   * Of a device node.
   */
  uint32_t minor;
  /**
   * Last read: seconds since 1970, and nanoseconds.
   */
  int64_t accessed;
  /**
   * See accessed.
   */
  uint32_t accessed_ns;
  /**
   * Nanoseconds of the last change of content.
   */
  uint32_t modified_ns;
  /**
   * Last change of content.
   */
  int64_t modified;
  /**
   * Last change of anything.
   */
  int64_t changed;
  /**
   * See changed.
   */
  uint32_t changed_ns;
} flysch_stat;

/**
 * Room for bytes.
 */
typedef struct flysch_buffer {
  /**
   * The first. May be NULL if there is no room.
   */
  uint8_t *data;
  /**
   * How many fit.
   */
  size_t len;
} flysch_buffer;

/**
 * A file met in a directory or on a walk. All of it is gone when the function returns.
 */
typedef struct flysch_entry {
  /**
   * Its name, or on a walk its path from the start on, without a '/' in front; none for the
   * start itself.
   */
  struct flysch_bytes name;
  /**
   * Inode number; 0 of a directory that could not be read to its end.
   */
  uint64_t inode;
  /**
   * Kind: the type bits of st_mode.
   */
  uint32_t kind;
  /**
   * What stat tells of it, on a walk. NULL in a listing and if it cannot be read.
   */
  const struct flysch_stat *stat;
  /**
   * NULL, or what is wrong with it: its stat cannot be read, or not all of its names. The walk
   * goes on.
   */
  const char *problem;
} flysch_entry;

/**
 * Takes files one by one. False ends the listing or walk, with FLYSCH_IMAGE_STATUS_STOPPED.
 */
typedef bool (*flysch_visit)(void *context, const struct flysch_entry *entry);

/**
 * What the caller knows better than detection. All zeroes: nothing.
 */
typedef struct flysch_image_options {
  /**
   * Bytes of an erase block, or 0.
   */
  uint32_t erase_size;
  /**
   * Bytes of a page without its out-of-band bytes, or 0.
   */
  uint32_t page_size;
  /**
   * Out-of-band bytes of a page, or 0.
   */
  uint32_t oob_size;
  /**
   * The image is taken as it is: there are no out-of-band bytes in it.
   */
  bool no_oob;
  /**
   * Bytes to skip at the front.
   */
  uint64_t offset;
  /**
   * Error correction in the out-of-band bytes, such as `bch-8-512`, or no bytes: the names are
   * those of `flysch image --ecc`.
   */
  struct flysch_bytes ecc;
  /**
   * A file with the key of an authenticated UBIFS, or no bytes.
   */
  struct flysch_bytes auth_key;
  /**
   * A file with the master key of encrypted directories (`FILE` or `FILE:DESCRIPTOR`), or no
   * bytes.
   */
  struct flysch_bytes master_key;
} flysch_image_options;

/**
 * An image behind a function.
 */
typedef struct flysch_reader {
  /**
   * Handed to the function.
   */
  void *context;
  /**
   * Bytes of the image.
   */
  uint64_t size;
  /**
   * Writes `len` bytes, from byte `offset` of the image on, to `buffer`; all of them are within
   * `size`. Answers 0, or the number of an error (`errno`). Never called by two threads at once.
   */
  int (*read)(void *context, uint64_t offset, uint8_t *buffer, size_t len);
} flysch_reader;

/**
 * A volume of an image: of UBI, or the one that a bare UBIFS or JFFS2 is.
 */
typedef struct flysch_volume {
  /**
   * Name of the UBI volume, else of its format. There until the image is closed.
   */
  struct flysch_bytes name;
  /**
   * Id of the UBI volume, or below zero.
   */
  int64_t id;
  /**
   * What it holds.
   */
  enum flysch_format format;
  /**
   * Why it cannot be opened, of a broken one. There until the image is closed.
   */
  struct flysch_bytes failure;
} flysch_volume;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The words for a status; never NULL.
 */
const char *flysch_image_status_text(int32_t status);

/**
 * Opens what a path in a volume leads to; symbolic links are followed inside the image. NULL if
 * it leads nowhere. What is opened is closed by flysch_file_close.
 */
struct flysch_file *flysch_file_open(const struct flysch_image *image,
                                     size_t volume,
                                     struct flysch_bytes path,
                                     struct flysch_image_error *error);

/**
 * The same, and a symbolic link at the end is not followed: it is what is opened.
 */
struct flysch_file *flysch_file_open_link(const struct flysch_image *image,
                                          size_t volume,
                                          struct flysch_bytes path,
                                          struct flysch_image_error *error);

/**
 * Closes a file, which may be NULL.
 */
void flysch_file_close(struct flysch_file *file);

/**
 * What stat tells of it, in `stat`.
 */
enum flysch_image_status flysch_file_stat(const struct flysch_file *file,
                                          struct flysch_stat *stat,
                                          struct flysch_image_error *error);

/**
 * Reads content from `offset` on. How many bytes: less than there is room for at the end and
 * before damage alone, 0 behind the end; below zero an enum flysch_image_status.
 */
int64_t flysch_file_read(const struct flysch_file *file,
                         uint64_t offset,
                         struct flysch_buffer buffer,
                         struct flysch_image_error *error);

/**
 * Reads where a symbolic link leads, opened by flysch_file_open_link. How many bytes that is; no
 * zero is written. Below zero an enum flysch_image_status.
 */
int64_t flysch_file_link(const struct flysch_file *file,
                         struct flysch_buffer buffer,
                         struct flysch_image_error *error);

/**
 * Tells the names of the extended attributes, such as `user.comment`, one by one.
 */
enum flysch_image_status flysch_file_xattrs(const struct flysch_file *file,
                                            flysch_visit visit,
                                            void *context,
                                            struct flysch_image_error *error);

/**
 * Reads the value of an extended attribute. How many bytes it has; below zero an enum
 * flysch_image_status.
 */
int64_t flysch_file_xattr(const struct flysch_file *file,
                          struct flysch_bytes name,
                          struct flysch_buffer buffer,
                          struct flysch_image_error *error);

/**
 * Tells the names in a directory, one by one, in no particular order.
 */
enum flysch_image_status flysch_file_list(const struct flysch_file *file,
                                          flysch_visit visit,
                                          void *context,
                                          struct flysch_image_error *error);

/**
 * Tells of a file and of everything below it: directories before what is in them, names in order,
 * links not followed. What cannot be read is told and does not end the walk.
 */
enum flysch_image_status flysch_file_walk(const struct flysch_file *file,
                                          flysch_visit visit,
                                          void *context,
                                          struct flysch_image_error *error);

/**
 * Writes the content of a regular file to the file `to` of this machine, which is there whole or
 * as it was before. How many bytes; below zero an enum flysch_image_status.
 */
int64_t flysch_file_extract(const struct flysch_file *file,
                            struct flysch_bytes to,
                            struct flysch_image_error *error);

/**
 * The library's version, as `0.1.0`.
 */
const char *flysch_images_version(void);

/**
 * Opens the image in a file; NULL if it cannot be opened. `options` may be NULL. Damage is no
 * reason not to open it. What is opened is closed by flysch_image_close.
 */
struct flysch_image *flysch_image_open(struct flysch_bytes file,
                                       const struct flysch_image_options *options,
                                       struct flysch_image_error *error);

/**
 * Opens an image in memory, which stays as it is until the image and its files are closed; it is
 * not copied. Otherwise as flysch_image_open.
 */
struct flysch_image *flysch_image_open_memory(struct flysch_bytes image,
                                              const struct flysch_image_options *options,
                                              struct flysch_image_error *error);

/**
 * Opens an image behind a function of the caller's, which is called until the image and its files
 * are closed. Otherwise as flysch_image_open.
 */
struct flysch_image *flysch_image_open_reader(const struct flysch_reader *reader,
                                              const struct flysch_image_options *options,
                                              struct flysch_image_error *error);

/**
 * Closes an image, which may be NULL. Its files may still be used.
 */
void flysch_image_close(struct flysch_image *image);

/**
 * How many volumes there are; 0 of NULL.
 */
size_t flysch_image_volumes(const struct flysch_image *image);

/**
 * Describes a volume, counted from 0, in `volume`.
 */
enum flysch_image_status flysch_image_volume(const struct flysch_image *image,
                                             size_t number,
                                             struct flysch_volume *volume,
                                             struct flysch_image_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLYSCH_IMAGES_H */
