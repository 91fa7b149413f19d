# iommufd.sh VERSION SERIES: iommufd, and VFIO with files of single devices, for the kernel of that
# version, in /build.
set -e
mkdir -p /build/iommufd
cd /build
source=linux-source-$2
headers=/usr/src/linux-headers-$1
tar xf /usr/src/$source.tar.xz --strip-components=1 $source/drivers/vfio $source/drivers/iommu \
    $source/lib/interval_tree.c
# It includes the IOMMU drivers' header by its place beside it.
cd drivers/iommu/iommufd
# What iommufd needs of the kernel's trees and the kernel was built without goes into the module.
{
    sed -n '/^#include/p' /build/lib/interval_tree.c
    sed -n '/^#ifdef CONFIG_INTERVAL_TREE_SPAN_ITER/,/^#endif/p' /build/lib/interval_tree.c
} >span.c
echo 'iommufd-y += span.o' >>Makefile
# The headers' configuration has neither: make is told of it, and so is the compiler.
words='-DCONFIG_IOMMUFD_MODULE=1 -DCONFIG_VFIO_DEVICE_CDEV=1 -DCONFIG_INTERVAL_TREE_SPAN_ITER=1'
make -C $headers M=/build/drivers/iommu/iommufd CONFIG_IOMMUFD=m KCFLAGS="$words" modules
make -C $headers M=/build/drivers/vfio CONFIG_IOMMUFD=m CONFIG_VFIO_DEVICE_CDEV=y \
    KBUILD_EXTRA_SYMBOLS=/build/drivers/iommu/iommufd/Module.symvers KCFLAGS="$words" modules
for module in drivers/iommu/iommufd/iommufd drivers/vfio/vfio drivers/vfio/vfio_iommu_type1 \
    drivers/vfio/pci/vfio-pci-core drivers/vfio/pci/vfio-pci; do
    name=$(basename $module)
    mkdir -p /build/$name
    mv /build/$module.ko /build/$name
    strip --strip-debug /build/$name/$name.ko
done
