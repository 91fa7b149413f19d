/// Bits `high..=low` of a 128-bit register.
const fn bits(register: u128, high: u32, low: u32) -> u32 {
    (register >> low & ((1 << (high - low + 1)) - 1)) as u32
}

/// Card identification (7.2), 128 bits as the specification numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cid {
    /// MID, manufacturer.
    pub manufacturer: u8,
    /// OID: the low eight bits on eMMC, all sixteen on SD.
    pub oem: u16,
    /// PNM: six characters on eMMC, five on SD.
    pub product: [u8; 6],
    /// PRV, two binary coded digits.
    pub revision: u8,
    /// PSN.
    pub serial: u32,
    /// MDT as stored: eMMC month 7:4, year 3:0; SD year 11:4, month 3:0.
    pub date: u16,
}

impl Cid {
    /// The CID of an eMMC device.
    pub const fn parse(register: u128) -> Self {
        let mut product = [0; 6];
        let mut at = 0;
        while at < product.len() {
            product[at] = (register >> (96 - 8 * at)) as u8;
            at += 1;
        }
        Self {
            manufacturer: bits(register, 127, 120) as u8,
            oem: bits(register, 119, 104) as u16,
            product,
            revision: bits(register, 55, 48) as u8,
            serial: bits(register, 47, 16),
            date: bits(register, 15, 8) as u16,
        }
    }

    /// The CID of an SD card: the name is one character shorter and the date four bits longer.
    pub const fn parse_sd(register: u128) -> Self {
        let Self { manufacturer, oem, mut product, .. } = Self::parse(register);
        product[5] = 0;
        Self {
            manufacturer,
            oem,
            product,
            revision: bits(register, 63, 56) as u8,
            serial: bits(register, 55, 24),
            date: bits(register, 19, 8) as u16,
        }
    }

    /// The register of an SD card, without its CRC.
    pub fn emit_sd(&self) -> u128 {
        let [name @ .., _] = self.product;
        let eight = Self { product: [0; 6], revision: 0, serial: 0, date: 0, ..*self }.emit();
        let name = name.iter().fold(0, |all, &byte| all << 8 | u128::from(byte));
        eight
            | name << 64
            | u128::from(self.revision) << 56
            | u128::from(self.serial) << 24
            | u128::from(self.date & 0xFFF) << 8
    }

    /// The register of an eMMC device, without its CRC.
    pub fn emit(&self) -> u128 {
        let mut register = u128::from(self.manufacturer) << 120 | u128::from(self.oem) << 104;
        for (at, &character) in self.product.iter().enumerate() {
            register |= u128::from(character) << (96 - 8 * at);
        }
        register |= u128::from(self.revision) << 48 | u128::from(self.serial) << 16;
        register | u128::from(self.date & 0xFF) << 8 | 1
    }
}

/// The fields of the card-specific data that the driver needs (7.3; SD 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Csd {
    /// CSD_STRUCTURE: 3 on eMMC (the version is in EXT_CSD), 0 or 1 on SD.
    pub structure: u8,
    /// SPEC_VERS: 4 from eMMC 4 on.
    pub version: u8,
    /// TAAC: asynchronous part of the access time, encoded.
    pub taac: u8,
    /// NSAC: its clock-dependent part, in units of 100 clocks.
    pub nsac: u8,
    /// TRAN_SPEED: highest clock before another timing is selected, encoded.
    pub speed: u8,
    /// CCC: command classes.
    pub classes: u16,
    /// READ_BL_LEN: log2 of the block length.
    pub read_block_shift: u8,
    /// C_SIZE; 0xFFF if the size is in EXT_CSD, 22 bits on SD cards.
    pub size: u32,
    /// C_SIZE_MULT.
    pub size_shift: u8,
    /// ERASE_GRP_SIZE.
    pub erase_size: u8,
    /// ERASE_GRP_MULT.
    pub erase_count: u8,
    /// WP_GRP_SIZE.
    pub write_protect_size: u8,
    /// R2W_FACTOR: log2 of the ratio of write time to read time.
    pub write_shift: u8,
    /// PERM_WRITE_PROTECT or TMP_WRITE_PROTECT.
    pub write_protected: bool,
}

impl Csd {
    /// The CSD of an eMMC device, or of an SD card with structure 0.
    pub const fn parse(register: u128) -> Self {
        Self {
            structure: bits(register, 127, 126) as u8,
            version: bits(register, 125, 122) as u8,
            taac: bits(register, 119, 112) as u8,
            nsac: bits(register, 111, 104) as u8,
            speed: bits(register, 103, 96) as u8,
            classes: bits(register, 95, 84) as u16,
            read_block_shift: bits(register, 83, 80) as u8,
            size: bits(register, 73, 62),
            size_shift: bits(register, 49, 47) as u8,
            erase_size: bits(register, 46, 42) as u8,
            erase_count: bits(register, 41, 37) as u8,
            write_protect_size: bits(register, 36, 32) as u8,
            write_shift: bits(register, 28, 26) as u8,
            write_protected: bits(register, 13, 12) != 0,
        }
    }

    /// The CSD of an SD card, of either structure.
    pub const fn parse_sd(register: u128) -> Self {
        let mut csd = Self::parse(register);
        if csd.structure == 1 {
            csd.size = bits(register, 69, 48);
            csd.size_shift = 0;
        }
        csd
    }

    /// The register of an eMMC device, without its CRC.
    pub fn emit(&self) -> u128 {
        let field = |value: u32, low: u32| u128::from(value) << low;
        field(self.structure.into(), 126)
            | field(self.version.into(), 122)
            | field(self.taac.into(), 112)
            | field(self.nsac.into(), 104)
            | field(self.speed.into(), 96)
            | field(self.classes.into(), 84)
            | field(self.read_block_shift.into(), 80)
            | field(self.size & 0xFFF, 62)
            | field(self.size_shift.into(), 47)
            | field(self.erase_size.into(), 42)
            | field(self.erase_count.into(), 37)
            | field(self.write_protect_size.into(), 32)
            | field(self.write_shift.into(), 26)
            | field(self.write_protected.into(), 12)
            | 1
    }

    /// The register of an SD card of either structure, without its CRC. WRITE_BL_LEN is the same as
    /// READ_BL_LEN.
    pub fn emit_sd(&self) -> u128 {
        let register = match self.structure {
            1 => Self { size: 0, size_shift: 0, ..*self }.emit() | u128::from(self.size) << 48,
            _ => self.emit(),
        };
        register | u128::from(self.read_block_shift) << 22
    }

    /// Capacity from C_SIZE, sectors (7.3.12), for devices up to 2 GB, whose EXT_CSD may give none.
    pub fn sectors(&self) -> u64 {
        let shift = u32::from(self.size_shift) + 2 + u32::from(self.read_block_shift);
        (u64::from(self.size) + 1) << shift >> 9
    }

    /// Capacity of an SD card, sectors; structure 1 counts in units of 512 KiB.
    pub fn sd_sectors(&self) -> u64 {
        match self.structure {
            0 => self.sectors(),
            _ => (u64::from(self.size) + 1) << 10,
        }
    }

    /// Sectors of an erase group according to the CSD.
    pub fn erase_group_sectors(&self) -> u32 {
        (u32::from(self.erase_size) + 1) * (u32::from(self.erase_count) + 1)
    }

    /// TAAC, nanoseconds.
    pub fn access_ns(&self) -> u64 {
        const TENTHS: [u64; 16] = [0, 10, 12, 13, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 70, 80];
        let unit = 10_u64.pow((self.taac & 7).into());
        TENTHS[usize::from(self.taac >> 3 & 0xF)] * unit / 10
    }
}
