/* The UFS and NVMe drivers of Flysch for C.
 *
 * A controller belongs to one thread at a time; different controllers have nothing in common.
 * Pointers are valid where nothing says that they may be NULL. On a machine without an operating
 * system the program provides three functions:
 *
 *   void *flysch_alloc(size_t size, size_t align);   memory, or NULL; never called for a request
 *   void flysch_free(void *memory, size_t size, size_t align);
 *   void flysch_panic(const char *text);             must not return
 *
 * Made by cbindgen from bindings/c-drivers: not to be edited. */

#ifndef FLYSCH_DRIVERS_H
#define FLYSCH_DRIVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Bytes of an error's text, the zero at its end counted.
 */
#define FLYSCH_TEXT_BYTES 160

/**
 * Most bytes of the data of an admin command: a page.
 */
#define FLYSCH_ADMIN_BYTES 4096

/**
 * Most bytes of a descriptor.
 */
#define FLYSCH_DESCRIPTOR_BYTES 256

/**
 * A time that never comes: no deadline.
 */
#define FLYSCH_NEVER UINT64_MAX

/**
 * What happens to controller, link or device of UFS: see flysch_platform.
 */
typedef enum flysch_event {
  /**
   * A step of bring-up; `name` is its name.
   */
  FLYSCH_EVENT_STEP = 0,
  /**
   * DME_LINKSTARTUP.
   */
  FLYSCH_EVENT_LINK_STARTUP = 1,
  /**
   * The link changes its speed; `value` is the gear, with 0x100 added in high speed.
   */
  FLYSCH_EVENT_POWER_MODE = 2,
  /**
   * DME_HIBERNATE_ENTER.
   */
  FLYSCH_EVENT_HIBERNATE_ENTER = 3,
  /**
   * DME_HIBERNATE_EXIT.
   */
  FLYSCH_EVENT_HIBERNATE_EXIT = 4,
  /**
   * START STOP UNIT; `value` is 1 active, 2 sleep, 3 power-down, 4 deep sleep (the command's
   * POWER CONDITION).
   */
  FLYSCH_EVENT_DEVICE_POWER = 5,
  /**
   * The controller is switched off for good.
   */
  FLYSCH_EVENT_SHUTDOWN = 6,
  /**
   * Of a later version of the library.
   */
  FLYSCH_EVENT_OTHER = 7,
} flysch_event;

/**
 * What the controller's clocks shall do.
 */
typedef enum flysch_clocks {
  /**
   * Off: after shutdown, and while the link hibernates on command.
   */
  FLYSCH_CLOCKS_OFF = 0,
  /**
   * On: before anything else is done.
   */
  FLYSCH_CLOCKS_ON = 1,
  /**
   * Slower, after the link got slow: HS-G1 or less.
   */
  FLYSCH_CLOCKS_SLOW = 2,
  /**
   * Faster, before the link gets faster than that.
   */
  FLYSCH_CLOCKS_FAST = 3,
} flysch_clocks;

/**
 * How a call or a request ended. Everything but FLYSCH_OK is below zero.
 */
typedef enum flysch_status {
  /**
   * Well.
   */
  FLYSCH_STATUS_OK = 0,
  /**
   * No room now: poll, then submit the request again.
   */
  FLYSCH_STATUS_FULL = -1,
  /**
   * What was given makes no sense; the error's text says what.
   */
  FLYSCH_STATUS_ARGUMENT = -2,
  /**
   * DMA memory or heap is too small.
   */
  FLYSCH_STATUS_MEMORY = -3,
  /**
   * The controller did not come up; the error's text names the step and the cause.
   */
  FLYSCH_STATUS_CONTROLLER = -4,
  /**
   * There is no such unit, or it is no disk.
   */
  FLYSCH_STATUS_NOT_A_DISK = -5,
  /**
   * All disks that the options allow are in use.
   */
  FLYSCH_STATUS_NO_LANE = -6,
  /**
   * The range is not on the device.
   */
  FLYSCH_STATUS_OUT_OF_RANGE = -7,
  /**
   * Offset or length is no multiple of the block size.
   */
  FLYSCH_STATUS_MISALIGNED = -8,
  /**
   * The data is not where or what the controller takes.
   */
  FLYSCH_STATUS_BAD_DATA = -9,
  /**
   * The device cannot do this.
   */
  FLYSCH_STATUS_UNSUPPORTED = -10,
  /**
   * The unit is write protected.
   */
  FLYSCH_STATUS_WRITE_PROTECTED = -11,
  /**
   * The medium could not be read or written.
   */
  FLYSCH_STATUS_MEDIUM = -12,
  /**
   * The device failed in another way.
   */
  FLYSCH_STATUS_DEVICE = -13,
  /**
   * No answer in time; aborted, and the retries are used up.
   */
  FLYSCH_STATUS_TIMED_OUT = -14,
  /**
   * Lost in a reset, and the retries are used up.
   */
  FLYSCH_STATUS_RESET = -15,
  /**
   * The host controller reported a fault.
   */
  FLYSCH_STATUS_HOST = -16,
  /**
   * The device is gone: recovery failed, or it was shut down.
   */
  FLYSCH_STATUS_GONE = -17,
} flysch_status;

/**
 * Why waiting came back.
 */
typedef enum flysch_wake {
  /**
   * The controller raised its interrupt, or nobody knows.
   */
  FLYSCH_WAKE_INTERRUPT = 0,
  /**
   * The time asked for has come.
   */
  FLYSCH_WAKE_DEADLINE = 1,
} flysch_wake;

/**
 * Which queue design of UFS.
 */
typedef enum flysch_queue {
  /**
   * Multi-circular queues where the controller has them.
   */
  FLYSCH_QUEUE_AUTO = 0,
  /**
   * The single doorbell.
   */
  FLYSCH_QUEUE_SDQ = 1,
  /**
   * Multi-circular queues, or failure.
   */
  FLYSCH_QUEUE_MCQ = 2,
} flysch_queue;

/**
 * What to do.
 */
typedef enum flysch_operation {
  /**
   * Device to memory.
   */
  FLYSCH_OPERATION_READ = 0,
  /**
   * Memory to device.
   */
  FLYSCH_OPERATION_WRITE = 1,
  /**
   * Everything written and completed before is on the medium when this completes.
   */
  FLYSCH_OPERATION_FLUSH = 2,
  /**
   * The content of the range is no longer needed.
   */
  FLYSCH_OPERATION_DELETE = 3,
} flysch_operation;

/**
 * Power modes of a UFS device.
 */
typedef enum flysch_power {
  /**
   * It takes commands.
   */
  FLYSCH_POWER_ACTIVE = 1,
  /**
   * UFS-Sleep.
   */
  FLYSCH_POWER_SLEEP = 2,
  /**
   * UFS-PowerDown.
   */
  FLYSCH_POWER_POWER_DOWN = 3,
  /**
   * UFS-DeepSleep: only a reset leads out.
   */
  FLYSCH_POWER_DEEP_SLEEP = 4,
} flysch_power;

/**
 * What a query does.
 */
typedef enum flysch_query_kind {
  /**
   * Reads a descriptor.
   */
  FLYSCH_QUERY_KIND_READ_DESCRIPTOR = 0,
  /**
   * Reads an attribute.
   */
  FLYSCH_QUERY_KIND_READ_ATTRIBUTE = 1,
  /**
   * Writes an attribute.
   */
  FLYSCH_QUERY_KIND_WRITE_ATTRIBUTE = 2,
  /**
   * Reads a flag: 0 or 1.
   */
  FLYSCH_QUERY_KIND_READ_FLAG = 3,
  /**
   * Sets a flag.
   */
  FLYSCH_QUERY_KIND_SET_FLAG = 4,
  /**
   * Clears a flag.
   */
  FLYSCH_QUERY_KIND_CLEAR_FLAG = 5,
  /**
   * Turns a flag over.
   */
  FLYSCH_QUERY_KIND_TOGGLE_FLAG = 6,
} flysch_query_kind;

/**
 * A controller, up, with its units and the disks in use. It belongs to one thread at a time.
 */
typedef struct flysch_controller flysch_controller;

/**
 * What is wanted of the driver; flysch_default_options fills it in.
 */
typedef struct flysch_options {
  /**
   * Disks that can be used at once: each has a queue, or a part of the doorbell's slots.
   */
  uint8_t disks;
  /**
   * UFS: an enum flysch_queue.
   */
  uint8_t queue;
  /**
   * Commands in flight per disk, 1 to 255.
   */
  uint16_t depth;
  /**
   * Whether completions raise the interrupt; without, the caller polls.
   */
  bool interrupts;
  /**
   * Longest transfer of one command, bytes; longer requests are split.
   */
  uint32_t transfer_max;
} flysch_options;

/**
 * The machine around one controller. Whatever is pointed to, and the functions, stay as they are
 * until flysch_close. All functions are called by whoever calls the library, on his stack.
 */
typedef struct flysch_board {
  /**
   * Handed to every function below.
   */
  void *context;
  /**
   * Reads the 32-bit register `offset` bytes into the controller's window. A read outside it
   * gives 0xFFFFFFFF. With the barrier a read of a device register needs before loads (`readl`).
   */
  uint32_t (*read32)(void *context, uint32_t offset);
  /**
   * Writes that register, after all earlier stores (`writel`). A write outside does nothing.
   */
  void (*write32)(void *context, uint32_t offset, uint32_t value);
  /**
   * Nanoseconds by a clock that never goes back.
   */
  uint64_t (*now)(void *context);
  /**
   * Waits for the controller's interrupt or until that time, FLYSCH_NEVER being none. May come
   * back early; who cannot sleep returns FLYSCH_WAKE_INTERRUPT at once.
   */
  int (*wait)(void *context, uint64_t until);
  /**
   * Where caches do not watch the bus: what was stored to these bytes goes to memory (clean).
   * NULL where they do.
   */
  void (*sync_for_device)(void *context, uint64_t address, uint32_t len);
  /**
   * The same in the other direction (invalidate).
   */
  void (*sync_for_cpu)(void *context, uint64_t address, uint32_t len);
  /**
   * DMA memory for the driver and for data: contiguous, zeroed, aligned to 4096 bytes, used by
   * nobody else. flysch_dma_needed tells how much the driver takes.
   */
  void *memory;
  /**
   * Bytes of it.
   */
  size_t memory_len;
  /**
   * The address by which the controller reaches its first byte (behind an IOMMU: the IOVA).
   */
  uint64_t memory_address;
  /**
   * The controller's PCI vendor and device id, 0 where it is not on PCI: the table of known
   * deviations goes by them.
   */
  uint16_t vendor;
  /**
   * See vendor.
   */
  uint16_t device;
} flysch_board;

/**
 * One DME_SET or DME_PEER_SET.
 */
typedef struct flysch_dme_setting {
  /**
   * The attribute's number.
   */
  uint16_t attribute;
  /**
   * GenSelectorIndex: a transmit lane, 4 + a receive lane, or 0.
   */
  uint16_t selector;
  /**
   * Whether it is the device's end of the link.
   */
  bool peer;
  /**
   * Its value.
   */
  uint32_t value;
} flysch_dme_setting;

/**
 * What the board around a UFS controller does and has to be told. Any function may be NULL.
 */
typedef struct flysch_platform {
  /**
   * Handed to every function below.
   */
  void *context;
  /**
   * Told before (`after` false) and after each event. Answers the microseconds the driver shall
   * wait before it goes on, or a number below zero: then the event has failed.
   */
  int (*notice)(void *context, enum flysch_event event, const char *name, uint32_t value, bool after);
  /**
   * The `n`-th attribute to set at that moment, with rising `n` until it answers false.
   */
  bool (*setting)(void *context,
                  enum flysch_event event,
                  bool after,
                  uint32_t n,
                  struct flysch_dme_setting *setting);
  /**
   * Drives RST_n of the device: true holds it in reset. Answers whether there is such a line.
   */
  bool (*device_reset)(void *context, bool hold);
  /**
   * Switches or scales the controller's clocks and supplies.
   */
  void (*clocks)(void *context, enum flysch_clocks clocks);
  /**
   * bRefClkFreq: 0 19.2, 1 26, 2 38.4, 3 52 MHz; below zero leaves what the device has.
   */
  int reference_clock;
} flysch_platform;

/**
 * Why a call failed. Nothing in it has to be freed.
 */
typedef struct flysch_error {
  /**
   * What to switch on.
   */
  enum flysch_status status;
  /**
   * What to print: one line, ended by a zero, cut where it would be longer.
   */
  char text[FLYSCH_TEXT_BYTES];
} flysch_error;

/**
 * A logical unit of UFS or a namespace of NVMe.
 */
typedef struct flysch_unit {
  /**
   * Its LUN or namespace id.
   */
  uint64_t number;
  /**
   * Bytes per logical block.
   */
  uint32_t block_size;
  /**
   * Logical blocks.
   */
  uint64_t blocks;
  /**
   * Whether it refuses writes.
   */
  bool write_protected;
  /**
   * Whether flysch_delete works.
   */
  bool can_delete;
  /**
   * Vendor, product and revision, or model and firmware; ended by a zero.
   */
  char name[64];
} flysch_unit;

/**
 * One wish to a disk; copied by whoever takes it.
 */
typedef struct flysch_request {
  /**
   * Comes back in the completion.
   */
  uint64_t token;
  /**
   * An enum flysch_operation.
   */
  uint8_t operation;
  /**
   * Write: on the medium, not only in a cache, when it completes.
   */
  bool force_unit_access;
  /**
   * First byte on the disk; a multiple of the block size. 0 for FLYSCH_FLUSH.
   */
  uint64_t offset;
  /**
   * Bytes; a multiple of the block size. 0 for FLYSCH_FLUSH.
   */
  uint64_t length;
  /**
   * Read and write: where the data is, within DMA memory; it stays there until the completion.
   */
  void *data;
} flysch_request;

/**
 * What became of a request.
 */
typedef struct flysch_completion {
  /**
   * The request's.
   */
  uint64_t token;
  /**
   * The disk's, as flysch_attach gave it.
   */
  uint32_t disk;
  /**
   * FLYSCH_OK, or why not.
   */
  enum flysch_status status;
  /**
   * When it was submitted, when the doorbell rang, when its end was seen: the board's time.
   */
  uint64_t accepted;
  /**
   * See accepted.
   */
  uint64_t issued;
  /**
   * See accepted.
   */
  uint64_t seen;
} flysch_completion;

/**
 * A query (JESD220, QUERY REQUEST UPIU).
 */
typedef struct flysch_query {
  /**
   * An enum flysch_query_kind.
   */
  uint8_t kind;
  /**
   * IDN of the descriptor, attribute or flag.
   */
  uint8_t id;
  /**
   * Of which logical unit, string or context; else 0.
   */
  uint8_t index;
  /**
   * Selector; else 0.
   */
  uint8_t selector;
  /**
   * Whether the caller knows that a write cannot be undone: without it such a write is refused.
   */
  bool irreversible;
  /**
   * What is written to an attribute.
   */
  uint64_t value;
} flysch_query;

/**
 * What the device answered.
 */
typedef struct flysch_answer {
  /**
   * An attribute, or a flag as 0 or 1.
   */
  uint64_t value;
  /**
   * Bytes of a descriptor.
   */
  uint16_t len;
  /**
   * The descriptor, big-endian as the device sends it.
   */
  uint8_t bytes[FLYSCH_DESCRIPTOR_BYTES];
} flysch_answer;

/**
 * How the link of UFS runs, or how fast it may become.
 */
typedef struct flysch_link {
  /**
   * High speed, or the low speed that a link starts in. As a limit it says nothing.
   */
  bool high_speed;
  /**
   * Gear. As a limit: the highest of high speed, 1 to 5; 0 stays in low speed.
   */
  uint8_t gear;
  /**
   * Lanes per direction.
   */
  uint8_t lanes;
  /**
   * Rate series: 1 A, 2 B.
   */
  uint8_t series;
  /**
   * Whether it hibernates on command. As a limit it says nothing.
   */
  bool hibernating;
} flysch_link;

/**
 * An admin command of NVMe.
 */
typedef struct flysch_admin {
  /**
   * Opcode.
   */
  uint8_t opcode;
  /**
   * Whether the data goes to the controller, else it comes from there.
   */
  bool to_controller;
  /**
   * NSID.
   */
  uint32_t nsid;
  /**
   * CDW10 to CDW15.
   */
  uint32_t cdw10[6];
  /**
   * The data; any memory, not DMA memory. NULL if there is none.
   */
  void *data;
  /**
   * Bytes of it, FLYSCH_ADMIN_BYTES at most.
   */
  uint32_t len;
  /**
   * How long it may take, milliseconds; 0 is the driver's own limit.
   */
  uint32_t timeout_ms;
  /**
   * Written: DW0 of the completion.
   */
  uint32_t result;
} flysch_admin;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The words for a status; never NULL.
 */
const char *flysch_status_text(int32_t status);

/**
 * The library's version, as `0.1.0`.
 */
const char *flysch_drivers_version(void);

/**
 * Options for one disk, 32 commands deep, with interrupts and transfers of up to 1 MiB.
 */
struct flysch_options flysch_default_options(void);

/**
 * Bytes of DMA memory that the driver itself takes with these options; data comes on top. 0 if
 * the options make no sense.
 *
 * `options` is NULL for the defaults.
 */
size_t flysch_dma_needed(const struct flysch_options *options);

/**
 * Brings a UFS host controller and the device behind it up, and finds its logical units.
 *
 * `options` and `platform` may be NULL. NULL if it fails: then `error`, if it is not NULL, says
 * why. What is opened is closed by flysch_close.
 */
struct flysch_controller *flysch_ufs_open(const struct flysch_board *board,
                                          const struct flysch_options *options,
                                          const struct flysch_platform *platform,
                                          struct flysch_error *error);

/**
 * Brings an NVMe controller up and finds its namespaces; otherwise as flysch_ufs_open.
 */
struct flysch_controller *flysch_nvme_open(const struct flysch_board *board,
                                           const struct flysch_options *options,
                                           struct flysch_error *error);

/**
 * Frees a controller, which may be NULL. It is not switched off: see flysch_shutdown. Requests
 * under way are forgotten, so none may be.
 */
void flysch_close(struct flysch_controller *controller);

/**
 * Writes up to `room` units to `units`, which may be NULL if `room` is 0; how many there are.
 */
size_t flysch_units(const struct flysch_controller *controller,
                    struct flysch_unit *units,
                    size_t room);

/**
 * Makes a unit, by its number, a disk. Its number for requests, counted from 0, or an enum
 * flysch_status below zero; then `error`, if it is not NULL, says why.
 */
int32_t flysch_attach(struct flysch_controller *controller,
                      uint64_t unit,
                      struct flysch_error *error);

/**
 * A part of the board's DMA memory for data, aligned to 4096 bytes. NULL if there is none.
 */
void *flysch_dma_alloc(struct flysch_controller *controller, size_t len);

/**
 * Takes back what flysch_dma_alloc gave, of the same length. Whether it had given that.
 */
bool flysch_dma_free(struct flysch_controller *controller, void *place, size_t len);

/**
 * Takes a request for a disk. FLYSCH_OK, FLYSCH_FULL if there is no room now, or why it can
 * never work.
 */
enum flysch_status flysch_submit(struct flysch_controller *controller,
                                 uint32_t disk,
                                 const struct flysch_request *request);

/**
 * Issues what was submitted: once for a batch.
 */
void flysch_ring(struct flysch_controller *controller);

/**
 * The next completion, if there is one. Call until it answers false, after each interrupt and at
 * flysch_poll_at: deadlines and recovery go on in it.
 */
bool flysch_poll(struct flysch_controller *controller, struct flysch_completion *completion);

/**
 * When to poll even if no interrupt comes; FLYSCH_NEVER if nothing is under way.
 */
uint64_t flysch_poll_at(const struct flysch_controller *controller);

/**
 * One request to its end, waiting as the board waits. No other request may be under way.
 */
enum flysch_status flysch_run(struct flysch_controller *controller,
                              uint32_t disk,
                              const struct flysch_request *request);

/**
 * Flushes and stops device and controller, as before power goes. Only flysch_close may follow.
 */
enum flysch_status flysch_shutdown(struct flysch_controller *controller,
                                   struct flysch_error *error);

/**
 * Asks a UFS device, and waits for its answer. Requests may be under way. `query` is not changed;
 * `answer` may be NULL.
 */
enum flysch_status flysch_ufs_query(struct flysch_controller *controller,
                                    const struct flysch_query *query,
                                    struct flysch_answer *answer,
                                    struct flysch_error *error);

/**
 * How the link of UFS runs, in `link`.
 */
enum flysch_status flysch_ufs_link(struct flysch_controller *controller,
                                   struct flysch_link *link,
                                   struct flysch_error *error);

/**
 * Changes gear, lanes and rate of the link of UFS to the highest within `limits`.
 */
enum flysch_status flysch_ufs_set_link(struct flysch_controller *controller,
                                       const struct flysch_link *limits,
                                       struct flysch_error *error);

/**
 * Puts a UFS device into a power mode, an enum flysch_power. No request may be under way.
 */
enum flysch_status flysch_ufs_set_power(struct flysch_controller *controller,
                                        uint8_t power,
                                        struct flysch_error *error);

/**
 * Sends an admin command to an NVMe controller and waits for its end. Those that would take the
 * driver's own queues or events away are refused.
 */
enum flysch_status flysch_nvme_admin(struct flysch_controller *controller,
                                     struct flysch_admin *command,
                                     struct flysch_error *error);

/**
 * IDENTIFY: the structure with this CNS of a namespace, or of the controller where `nsid` is 0,
 * in `data`, which has FLYSCH_ADMIN_BYTES bytes.
 */
enum flysch_status flysch_nvme_identify(struct flysch_controller *controller,
                                        uint8_t cns,
                                        uint32_t nsid,
                                        void *data,
                                        struct flysch_error *error);

/**
 * GET LOG PAGE: the first `len` bytes, a multiple of four and FLYSCH_ADMIN_BYTES at most, of the
 * controller's own log page `id`, in `data`.
 */
enum flysch_status flysch_nvme_log_page(struct flysch_controller *controller,
                                        uint8_t id,
                                        void *data,
                                        uint32_t len,
                                        struct flysch_error *error);

/**
 * GET FEATURES: the present value of a feature, its dword, in `value`.
 */
enum flysch_status flysch_nvme_feature(struct flysch_controller *controller,
                                       uint8_t id,
                                       uint32_t *value,
                                       struct flysch_error *error);

/**
 * SET FEATURES: a feature whose value is one dword.
 */
enum flysch_status flysch_nvme_set_feature(struct flysch_controller *controller,
                                           uint8_t id,
                                           uint32_t value,
                                           struct flysch_error *error);

/**
 * Memory of `size` bytes whose address is a multiple of `align`, or NULL. Called while a
 * controller is opened and a disk is attached, never for a request.
 */
extern void *flysch_alloc(size_t size, size_t align);

/**
 * Takes back what flysch_alloc gave for the same size.
 */
extern void flysch_free(void *memory, size_t size, size_t align);

/**
 * The library found itself in a state that cannot be, and cannot go on. Must not return.
 */
extern void flysch_panic(const char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLYSCH_DRIVERS_H */
