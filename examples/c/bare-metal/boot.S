/* From QEMU's hand-over to C: PVH entry in 32-bit protected mode, identity mapping of the first
 * 4 GiB, long mode, a stack. The boot protocol is the ELF note XEN_ELFNOTE_PHYS32_ENTRY (18). */
    .section .note.pvh, "a", @note
    .balign 4
    .long   4, 4, 18                /* name length, value length, type */
    .asciz  "Xen"
    .long   _start

    .section .boot, "ax"
    .code32
    .globl  _start
_start:
    cld
    movl    $boot_stack_end, %esp
    movl    $page_directories, %edi
    movl    $0x83, %eax             /* present, writable, 2 MiB */
    movl    $2048, %ecx
1:  movl    %eax, (%edi)
    movl    $0, 4(%edi)
    addl    $0x200000, %eax
    cmpl    $513, %ecx              /* the top GiB holds device registers: not cached */
    jne     2f
    orl     $0x18, %eax
2:  addl    $8, %edi
    decl    %ecx
    jnz     1b

    movl    $page_directory_pointers, %edi
    movl    $page_directories + 3, %eax
    movl    $4, %ecx
3:  movl    %eax, (%edi)
    addl    $4096, %eax
    addl    $8, %edi
    decl    %ecx
    jnz     3b
    movl    $page_directory_pointers + 3, %eax
    movl    %eax, page_map

    movl    %cr4, %eax
    orl     $(1 << 5), %eax         /* PAE */
    movl    %eax, %cr4
    movl    $page_map, %eax
    movl    %eax, %cr3
    movl    $0xC0000080, %ecx       /* EFER */
    rdmsr
    orl     $(1 << 8), %eax         /* LME */
    wrmsr
    movl    %cr0, %eax
    orl     $(1 << 31), %eax        /* PG */
    movl    %eax, %cr0
    lgdt    descriptor_table_pointer
    ljmp    $8, $long_mode

    .code64
long_mode:
    movl    $16, %eax
    movl    %eax, %ds
    movl    %eax, %es
    movl    %eax, %ss
    movq    $boot_stack_end, %rsp
    xorl    %ebp, %ebp
    call    start
4:  hlt
    jmp     4b

    .balign 8
descriptor_table:
    .quad   0
    .quad   0x00AF9A000000FFFF      /* code, 64 bit */
    .quad   0x00CF92000000FFFF      /* data */
descriptor_table_pointer:
    .word   . - descriptor_table - 1
    .long   descriptor_table

    .section .bss, "aw", @nobits
    .balign 4096
page_map:                   .skip 4096
page_directory_pointers:    .skip 4096
page_directories:           .skip 4 * 4096
boot_stack:                 .skip 256 * 1024
boot_stack_end:

    .section .note.GNU-stack, "", @progbits
