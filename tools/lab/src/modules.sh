# modules.sh VERSION SERIES: UBI with fastmap, and UBIFS, for the kernel of that version, in /build.
set -e
mkdir /build
cd /build
source=linux-source-$2
tar xf /usr/src/$source.tar.xz --strip-components=1 $source/drivers/mtd/ubi $source/fs/ubifs
mv drivers/mtd/ubi fs/ubifs .
headers=/usr/src/linux-headers-$1
# The headers' configuration has no fastmap: make is told of it, and so is the compiler.
make -C $headers M=/build/ubi CONFIG_MTD_UBI_FASTMAP=y KCFLAGS=-DCONFIG_MTD_UBI_FASTMAP=1 modules
make -C $headers M=/build/ubifs KBUILD_EXTRA_SYMBOLS=/build/ubi/Module.symvers modules
strip --strip-debug ubi/ubi.ko ubifs/ubifs.ko
