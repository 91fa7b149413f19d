//! Images for tests.

use std::fs;

use flysch_ubi::create::ImageOptions;

use crate::create::{Making, UbiPlan};

/// A UBI image with dynamic volumes: the name of each, the bytes of its content, its size.
pub(crate) fn ubi(peb_size: u32, min_io_size: u32, volumes: &[(&str, usize, u64)]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut ini = String::new();
    for (id, (name, bytes, size)) in volumes.iter().enumerate() {
        let path = folder.path().join(name);
        let content: Vec<u8> = (0..*bytes as u32).map(|at| (at * 7 + at / 251) as u8).collect();
        fs::write(&path, content).unwrap();
        let image = path.display();
        ini += &format!(
            "[{name}]\nmode=ubi\nimage={image}\nvol_id={id}\nvol_type=dynamic\nvol_name={name}\n\
             vol_size={size}\n"
        );
    }
    let options = ImageOptions {
        peb_size,
        min_io_size,
        sub_page_size: None,
        vid_header_offset: None,
        erase_counter: 0,
        image_sequence: 0,
    };
    let plan = UbiPlan::new(("ini", &ini), options, Some(7)).unwrap();
    let mut image = vec![];
    plan.write(&mut image, &Making::default()).unwrap();
    image
}
