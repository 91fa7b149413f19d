/* The UFS and NVMe drivers under a C program without an operating system.
 *
 * Finds a controller on the PCI bus, brings it up, writes both ends of the disk, reads them back,
 * and reports that on the serial line. The tests build and boot it; by hand:
 *
 *   cargo build --release -p flysch-c-drivers --target x86_64-unknown-none
 *   gcc -O2 -ffreestanding -fno-stack-protector -fno-pic -no-pie -mno-red-zone -mgeneral-regs-only \
 *       -nostdlib -static -T examples/bare-metal/layout.ld -I bindings/c-drivers/include \
 *       examples/c/bare-metal/boot.S examples/c/bare-metal/main.c \
 *       target/x86_64-unknown-none/release/libflysch_drivers.a -o flysch-c
 *   FLYSCH_DEVICE=nvme examples/bare-metal/run ./flysch-c
 */
#include "flysch_drivers.h"

#define LENGTH (1u << 20)

/* Ports, the serial line, the debug exit of QEMU. */

static void out8(uint16_t port, uint8_t value) {
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static void out32(uint16_t port, uint32_t value) {
    __asm__ volatile("outl %0, %1" : : "a"(value), "Nd"(port));
}

static uint32_t in32(uint16_t port) {
    uint32_t value;
    __asm__ volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void say(const char *text) {
    while (*text)
        out8(0x3F8, (uint8_t)*text++);
}

static void say_number(uint64_t number, unsigned base) {
    char digits[21];
    unsigned at = sizeof digits;
    digits[--at] = 0;
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number);
    say(digits + at);
}

_Noreturn static void leave(bool passed) {
    say(passed ? "PASS\n" : "FAIL\n");
    out8(0xF4, passed ? 0x10 : 0x11);
    for (;;)
        __asm__ volatile("hlt");
}

_Noreturn static void fail(const char *what, const char *why) {
    say("FAIL: ");
    say(what);
    say(": ");
    say(why);
    say("\n");
    leave(false);
}

/* What the library needs on a machine without an operating system. */

static _Alignas(4096) uint8_t heap[4u << 20];
static size_t heap_used;

void *flysch_alloc(size_t size, size_t align);
void flysch_free(void *memory, size_t size, size_t align);
_Noreturn void flysch_panic(const char *text);

void *flysch_alloc(size_t size, size_t align) {
    size_t at = (heap_used + align - 1) & ~(align - 1);
    if (align > 4096 || at > sizeof heap || size > sizeof heap - at)
        return NULL;
    heap_used = at + size;
    return heap + at;
}

void flysch_free(void *memory, size_t size, size_t align) {
    (void)memory, (void)size, (void)align;
}

_Noreturn void flysch_panic(const char *text) {
    fail("the library", text);
}

/* PCI configuration space through its two ports. */

static uint32_t pci_read(unsigned device, unsigned offset) {
    out32(0xCF8, 0x80000000u | device << 11 | offset);
    return in32(0xCFC);
}

static void pci_write(unsigned device, unsigned offset, uint32_t value) {
    out32(0xCF8, 0x80000000u | device << 11 | offset);
    out32(0xCFC, value);
}

/* The board: registers at their physical address, the time stamp counter, no interrupts. */

struct machine {
    uintptr_t base;
    uint32_t window;
    uint64_t started;
};

static uint64_t ticks(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static uint32_t board_read(void *context, uint32_t offset) {
    const struct machine *machine = context;
    if (offset >= machine->window)
        return UINT32_MAX;
    uint32_t value = *(volatile uint32_t *)(machine->base + offset);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return value;
}

static void board_write(void *context, uint32_t offset, uint32_t value) {
    const struct machine *machine = context;
    if (offset >= machine->window)
        return;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    *(volatile uint32_t *)(machine->base + offset) = value;
}

/* A tick of QEMU's counter under emulation is a nanosecond; elsewhere it is calibrated. */
static uint64_t board_now(void *context) {
    const struct machine *machine = context;
    return ticks() - machine->started;
}

static int board_wait(void *context, uint64_t until) {
    if (until != FLYSCH_NEVER && board_now(context) >= until)
        return FLYSCH_WAKE_DEADLINE;
    __asm__ volatile("pause");
    return FLYSCH_WAKE_INTERRUPT;
}

static _Alignas(4096) uint8_t dma[8u << 20];

static flysch_status run(flysch_controller *controller, flysch_operation operation, uint64_t offset,
                         void *data, uint64_t length) {
    flysch_request request = {
        .operation = (uint8_t)operation, .offset = offset, .length = length, .data = data};
    return flysch_run(controller, 0, &request);
}

static void must(flysch_status status, const char *what) {
    if (status != FLYSCH_STATUS_OK)
        fail(what, flysch_status_text(status));
}

/* FNV-1a over 64-bit words. */
static uint64_t checksum(const uint64_t *words) {
    uint64_t sum = 0xCBF29CE484222325u;
    for (unsigned n = 0; n < LENGTH / 8; n++)
        sum = (sum ^ words[n]) * 0x100000001B3u;
    return sum;
}

static void write_and_read_back(flysch_controller *controller, uint64_t offset, uint64_t *words) {
    uint64_t word = offset ^ 0x9E3779B97F4A7C15u;
    for (unsigned n = 0; n < LENGTH / 8; n++)
        words[n] = word = word * 6364136223846793005u + 1442695040888963407u;
    uint64_t written = checksum(words);
    must(run(controller, FLYSCH_OPERATION_WRITE, offset, words, LENGTH), "write");
    must(run(controller, FLYSCH_OPERATION_FLUSH, 0, NULL, 0), "flush");
    for (unsigned n = 0; n < LENGTH / 8; n++)
        words[n] = 0;
    must(run(controller, FLYSCH_OPERATION_READ, offset, words, LENGTH), "read");
    if (checksum(words) != written)
        fail("read", "what was read is not what was written");
    say("c: ");
    say_number(LENGTH, 10);
    say(" bytes at ");
    say_number(offset, 10);
    say(" written and read back, checksum ");
    say_number(written, 16);
    say("\n");
}

/* The device descriptor: its length, and wSpecVersion at 10h. */
static void tell_of_ufs(flysch_controller *controller) {
    static flysch_answer answer;
    flysch_query query = {.kind = FLYSCH_QUERY_KIND_READ_DESCRIPTOR, .id = 0};
    flysch_error error;
    if (flysch_ufs_query(controller, &query, &answer, &error) != FLYSCH_STATUS_OK)
        fail("device descriptor", error.text);
    say("c: device descriptor of ");
    say_number(answer.len, 10);
    say(" bytes, version ");
    say_number((uint64_t)answer.bytes[0x10] << 8 | answer.bytes[0x11], 16);
    say("\n");
}

/* Identify Controller: NN at 516, the highest namespace id. */
static void tell_of_nvme(flysch_controller *controller) {
    static uint8_t data[FLYSCH_ADMIN_BYTES];
    flysch_error error;
    if (flysch_nvme_identify(controller, 1, 0, data, &error) != FLYSCH_STATUS_OK)
        fail("identify", error.text);
    say("c: identify: up to ");
    say_number((uint64_t)data[516] | (uint64_t)data[517] << 8, 10);
    say(" namespaces\n");
}

void start(void);

void start(void) {
    static const struct {
        uint32_t class;
        const char *name;
    } kinds[] = {{0x010901, "UFS"}, {0x010802, "NVMe"}};
    for (unsigned device = 0; device < 32; device++) {
        uint32_t class = pci_read(device, 8) >> 8;
        unsigned kind = class == kinds[0].class ? 0 : class == kinds[1].class ? 1 : 2;
        if (kind == 2)
            continue;
        /* The address bits of BAR 0 that cannot be set give its length. */
        uint32_t command = pci_read(device, 4), base = pci_read(device, 0x10) & ~0xFu;
        pci_write(device, 4, command & ~2u);
        pci_write(device, 0x10, UINT32_MAX);
        uint32_t window = -(pci_read(device, 0x10) & ~0xFu);
        pci_write(device, 0x10, base);
        pci_write(device, 4, command | 6);

        struct machine machine = {.base = base, .window = window, .started = ticks()};
        flysch_board board = {
            .context = &machine,
            .read32 = board_read,
            .write32 = board_write,
            .now = board_now,
            .wait = board_wait,
            .memory = dma,
            .memory_len = sizeof dma,
            .memory_address = (uintptr_t)dma,
            .vendor = (uint16_t)pci_read(device, 0),
            .device = (uint16_t)(pci_read(device, 0) >> 16),
        };
        flysch_options options = flysch_default_options();
        options.interrupts = false;
        flysch_error error;
        flysch_controller *controller = kind == 0
            ? flysch_ufs_open(&board, &options, NULL, &error)
            : flysch_nvme_open(&board, &options, &error);
        if (!controller)
            fail(kinds[kind].name, error.text);
        flysch_unit unit;
        if (flysch_units(controller, &unit, 1) == 0)
            fail(kinds[kind].name, "no disk");
        if (flysch_attach(controller, unit.number, &error) < 0)
            fail(unit.name, error.text);
        say("c: ");
        say(kinds[kind].name);
        say(" ");
        say(unit.name);
        say(": ");
        say_number(unit.blocks, 10);
        say(" blocks of ");
        say_number(unit.block_size, 10);
        say(" bytes\n");

        if (kind == 0)
            tell_of_ufs(controller);
        else
            tell_of_nvme(controller);
        uint64_t *words = flysch_dma_alloc(controller, LENGTH);
        if (!words)
            fail("memory", "no room for data");
        size_t heap_before = heap_used;
        write_and_read_back(controller, 0, words);
        write_and_read_back(controller, unit.blocks * unit.block_size - LENGTH, words);
        if (heap_used != heap_before)
            fail("heap", "memory was taken for a request");
        if (run(controller, FLYSCH_OPERATION_READ, 1, words, unit.block_size)
            != FLYSCH_STATUS_MISALIGNED)
            fail("read", "byte 1 was taken");
        must(flysch_shutdown(controller, &error), "shutdown");
        flysch_close(controller);
        leave(true);
    }
    fail("PCI", "no UFS or NVMe controller on bus 0");
}
