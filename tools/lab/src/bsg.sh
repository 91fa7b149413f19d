# bsg.sh VERSION SERIES: the UFS drivers with the queries of programs (/dev/bsg/ufs-bsg0), for the
# kernel of that version, in /build.
set -e
mkdir -p /build
cd /build
source=linux-source-$2
headers=/usr/src/linux-headers-$1
tar xf /usr/src/$source.tar.xz --strip-components=1 $source/drivers/ufs
mv drivers/ufs/core ufshcd-core
mkdir ufshcd-pci
mv drivers/ufs/host/ufshcd-pci.c ufshcd-pci
echo 'obj-m := ufshcd-pci.o' >ufshcd-pci/Makefile
# Tracepoints are found beside their file, not where the kernel's sources would be.
sed -i 's,^#define TRACE_INCLUDE_PATH .*,#define TRACE_INCLUDE_PATH .,' ufshcd-core/*trace.h
# The headers' configuration has no BSG: make is told of it, and so is the compiler.
make -C $headers M=/build/ufshcd-core CONFIG_SCSI_UFS_BSG=y \
    KCFLAGS="-DCONFIG_SCSI_UFS_BSG=1 -I/build/ufshcd-core" modules
make -C $headers M=/build/ufshcd-pci KBUILD_EXTRA_SYMBOLS=/build/ufshcd-core/Module.symvers modules
strip --strip-debug ufshcd-core/ufshcd-core.ko ufshcd-pci/ufshcd-pci.ko
