use super::*;

#[test]
fn disks_of_targets_are_called_as_their_drivers() {
    let targets = [
        "ufs,size=64M",
        "ahci,size=64M",
        "nvme,size=64M",
        "ahci,kind=cd,size=64M",
        "emmc,size=64M",
        "emmc,size=64M,partition=boot1",
        "emmc,size=64M,gp=8M,partition=gp1",
        "ahci,size=64M",
    ];
    let targets = targets.map(|text| text.parse().unwrap());
    let session = Session::open(&Disks { targets: &targets, ..Disks::default() }, false);
    let graph = session.unwrap_or_else(|_| panic!("all of them open")).graph;
    let disks = graph.objects().geoms_of("DISK").map(|(_, geom)| geom.name.clone());
    let disks: Vec<String> = disks.collect();
    let names = ["da0", "ada0", "nda0", "cd0", "sdda0", "sdda1boot1", "sdda2gp0", "ada1"];
    assert_eq!(disks, names);
    // Each has the serial number that the command layer knows it by.
    let serial = |name: &str| {
        let found = graph.provider(name).unwrap();
        graph.attribute(found, "GEOM::ident").and_then(|it| it.text())
    };
    for name in names {
        assert!(serial(name).is_some_and(|it| !it.is_empty()), "{name}");
    }
}
