use flysch_linux::disk::Engine;

use super::*;
use flysch_api::crypto::DataUnit;
use flysch_models::ufs::profile::Profile;
use flysch_ufs::policy::{Rules, Scaling};
use flysch_ufs::{Aggregation, LinkLimits, SuspendLevel};

fn refusal(text: &str) -> String {
    text.parse::<Target>().expect_err(text).to_string()
}

#[test]
fn bare_kinds_have_their_defaults() {
    assert_eq!("ufs".parse(), Ok(Target::Ufs(UfsTarget::default())));
    assert_eq!("ufs@qemu".parse(), Ok(Target::UfsQemu(QemuTarget::default())));
    assert_eq!("null".parse(), Ok(Target::Null(NullTarget { size: 1 << 40 })));
}

#[test]
fn every_key_is_read() {
    let text = "ufs,profile=ok3576,size=512M,lus=3,lu=2,image=a.img,mcq=4,esi=off,\
                aggregate=8:400,gear=3,wb=on,auto-hibern8=700,scaling=500,suspend=2000,\
                suspend-level=sleep,block=512,\
                rpmb=advanced,rpmb-key=k.bin,boot=on,\
                crypto=aes-128-xts,crypto-key=c.bin,data-unit=512,\
                clock=virtual,software=linux,faults=timeout:0.1+uic:n5,faults-from=power,seed=7";
    let expected = UfsTarget {
        profile: OK3576,
        size: Some(512 << 20),
        block_size: 512,
        lus: 3,
        lu: 2,
        image: Some("a.img".into()),
        mcq: Some(4),
        event_interrupts: false,
        aggregation: Some(Aggregation { completions: 8, timeout_us: 400 }),
        gear: Some(3),
        write_booster: true,
        auto_hibern8_us: Some(700),
        rules: Rules {
            scaling: Some(Scaling {
                fast: LinkLimits { gear: 3, ..LinkLimits::default() },
                slow_after_us: 500,
                ..Scaling::default()
            }),
            suspend_after_us: Some(2000),
            suspend_level: SuspendLevel::Sleep,
            ..Rules::default()
        },
        advanced_rpmb: true,
        rpmb_key: Some("k.bin".into()),
        crypto: Some(CryptoTarget {
            key_bytes: 32,
            key: Some("c.bin".into()),
            unit: DataUnit::of(512).unwrap(),
        }),
        boot: true,
        clock: ClockKind::Virtual,
        software: Some(flysch_models::software::LINUX),
        faults: "timeout:0.1,uic:n5".parse().unwrap(),
        faults_from: FaultsFrom::Power,
        seed: 7,
    };
    assert_eq!(text.parse(), Ok(Target::Ufs(expected)));
    assert!(refusal("ufs,crypto=xts").contains("aes-256-xts"));
    assert!(refusal("ufs,crypto=aes-256-xts,data-unit=256").contains("512|1024"));
    assert!(refusal("ufs,suspend-level=sleep").contains("`suspend=MICROSECONDS` as well"));
    assert!(refusal("ufs,crypto-key=k").contains("`crypto=aes-128-xts` as well"));
    for (text, bytes) in [("nvme,hmb=off", 0), ("nvme,hmb=8M", 8 << 20), ("nvme", 128 << 20)] {
        let expected = NvmeTarget { host_memory: bytes, ..NvmeTarget::default() };
        assert_eq!(text.parse(), Ok(Target::Nvme(expected)), "{text}");
    }
    let text = "nvme@qemu,size=64M,image=c.img,queues=3,block=512,qemu=/opt/qemu";
    let expected = NvmeQemuTarget {
        size: Some(64 << 20),
        image: Some("c.img".into()),
        namespaces: 1,
        namespace: 1,
        queues: 3,
        block_size: 512,
        sgls: true,
        shadow_doorbells: true,
        memory_mib: 0,
        zone_bytes: 0,
        controllers: 1,
        qemu: Some("/opt/qemu".into()),
    };
    assert_eq!(text.parse(), Ok(Target::NvmeQemu(expected.clone())));
    let text = "nvme@qemu,size=64M,image=c.img,queues=3,block=512,qemu=/opt/qemu,namespaces=4,ns=2,\
                sgl=off,dbbuf=off,cmb=2,zones=1M,controllers=2";
    let expected = NvmeQemuTarget {
        namespaces: 4,
        namespace: 2,
        sgls: false,
        shadow_doorbells: false,
        memory_mib: 2,
        zone_bytes: 1 << 20,
        controllers: 2,
        ..expected
    };
    assert_eq!(text.parse(), Ok(Target::NvmeQemu(expected)));
    let text = "nvme,dbbuf=off,cmb=1M,apst=on,zones=4M";
    let expected = NvmeTarget {
        shadow_doorbells: false,
        controller_memory: 1 << 20,
        power_saving: true,
        zone_bytes: 4 << 20,
        ..NvmeTarget::default()
    };
    assert_eq!(text.parse(), Ok(Target::Nvme(expected)));
    assert!(refusal("nvme,cmb=64M").contains("BYTES|off"));
    assert!(refusal("nvme@qemu,ns=2").contains("`namespaces=` makes more"));
    assert!(refusal("nvme@qemu,queues=0").contains("1..31"));
    assert!(refusal("nvme@qemu,block=1024").contains("512|4096"));
    let text = "ufs@qemu,size=64M,image=b.img,mcq=2,qemu=/opt/qemu";
    let expected = QemuTarget {
        size: Some(64 << 20),
        image: Some("b.img".into()),
        mcq: Some(2),
        qemu: Some("/opt/qemu".into()),
    };
    assert_eq!(text.parse(), Ok(Target::UfsQemu(expected)));
    let expected = NullTarget { size: 8192 };
    assert_eq!("null,size=8K".parse(), Ok(Target::Null(expected)));
}

#[test]
fn paths_may_hold_commas_and_colons() {
    for (text, path, size) in [
        ("file:disk.img", "disk.img", None),
        ("file:a,b.img", "a,b.img", None),
        ("file:/x:y/z,size=1M", "/x:y/z", Some(1 << 20)),
        ("file:a,b,size=4K", "a,b", Some(4096)),
    ] {
        let expected = FileTarget { path: path.into(), size, block_size: 4096 };
        assert_eq!(text.parse(), Ok(Target::File(expected)), "{text}");
    }
}

#[test]
fn linux_targets_have_their_keys() {
    let plain: Target = "linux:/dev/sda".parse().unwrap();
    let expected = LinuxTarget {
        path: "/dev/sda".into(),
        engine: Engine::Uring,
        direct: true,
        write: None,
        polled: false,
        sqpoll: false,
        fixed: true,
        lanes: 1,
        block: None,
        size: None,
    };
    assert_eq!(plain, Target::Linux(expected.clone()));
    let text = "linux:a,b.img,engine=aio,direct=0,write=on,fixed=off,lanes=4,block=512,size=1M";
    let expected = LinuxTarget {
        path: "a,b.img".into(),
        engine: Engine::Aio,
        direct: false,
        write: Some(true),
        fixed: false,
        lanes: 4,
        block: Some(512),
        size: Some(1 << 20),
        ..expected
    };
    assert_eq!(text.parse(), Ok(Target::Linux(expected)));
    assert!(refusal("linux").contains("linux:"));
    assert!(refusal("linux:x,engine=spdk").contains("io_uring|aio|psync"));
    assert!(refusal("linux:x,polled=maybe").contains("on|off"));
    assert!(refusal("linux:x,lanes=0").contains("1..31"));
}

#[test]
fn wrong_kinds_name_the_nearest_and_the_list() {
    for (given, nearest) in [("ufz", "ufs"), ("ufs@qmu", "ufs@qemu"), ("nul", "null")] {
        let said = refusal(given);
        assert!(said.contains(&format!("did you mean `{nearest}`?")), "{said}");
        assert!(
            said.contains(
                "ufs, nvme, emmc, sd, ahci, ufs@qemu, nvme@qemu, emmc@qemu, sd@qemu, ahci@qemu, "
            ),
            "{said}"
        );
    }
    assert!(!refusal("something-else").contains("did you mean"));
    refusal("");
}

#[test]
fn wrong_keys_name_the_nearest_and_the_list() {
    let said = refusal("ufs,sise=4G");
    assert!(said.contains("`sise`, did you mean `size`?") && said.contains("profile"), "{said}");
    let said = refusal("ufs@qemu,profile=ok3576");
    assert!(said.contains("`ufs@qemu` has no key `profile`"), "{said}");
    assert!(refusal("file:a,sise=4").contains("did you mean `size`?"));
}

#[test]
fn wrong_values_say_what_the_value_must_be() {
    for (given, part) in [
        ("ufs,size=0", "a size such as"),
        ("ufs,size=4097", "multiple of 4096"),
        ("ufs,size=-1", "a size such as"),
        ("ufs,size=99999999999999G", "a size such as"),
        ("ufs,lus=33", "1..32"),
        ("ufs,lus=2,lu=2", "0..1"),
        ("ufs,lu=1", "`lus=` makes more"),
        ("ufs,mcq=0", "1..31"),
        ("ufs,gear=6", "1..5"),
        ("ufs,suspend=0", "microseconds, at least 1"),
        ("ufs,scaling=2ms", "microseconds, at least 1"),
        ("ufs,suspend=1,suspend-level=slep", "did you mean `sleep`?"),
        ("ufs,clock=hybird", "did you mean `hybrid`?"),
        ("ufs,profile=galaxy", "galaxy-book-s|ok3576|"),
        ("ufs,image=", "a path"),
        ("ufs,wb=perhaps", "on|off"),
        ("ufs,seed=x", "a number"),
        ("nvme,hmb=some", "BYTES|off"),
        ("ufs,faults=timeout", "expected kind:when"),
        ("ufs,faults=timeuot:0.1", "kinds are timeout"),
        ("file:a,block=1K", "512|4096"),
    ] {
        let said = refusal(given);
        assert!(said.contains(part), "{given}: {said}");
    }
}

#[test]
fn keys_stand_once_and_as_pairs() {
    assert!(refusal("ufs,mcq=1,mcq=2").contains("twice"));
    for odd in ["ufs,fast", "ufs,", "ufs:x", "file", "file:", "null,,"] {
        assert!(refusal(odd).contains("KIND[,key=value...]"), "{odd}");
    }
}

#[test]
fn no_text_is_a_panic() {
    for text in ["@", ",", "=", "ufs,=", "ufs,=,", "file:,size=", "é,é=é", "file:é,é=é", "ufs@"]
    {
        let _ = text.parse::<Target>();
    }
}

#[test]
fn every_profile_of_the_model_is_in_the_table() {
    let key = ufs::MODEL.keys.iter().find(|key| key.name == "profile").unwrap();
    assert_eq!(key.value, Profile::ALL.map(|profile| profile.name).join("|"));
}

#[test]
fn a_device_says_which_blocks_it_has() {
    for kind in ["ufs", "emmc", "sd", "nvme", "ahci"] {
        for block in [512, 4096] {
            let good = format!("{kind},block={block}");
            assert!(good.parse::<Target>().is_ok(), "{good}");
        }
        let other = refusal(&format!("{kind},block=1000"));
        assert!(other.contains("512|4096"), "{other}");
    }
}

#[test]
fn what_a_device_does_in_pauses_is_read() {
    let Ok(Target::Ufs(ufs)) = "ufs,auto-hibern8=5000".parse() else { panic!("a target") };
    assert_eq!(ufs.auto_hibern8_us, Some(5000));
    let Ok(Target::Nvme(nvme)) = "nvme,apst=on,profile=ok3576".parse() else { panic!("a target") };
    assert!(nvme.power_saving && nvme.profile.name == "ok3576");
    for bad in ["ufs,auto-hibern8=0", "ufs,auto-hibern8=102300001", "nvme,apst=5"] {
        assert!(bad.parse::<Target>().is_err(), "{bad}");
    }
}
