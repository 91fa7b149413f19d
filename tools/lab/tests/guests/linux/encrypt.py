"""encrypt.py MOUNT DIRECTORY: gives an empty directory an fscrypt policy (version 2, AES-256)."""
import fcntl
import os
import struct
import sys

ADD_KEY = 0xC0506617
SET_POLICY = 0x800C6613
BY_IDENTIFIER = 2
AES_256_XTS, AES_256_CTS = 1, 4
PAD_32 = 3

mount, directory = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
raw = bytes(range(64))
key = bytearray(struct.pack("<II32xII32x", BY_IDENTIFIER, 0, len(raw), 0) + raw)
fcntl.ioctl(mount, ADD_KEY, key, True)
identifier = bytes(key[8:24])
policy = struct.pack("<BBBBB3x16s", 2, AES_256_XTS, AES_256_CTS, PAD_32, 0, identifier)
fcntl.ioctl(directory, SET_POLICY, policy)
