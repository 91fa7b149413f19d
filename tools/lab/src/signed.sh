# signed.sh VERSION SERIES: UBIFS with authentication, for the kernel of that version, in /build.
set -e
mkdir /build
cd /build
source=linux-source-$2
tar xf /usr/src/$source.tar.xz --strip-components=1 $source/fs/ubifs
mv fs/ubifs .
# The headers' configuration has no authentication: make is told of it, and so is the compiler.
make -C /usr/src/linux-headers-$1 M=/build/ubifs CONFIG_UBIFS_FS_AUTHENTICATION=y \
    KCFLAGS=-DCONFIG_UBIFS_FS_AUTHENTICATION=1 modules
strip --strip-debug ubifs/ubifs.ko
