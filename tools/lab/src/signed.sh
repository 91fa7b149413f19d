# signed.sh VERSION SERIES: UBIFS with authentication, for the kernel of that version, in /build,
# and a module that makes the kernel trust a certificate, of /trust.c.
set -e
mkdir -p /build/trust
cd /build
source=linux-source-$2
headers=/usr/src/linux-headers-$1
tar xf /usr/src/$source.tar.xz --strip-components=1 $source/fs/ubifs
mv fs/ubifs .
# The headers' configuration has no authentication: make is told of it, and so is the compiler.
make -C $headers M=/build/ubifs CONFIG_UBIFS_FS_AUTHENTICATION=y \
    KCFLAGS=-DCONFIG_UBIFS_FS_AUTHENTICATION=1 modules
cp /trust.c trust
echo 'obj-m := trust.o' >trust/Makefile
make -C $headers M=/build/trust modules
strip --strip-debug ubifs/ubifs.ko trust/trust.ko
