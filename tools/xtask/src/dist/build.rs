//! One build of everything, in a folder that is removed afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Commit, SHARED, STATIC, SUMS};
use super::{copy, empty, ending, licences, make, names, remove, sbom, write};
use crate::shell;
use crate::workspace::Workspace;

/// The package of the command, and of the Python module.
const COMMAND: &str = "flysch-cli";
const PYTHON: &str = "flysch-python";
/// The profile of packages.
const PROFILE: &str = "dist";
/// Replaces the paths of the sources' folder, and of cargo's, in the files built.
const SOURCES: &str = "/flysch";
const CARGO: &str = "/cargo";
/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";
/// Completions: the shell, and the name of its file.
const SHELLS: [(&str, &str); 3] = [("bash", "flysch"), ("zsh", "_flysch"), ("fish", "flysch.fish")];

/// A copy of the sources, and the folder for what is built from it.
struct Build<'a> {
    commit: &'a Commit,
    sources: PathBuf,
    target: PathBuf,
}

/// Builds every package of `commit` into `folder`, working in `place`, which is removed afterwards.
pub(super) fn all(
    workspace: &Workspace,
    commit: &Commit,
    place: &Path,
    folder: &Path,
) -> Result<(), String> {
    empty(place)?;
    let build = Build { commit, sources: place.join("sources"), target: place.join("target") };
    make(&build.sources)?;
    let archive = place.join("sources.tar");
    let mut git = Command::new("git");
    git.current_dir(&workspace.root).args(["archive", "--output"]).arg(&archive);
    shell::run(git.arg(&commit.name))?;
    shell::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&build.sources))?;
    let version = sbom::version(&build.sources, COMMAND)?;
    build.program(folder, &format!("flysch-{version}-{STATIC}"))?;
    build.package(folder)?;
    build.wheel(folder)?;
    for (package, target, name) in [(COMMAND, STATIC, "flysch"), (PYTHON, SHARED, PYTHON)] {
        let bill = sbom::of(&build.sources, package, target, &commit.time)?;
        write(&folder.join(format!("{name}-{version}.cdx.json")), bill.as_bytes())?;
    }
    let mut sums = Command::new("sha256sum");
    sums.current_dir(folder).args(names(folder)?);
    let sums = shell::output(&mut sums)?;
    write(&folder.join(SUMS), sums.as_bytes())?;
    remove(place)
}

impl Build<'_> {
    /// The static program in an archive with its licences, and beside it the manual pages and
    /// completions for the Debian package.
    fn program(&self, folder: &Path, name: &str) -> Result<(), String> {
        let mut cargo = self.settled(shell::cargo(&self.sources));
        cargo.args(["build", "--locked", "--profile", PROFILE, "--target", STATIC]);
        shell::run(cargo.args(["--package", COMMAND]))?;
        let built = self.target.join(STATIC).join(PROFILE);
        let program = built.join("flysch");
        let pages = built.join("man");
        make(&pages)?;
        shell::run(Command::new(&program).args(["man", "--all"]).arg(&pages))?;
        for (name, file) in SHELLS {
            let script = shell::output(Command::new(&program).args(["completions", name]))?;
            make(&built.join(name))?;
            write(&built.join(name).join(file), script.as_bytes())?;
        }
        let notice = licences::of(&self.sources, COMMAND, STATIC)?;
        write(&built.join(licences::NOTICE), notice.as_bytes())?;
        let packed = built.join(name);
        empty(&packed)?;
        for file in [&program, &built.join(licences::NOTICE)] {
            copy(file, &packed.join(file.file_name().unwrap_or_default()))?;
        }
        for file in licences::OWN {
            copy(&self.sources.join(file), &packed.join(file))?;
        }
        self.archive(&built, name, &folder.join(format!("{name}.tar.gz")))
    }

    /// Packs the folder `name` in `place`, with the times of the commit and no user's names.
    fn archive(&self, place: &Path, name: &str, to: &Path) -> Result<(), String> {
        let mut tar = Command::new("tar");
        tar.current_dir(place).args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.args(["--mode=u+rw,go+r-w,a+X", "--format=ustar", "--use-compress-program=gzip -9n"]);
        tar.arg(format!("--mtime=@{}", self.commit.seconds));
        shell::run(tar.arg("-cf").arg(to).arg(name))
    }

    /// The Debian package of that program.
    fn package(&self, folder: &Path) -> Result<(), String> {
        let mut deb = self.settled(shell::cargo(&self.sources));
        deb.args(["deb", "--locked", "--no-build", "--no-strip", "--target", STATIC]);
        deb.args(["--profile", PROFILE, "--package", COMMAND, "--output"]);
        shell::run(deb.arg(folder.join("")))?;
        ending(folder, ".deb").map(drop)
    }

    /// The wheel, for every CPython with the stable ABI.
    fn wheel(&self, folder: &Path) -> Result<(), String> {
        let place = self.sources.join("bindings/python");
        let notice = licences::of(&self.sources, PYTHON, SHARED)?;
        write(&place.join(licences::NOTICE), notice.as_bytes())?;
        let mut maturin = self.settled(shell::clean(Command::new("maturin")));
        maturin.current_dir(place);
        maturin.args(["build", "--locked", "--profile", PROFILE, "--target", SHARED, "--out"]);
        shell::run(maturin.arg(folder))?;
        ending(folder, ".whl").map(drop)
    }

    /// Fixes everything that could make two builds differ: paths, times, the user's flags. Strips
    /// symbols and line numbers, which the profile keeps for measurements.
    fn settled(&self, mut command: Command) -> Command {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let cargo = std::env::var_os("CARGO_HOME").map_or(home.join(".cargo"), PathBuf::from);
        let places = [(&self.target, "/target"), (&self.sources, SOURCES), (&cargo, CARGO)];
        let flags = |flag: &str, between: &str| {
            let flag = |(from, to): &(&PathBuf, &str)| format!("{flag}{}={to}", from.display());
            places.iter().map(flag).collect::<Vec<_>>().join(between)
        };
        command
            .env("CARGO_ENCODED_RUSTFLAGS", flags("--remap-path-prefix=", SEPARATOR))
            .env("CFLAGS", flags("-ffile-prefix-map=", " "))
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DIST_DEBUG", "0")
            .env("CARGO_PROFILE_DIST_STRIP", "symbols")
            .env("SOURCE_DATE_EPOCH", &self.commit.seconds)
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .env_remove("RUSTFLAGS");
        command
    }
}
