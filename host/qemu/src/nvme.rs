//! What there is to choose of QEMU's NVMe device, and how QEMU is told.

use crate::error::QemuError;

/// QEMU's NVMe device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeDevice {
    /// Bytes per block, 512 or 4096.
    pub block_size: u32,
    /// MiB of controller memory buffer, a power of two up to 64; 0 is none.
    pub memory_mib: u8,
    /// Bytes of a zone, for namespaces of the zoned command set; 0 for others.
    pub zone_bytes: u64,
    /// Controllers of the subsystem, 1 or 2. The second one is there, and nobody drives it.
    pub controllers: u8,
}

impl NvmeDevice {
    /// One controller with such blocks, and nothing besides.
    pub const fn new(block_size: u32) -> Self {
        Self { block_size, memory_mib: 0, zone_bytes: 0, controllers: 1 }
    }

    pub(crate) fn check(self) -> Result<(), QemuError> {
        let Self { block_size, memory_mib, zone_bytes, controllers } = self;
        let refuse = |text| Err(QemuError::Option(text));
        if !matches!(block_size, 512 | 4096) {
            return refuse(format!("blocks of {block_size} bytes: they must have 512 or 4096"));
        }
        if memory_mib != 0 && !(memory_mib.is_power_of_two() && memory_mib <= 64) {
            let may = "it must have a power of two up to 64";
            return refuse(format!("{memory_mib} MiB of controller memory: {may}"));
        }
        if !zone_bytes.is_multiple_of(4096) {
            return refuse(format!(
                "zones of {zone_bytes} bytes: they must have a multiple of 4096"
            ));
        }
        if !matches!(controllers, 1 | 2) {
            return refuse(format!("{controllers} controllers: there must be 1 or 2"));
        }
        Ok(())
    }

    /// The properties of a controller.
    pub(crate) fn controller(self, queues: u8) -> String {
        let mut words = format!("serial=flysch,max_ioqpairs={}", queues.max(1));
        if self.memory_mib > 0 {
            words += &format!(",cmb_size_mb={}", self.memory_mib);
        }
        if self.controllers > 1 {
            words += ",subsys=sub0";
        }
        words
    }

    /// The namespace of a unit, with the words for its device.
    pub(crate) fn namespace(self, lun: u8) -> String {
        let (nsid, block_size) = (u32::from(lun) + 1, self.block_size);
        let blocks = format!("logical_block_size={block_size},physical_block_size={block_size}");
        let mut words = format!("nvme-ns,bus=host0,drive=lu{lun},nsid={nsid},{blocks}");
        if self.zone_bytes > 0 {
            words += &format!(",zoned=true,zoned.zone_size={}", self.zone_bytes);
        }
        words
    }
}
