use super::*;

fn parse(text: &str) -> Result<RigFile, String> {
    let parsed = RigFile::parse(Path::new("dir/r.toml"), text, &["PART", "MIRROR"]);
    parsed.map_err(|error| error.to_string())
}

#[test]
fn a_whole_rig_is_read() {
    let rig = parse(
        "clock = \"virtual\"\ntaste = [\"part\"]\n\
         [[controller]]\nname = \"a\"\ntarget = \"ahci,size=64M\"\ndisks = [\"x\", \"y\"]\n\
         [[controller]]\nname = \"b\"\ntarget = \"ahci\"\ndisks = [\"y\"]\nfaults = \"medium:n1\"\n\
         [[disk]]\nname = \"y\"\nimage = \"y.img\"\nsize = \"8M\"\n\
         [[disk]]\nname = \"z\"\nimage = \"/z.img\"\nsector = 4096\n\
         [[geom]]\nname = \"xp1\"\ncreate = [\n\"part create -s gpt x\",\n\"part add x\"]\n",
    );
    let rig = rig.unwrap();
    let disks: Vec<_> = rig.disks.iter().map(|d| (&d.name[..], d.paths, d.size)).collect();
    assert_eq!(disks, [("y", 2, Some(8 << 20)), ("z", 0, None), ("x", 1, None)]);
    assert_eq!(rig.disks[0].image.as_deref(), Some(Path::new("dir/y.img")));
    assert_eq!(rig.controllers[0].disks, [2, 0]);
    let Target::Ahci(ahci) = &rig.controllers[1].target else { panic!() };
    assert!(ahci.clock == ClockKind::Virtual && ahci.faults != crate::Plan::none());
    assert_eq!(rig.geoms[0].create[1], (24, "part add x".into()));
}

#[test]
fn a_rig_may_have_gates_alone() {
    let text = "[[geom]]\nname = \"far\"\ncreate = \"gate create -n far unix:far.sock\"\n";
    let rig = parse(text).unwrap();
    assert!(rig.disks.is_empty() && rig.geoms.len() == 1);
}

#[test]
fn mistakes_name_file_line_key_cause_and_remedy() {
    let start = "[[controller]]\nname = \"a\"\n";
    for (text, message) in [
        ("x = 1\n", "dir/r.toml: line 1: `x`: a rig has no such key; its keys are clock"),
        ("", "dir/r.toml: line 1: has no disks: name some by [[controller]]"),
        ("[[disk]\n", "dir/r.toml: line 1: "),
        (
            "\n[[disk]]\nname = \"d\"\nsiez = 1\n",
            "line 4: `siez`: [[disk]] has no such key, did you mean `size`?",
        ),
        (
            "[[disk]]\nname = \"d\"\n",
            "line 2: `name`: no controller has this disk; give it an `image`",
        ),
        ("[[disk]]\nname = \"d\"\nsize = \"much\"\n", "line 3: `size`: must be a size such as"),
        ("[[disk]]\nimage = \"d\"\n", "line 1: `name`: is missing"),
        ("[[disk]]\nname = 3\n", "line 2: `name`: must be a text in quotes"),
        ("[disk]\nname = \"d\"\n", "`disk`: is written as [[disk]]"),
        ("clock = \"real\"\n", "line 1: `clock`: must be \"virtual\" or \"hybrid\""),
        ("taste = [\"miror\"]\n", "no class `miror`, did you mean `mirror`?"),
        (
            &format!("{start}target = \"ahcii\"\n"),
            "line 3: `target`: unknown target `ahcii`, did you mean `ahci`?",
        ),
        (
            &format!("{start}target = \"null\"\ndisks=[\"d\"]\n"),
            "line 3: `target`: is not a modelled controller",
        ),
        (&format!("{start}target = \"ahci\"\n"), "line 1: `disks`: is missing"),
        (
            &format!("{start}target = \"ahci\"\ndisks = [\"d\", \"d\"]\n"),
            "line 4: `disks`: names `d` twice",
        ),
        (
            &format!("{start}target = \"emmc\"\ndisks = [\"d\", \"e\"]\n"),
            "has 2 disks; it takes 1 to 1",
        ),
        (
            &format!("{start}target = \"ahci,image=x\"\ndisks = [\"d\"]\n"),
            "give `image` in its [[disk]]",
        ),
        (
            &format!("{start}target = \"ahci\"\ndisks = [\"d\"]\nfaults = \"nonsense:1\"\n"),
            "`faults=nonsense:1`",
        ),
    ] {
        let said = parse(text).unwrap_err();
        assert!(said.contains(message) && !said.contains('\n'), "{text}: {said}");
    }
}

#[test]
fn providers_of_rigs_are_told_from_targets() {
    assert_eq!(RigFile::split("a/b.toml:mirror/gm0"), Some(("a/b.toml", "mirror/gm0")));
    assert_eq!(RigFile::split("b.toml"), Some(("b.toml", "")));
    assert_eq!(RigFile::split("ufs,image=x.img"), None);
}
