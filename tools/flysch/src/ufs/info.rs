//! `flysch ufs info`.

use flysch_rig::{Control, size};
use flysch_ufs::Link;
use flysch_wire::ufs::descriptor::{ExtendedFeatures, UfsFeatures};
use serde_json::json;

use super::descriptors::string;
use crate::failure::Failure;
use crate::output::Output;

/// wSpecVersion 0x0310 as 3.1.
pub(super) fn version(bcd: u16) -> String {
    format!("{:x}.{:x}", bcd >> 8, bcd >> 4 & 0xF)
}

/// A link in words.
pub(super) fn link(link: &Link) -> String {
    let lanes = if link.lanes == 1 { "1 lane" } else { "2 lanes" };
    let state = if link.hibernating { ", hibernating" } else { "" };
    let (gear, series) = (link.gear, link.series);
    match link.high_speed {
        true => format!("HS-G{gear}, rate {series:?}, {lanes}{state}"),
        false => format!("PWM-G{gear}, {lanes}{state}"),
    }
}

pub(super) fn run(
    description: &str,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    let device = control.device().descriptor;
    let geometry = control.device().geometry;
    let names = [
        ("manufacturer", device.i_manufacturer_name),
        ("product", device.i_product_name),
        ("revision", device.i_product_revision_level),
        ("serial number", device.i_serial_number),
        ("OEM id", device.i_oem_id),
    ]
    .map(|(name, index)| (name, string(control, index)));
    let controller = control.controller();
    let slots = controller.capabilities.transfer_slots();
    let queues = if controller.is_mcq { "multi-circular queues" } else { "single doorbell" };
    let features = features(device.b_ufs_features_support, device.d_extended_ufs_features_support);
    let capacity = geometry.q_total_raw_device_capacity.saturating_mul(512);
    let date = device.w_manufacture_date;
    if output.json() {
        let strings: serde_json::Map<_, _> =
            names.iter().map(|(name, text)| (name.replace(' ', "_"), json!(text))).collect();
        return output.value(&json!({
            "target": description,
            "strings": strings,
            "specification": version(device.w_spec_version),
            "manufacturer_id": device.w_manufacturer_id,
            "manufacture_date": format!("20{:02x}-{:02x}", date & 0xFF, date >> 8),
            "capacity_bytes": capacity,
            "logical_units": device.b_number_lu,
            "queue_depth": device.b_queue_depth,
            "features": features,
            "host_version": controller.version.to_string(),
            "transfer_slots": slots,
            "queues": queues,
            "link": link(&control.link()),
        }));
    }
    let mut rows = vec![vec!["target".to_owned(), description.to_owned()]];
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    for (name, text) in names {
        row(name, text);
    }
    row("manufacturer id", format!("{:#06x}", device.w_manufacturer_id));
    row("made", format!("20{:02x}-{:02x}", date & 0xFF, date >> 8));
    row("specification", format!("UFS {}", version(device.w_spec_version)));
    row("capacity", size::display(capacity));
    row("logical units", device.b_number_lu.to_string());
    row("queue depth", device.b_queue_depth.to_string());
    row("features", features.join(", "));
    row("host", format!("UFSHCI {}", controller.version));
    row("slots", slots.to_string());
    row("queues", queues.into());
    row("link", link(&control.link()));
    for row in rows {
        output.line(format!("{:<17}{}", row[0], row[1]).trim_end())?;
    }
    Ok(())
}

/// The optional features in words.
fn features(basic: u8, extended: u32) -> Vec<&'static str> {
    let (basic, extended) = (UfsFeatures::from_bits(basic), ExtendedFeatures::from_bits(extended));
    let all = [
        (basic.ffu() | extended.ffu(), "firmware update"),
        (basic.psa() | extended.psa(), "production state awareness"),
        (basic.device_life_span() | extended.device_life_span(), "life span mode"),
        (basic.refresh() | extended.refresh(), "refresh"),
        (basic.too_high_temp() | extended.too_high_temp(), "high temperature event"),
        (basic.too_low_temp() | extended.too_low_temp(), "low temperature event"),
        (extended.write_booster(), "WriteBooster"),
        (extended.performance_throttling(), "throttling event"),
        (extended.advanced_rpmb(), "advanced RPMB"),
        (extended.device_level_exception(), "device level exception"),
        (extended.hid(), "host initiated defragmentation"),
        (extended.ext_iid(), "extended initiator ids"),
    ];
    all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect()
}
