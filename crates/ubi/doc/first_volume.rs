use flysch_api::flash::FlashMut;
use flysch_api::volume::{Volume as _, VolumeMut as _};
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, Ubi, UbiDevice, UbiError, find_images};

/// Makes `flash` an empty UBI device (ubiformat) with a volume `env` (ubimkvol), and writes `text`
/// into its first logical erase block, which is replaced as a whole or stays as it was, whenever
/// the power goes. What is read then is what is on the flash.
pub fn first_volume<F: FlashMut>(flash: F, text: &[u8]) -> Result<Vec<u8>, UbiError> {
    let mut device = UbiDevice::format(flash, &FormatOptions::new(7), &DeviceOptions::default())?;
    let id = device.create(&NewVolume::dynamic(b"env", 4))?;
    let unit = device.write_size() as usize;
    let mut volume = device.into_volume(id)?;
    // Whole pages are programmed: what is not needed stays erased.
    let mut pages = text.to_vec();
    pages.resize(text.len().next_multiple_of(unit), 0xFF);
    volume.change(0, &pages)?;
    let flash = volume.into_device().detach()?;

    // Attached for reading: nothing is changed, not even what an unclean stop left behind.
    let image = find_images(&flash, None)[0];
    let ubi = Ubi::attach(&flash, image, &flysch_ubi::AttachOptions::default()).expect("it is UBI");
    let volume = ubi.volume(id).expect("it was made above");
    let mut read = vec![0; text.len()];
    // How many bits had to be corrected; whoever owns the flash may move a block that ages.
    let _corrected = volume.read(0, 0, &mut read)?;
    Ok(read)
}
