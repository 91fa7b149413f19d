//! From QEMU's hand-over to Rust: PVH entry in 32-bit protected mode, identity mapping of the
//! first 4 GiB, long mode, a stack.
//! The boot protocol is the ELF note XEN_ELFNOTE_PHYS32_ENTRY (18): its value is the physical
//! address of the entry. At entry, paging is off, segments are flat and interrupts are off.

core::arch::global_asm!(
    r#"
.section .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18          /* name length, value length, type */
    .asciz "Xen"
    .long _start

.section .boot, "ax"
.code32
.globl _start
_start:
    cld
    lea     esp, [boot_stack_end]

    /* Four page directories of 512 pages of 2 MiB: address and present, writable, large. */
    lea     edi, [page_directories]
    mov     eax, 0x83
    mov     ecx, 2048
2:  mov     [edi], eax
    mov     dword ptr [edi + 4], 0
    add     eax, 0x200000
    /* The top GiB holds device registers: cache disabled, write through. */
    cmp     ecx, 513
    jne     3f
    or      eax, 0x18
3:  add     edi, 8
    dec     ecx
    jnz     2b

    lea     edi, [page_directory_pointers]
    lea     eax, [page_directories + 3]
    mov     ecx, 4
4:  mov     [edi], eax
    add     eax, 4096
    add     edi, 8
    dec     ecx
    jnz     4b
    lea     eax, [page_directory_pointers + 3]
    mov     [page_map], eax

    mov     eax, cr4
    or      eax, 1 << 5             /* PAE */
    mov     cr4, eax
    lea     eax, [page_map]
    mov     cr3, eax
    mov     ecx, 0xC0000080         /* EFER */
    rdmsr
    or      eax, 1 << 8             /* LME */
    wrmsr
    mov     eax, cr0
    or      eax, 1 << 31            /* PG */
    mov     cr0, eax
    lgdt    [descriptor_table_pointer]
    ljmp    8, offset long_mode

.code64
long_mode:
    mov     eax, 16
    mov     ds, eax
    mov     es, eax
    mov     ss, eax
    lea     rsp, [boot_stack_end]
    xor     ebp, ebp
    call    {start}
5:  hlt
    jmp     5b

.balign 8
descriptor_table:
    .quad 0
    .quad 0x00AF9A000000FFFF        /* code, 64 bit */
    .quad 0x00CF92000000FFFF        /* data */
descriptor_table_pointer:
    .word . - descriptor_table - 1
    .long descriptor_table

.section .bss, "aw", @nobits
.balign 4096
page_map:                   .skip 4096
page_directory_pointers:    .skip 4096
page_directories:           .skip 4 * 4096
boot_stack:                 .skip 256 * 1024
boot_stack_end:
"#,
    start = sym crate::start,
);
