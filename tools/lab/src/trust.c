/*
 * Puts a certificate into the keyring of the kernel's builder, which nobody else can add to: for
 * guests that verify what was signed here with the kernel's own code. insmod trust.ko file=DER
 */
#include <linux/key.h>
#include <linux/kernel_read_file.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

static char *file;
module_param(file, charp, 0);

static int __init trust(void)
{
	/* The keyring is a variable that is not exported; a probe tells who knows where it is. */
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *name);
	struct key **keyring;
	void *der = NULL;
	key_ref_t key;
	int size = register_kprobe(&probe);

	if (size)
		return size;
	lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	keyring = (struct key **)lookup("builtin_trusted_keys");
	if (!keyring)
		return -ENOENT;
	size = kernel_read_file_from_path(file, 0, &der, 65536, NULL, READING_X509_CERTIFICATE);
	if (size < 0)
		return size;
	key = key_create_or_update(make_key_ref(*keyring, 1), "asymmetric", NULL, der, size,
				   KEY_POS_VIEW | KEY_POS_READ | KEY_POS_SEARCH | KEY_USR_VIEW,
				   KEY_ALLOC_NOT_IN_QUOTA | KEY_ALLOC_BYPASS_RESTRICTION);
	vfree(der);
	if (IS_ERR(key))
		return PTR_ERR(key);
	key_ref_put(key);
	return 0;
}

static void __exit leave(void)
{
}

module_init(trust);
module_exit(leave);
MODULE_DESCRIPTION("A certificate that the kernel trusts");
MODULE_LICENSE("Dual MIT/GPL");
