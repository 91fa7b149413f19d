use super::*;
use UicAttribute::*;

fn up() -> Link {
    let mut link = Link::new(4, 2);
    link.start_up();
    link
}

#[test]
fn attributes_check_id_index_access_and_range() {
    let mut link = up();
    let unknown = UicAttribute::Unknown(0x7777);
    assert_eq!(link.get(false, unknown, 0), Err(UicResult::InvalidMibAttribute));
    assert_eq!(link.get(false, PaTxgear, 1), Err(UicResult::BadIndex));
    assert_eq!(link.get(false, RxHibern8timeCapability, 0), Err(UicResult::BadIndex));
    assert_eq!(link.get(false, RxHibern8timeCapability, 5), Ok(1));
    let read_only = link.set(false, PaConnectedrxdatalanes, 0, 1);
    assert_eq!(read_only, Err(UicResult::ReadOnlyMibAttribute));
    let range = link.set(false, PaGranularity, 0, 7);
    assert_eq!(range, Err(UicResult::InvalidMibAttributeValue));
    link.set(true, PaTactivate, 0, 12).unwrap();
    assert_eq!((link.get(true, PaTactivate, 0), link.get(false, PaTactivate, 0)), (Ok(12), Ok(10)));
    link.lose();
    assert_eq!(link.get(true, PaTactivate, 0), Err(UicResult::PeerCommunicationFailure));
}

fn change(link: &mut Link, gear: u32, lanes: u32, adapt: u32) -> PowerModeStatus {
    for (id, value) in [
        (PaTxgear, gear),
        (PaRxgear, gear),
        (PaActivetxdatalanes, lanes),
        (PaActiverxdatalanes, lanes),
        (PaTxtermination, 1),
        (PaRxtermination, 1),
        (PaHsseries, 2),
        (PaTxhsadapttype, adapt),
    ] {
        link.set(false, id, 0, value).unwrap();
    }
    link.set(false, PaPwrmode, 0, 0x11).unwrap();
    link.change_power_mode(0x11)
}

#[test]
fn the_rate_follows_gear_and_lanes() {
    let mut link = up();
    assert_eq!(link.rate, 900);
    assert_eq!(change(&mut link, 3, 1, 3), PowerModeStatus::Local);
    assert_eq!(link.rate, 583_680);
    assert_eq!(change(&mut link, 4, 2, 1), PowerModeStatus::Local);
    assert_eq!(link.rate, 2_334_720);
    assert_eq!(link.get(true, PaRxgear, 0), Ok(4));
    assert_eq!(change(&mut link, 5, 2, 1), PowerModeStatus::ErrorCap, "beyond the gear");
    assert_eq!(change(&mut link, 4, 4, 1), PowerModeStatus::ErrorCap, "beyond the lanes");
    assert_eq!(link.rate, 2_334_720);
}
