use super::*;

#[test]
fn sizes_are_short() {
    assert_eq!(humanize(4 << 30, 1024), "4.0G");
    assert_eq!(humanize(60_022_480_896, 1024), "56G");
    assert_eq!(humanize(60_022_480_896, 1000), "60G");
    assert_eq!(humanize(512, 1024), "512B");
}

#[test]
fn capacity_has_camcontrols_forms() {
    let none = CapacityForm {
        block: false,
        human: false,
        si: false,
        number: false,
        quiet: false,
        last: false,
        long: false,
    };
    let line = |form: CapacityForm| form.line(117_231_407, 512);
    assert_eq!(line(none), "Last Block: 117231407, Block Length: 512 bytes");
    let number = CapacityForm { number: true, ..none };
    assert_eq!(line(number), "Blocks: 117231408, Block Length: 512 bytes");
    let human = CapacityForm { human: true, ..none };
    assert_eq!(line(human), "Device Size: 56G, Block Length: 512 bytes");
    assert_eq!(line(CapacityForm { quiet: true, last: true, ..none }), "117231407");
    assert_eq!(line(CapacityForm { quiet: true, ..none }), "117231407, 512");
    assert_eq!(line(CapacityForm { block: true, ..none }), "Block Length: 512 bytes");
}
